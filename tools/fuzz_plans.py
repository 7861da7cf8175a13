"""Attack the judges with wrong plans: ``python tools/fuzz_plans.py --count 2000 --seed 1``.

Mutants of plans are judged by `verify_plan` and by an oracle of its own (tests/fuzzing/oracle.py).
A mutant is its seed and number: ``--only NUMBER`` makes and shows that one again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.fuzzing.attack import (  # noqa: E402 - needs the path
    CLASSES,
    PER_BASE,
    Outcome,
    base_plan,
    bases,
    judged,
    known_wrong,
    outcome,
    record,
    smallest,
)


def main() -> int:
    args = _arguments()
    root = None if args.random_only else ROOT
    if args.only is not None:
        return _show(args.seed, args.only, root)
    start, tally, spoiled = time.process_time(), Counter[tuple[str, str]](), 0
    total, seen, refused = Counter[str](), set[tuple[str, ...]](), Counter[str]()
    numbers = range(args.first // PER_BASE, -(-(args.first + args.count) // PER_BASE))
    for number, base in bases(args.seed, numbers, root, lambda _, e: refused.update([str(e)])):
        verdict, said, _ = judged(base, base.plan)
        wrong = known_wrong(base, base.plan)
        if verdict != "accepted" or wrong:
            spoiled += 1
            told = wrong[0].text if wrong else said
            print(f"unmutated {base.label}: {verdict}, {told}", file=sys.stderr)
            _save(args.out, f"base-{number}", record(base, args.seed, Outcome(
                -1, base.label, (), verdict, tuple(wrong), said)))  # fmt: skip
            continue
        for mutant in range(number * PER_BASE, (number + 1) * PER_BASE):
            found = outcome(base, args.seed, mutant)
            total[found.verdict] += 1
            tally.update((name, found.verdict) for name in set(found.mutations))
            if found.verdict in ("ACCEPTED, WRONG", "RAISED"):
                least = smallest(base, args.seed, found)
                if least.signature not in seen:
                    seen.add(least.signature)
                    _tell(least)
                    _save(args.out, f"mutant-{mutant}", record(base, args.seed, least))
    _table(tally, total)
    if refused:
        print(f"not planned: {sum(refused.values())} graphs, {refused.most_common(3)}")
    print(f"{sum(total.values())} mutants, {spoiled} sound plans rejected or faulted, "
          f"{len(seen)} kinds of finding, {time.process_time() - start:.0f} s CPU")  # fmt: skip
    return 1 if spoiled or total["ACCEPTED, WRONG"] or total["RAISED"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--only", type=int, help="make and show this mutant")
    parser.add_argument("--out", type=Path, help="folder for findings, one JSON each")
    parser.add_argument("--random-only", action="store_true", help="no real models")
    return parser.parse_args()


def _show(seed: int, number: int, root: Path | None) -> int:
    base = base_plan(seed, number // PER_BASE, root)
    found = outcome(base, seed, number)
    print(record(base, seed, found))
    _tell(found)
    return 0


def _tell(found: Outcome) -> None:
    why = "; ".join(f"{f.kind} [{f.about}] {f.text}" for f in found.faults[:3]) or found.said
    print(f"{found.verdict}: mutant {found.number} of {found.base}, "
          f"{' + '.join(found.mutations)}: {why}", file=sys.stderr)  # fmt: skip


def _save(folder: Path | None, name: str, text: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(text)


def _table(tally: Counter[tuple[str, str]], total: Counter[str]) -> None:
    names = sorted({name for name, _ in tally})
    print(f"{'mutation':28}" + "".join(f"{name:>20}" for name in CLASSES))
    for name in names:
        print(f"{name:28}" + "".join(f"{tally[name, kind]:>20}" for kind in CLASSES))
    print(f"{'all':28}" + "".join(f"{total[kind]:>20}" for kind in CLASSES))


if __name__ == "__main__":
    sys.exit(main())
