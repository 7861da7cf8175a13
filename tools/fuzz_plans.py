"""Attack the judges with wrong plans: ``python tools/fuzz_plans.py --count 2000 --seed 1``.

Mutants of plans are judged by `verify_plan` and by an oracle of its own (tests/fuzzing/oracle.py).
A mutant is its seed and number: ``--only NUMBER`` makes and shows that one again.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.fuzzing.attack import (  # noqa: E402 - needs the path
    CLASSES,
    PER_BASE,
    Base,
    Outcome,
    base_plan,
    outcome,
    record,
)
from tests.fuzzing.campaign import BAD, PlanTally, plans  # noqa: E402 - the same
from tests.fuzzing.server import Server  # noqa: E402 - the same


def main() -> int:
    args = _arguments()
    root = None if args.random_only else ROOT
    if args.only is not None:
        base = base_plan(args.seed, args.only // PER_BASE, root)
        found = outcome(base, args.seed, args.only)
        print(record(base, args.seed, found))
        tell(found)
        return 0

    def keep(base: Base, found: Outcome) -> None:
        tell(found)
        if args.out is not None:
            args.out.mkdir(parents=True, exist_ok=True)
            name = f"base-{base.number}" if found.number < 0 else f"mutant-{found.number}"
            (args.out / f"{name}.json").write_text(record(base, args.seed, found))

    start = time.process_time()
    numbers = range(args.first // PER_BASE, -(-(args.first + args.count) // PER_BASE))
    with Server() as server:
        tally = plans(args.seed, numbers, root, keep, server)
    _table(tally)
    if tally.refused:
        print(f"not planned: {tally.refused.total()} graphs, {tally.refused.most_common(3)}")
    print(
        f"{tally.total.total()} mutants of {tally.sound} plans, {tally.spoiled} sound plans "
        f"rejected or faulted, {len(tally.findings)} kinds of finding, "
        f"{time.process_time() - start:.0f} s CPU"
    )
    return 1 if tally.spoiled or any(tally.total[kind] for kind in BAD) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--only", type=int, help="make and show this mutant")
    parser.add_argument("--out", type=Path, help="folder for findings, one JSON each")
    parser.add_argument("--random-only", action="store_true", help="no real models")
    return parser.parse_args()


def tell(found: Outcome) -> None:
    """A finding in one line on stderr."""
    why = "; ".join(f"{f.kind} [{f.about}] {f.text}" for f in found.faults[:3]) or found.said
    print(
        f"{found.verdict}: mutant {found.number} of {found.base}, "
        f"{' + '.join(found.mutations)}: {why}",
        file=sys.stderr,
    )


def _table(tally: PlanTally) -> None:
    names = sorted({name for name, _ in tally.by_mutation})
    print(f"{'mutation':28}" + "".join(f"{name:>20}" for name in CLASSES))
    for name in names:
        print(f"{name:28}" + "".join(f"{tally.by_mutation[name, k]:>20}" for k in CLASSES))
    print(f"{'all':28}" + "".join(f"{tally.total[kind]:>20}" for kind in CLASSES))


if __name__ == "__main__":
    sys.exit(main())
