"""The whole attack on readers and judges: ``make fuzz``, or ``python tools/fuzz.py --count 100``.

Writes the table of the run to docs/benchmarks/fuzz.md, and files with findings to build/fuzz.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import fuzz_plans  # noqa: E402 - needs the path
import fuzz_readers  # noqa: E402 - the same
from tests.fuzzing.attack import CLASSES, PER_BASE, Base, Outcome, record  # noqa: E402
from tests.fuzzing.campaign import BAD, PlanTally, files, plans  # noqa: E402
from tests.fuzzing.readers import CODES, READERS, Mutant  # noqa: E402
from tests.fuzzing.server import MEMORY, SECONDS, Server  # noqa: E402

RESULT = ROOT / "docs" / "benchmarks" / "fuzz.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="files per reader")
    parser.add_argument("--plans", type=int, help="mutants of plans; 10 times COUNT by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz")
    args = parser.parse_args()
    wanted = 10 * args.count if args.plans is None else args.plans
    start = time.monotonic()
    rows, wrong = _readers(args.count, args.seed, args.out)
    tally = _plans(wanted, args.seed, args.out)
    wrong += tally.spoiled + sum(tally.total[kind] for kind in BAD)
    spent = f"Wall time of the run: {time.monotonic() - start:.0f} s."
    text = "\n".join([*_head(args.seed), *rows, "", *_plan_rows(tally), "", spent, ""])
    RESULT.write_text(text)
    print(text)
    return 1 if wrong else 0


def _head(seed: int) -> Iterator[str]:
    ran = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    yield "# Readers and judges under attack: the last whole run"
    yield ""
    day, commit = datetime.datetime.now(datetime.UTC).date(), ran.stdout.strip() or "unknown"
    yield f"{day}, commit {commit}, seed {seed}, Python {platform.python_version()}. Written by"
    yield "`make fuzz`; CONTRIBUTING.md says how to see one mutant again."
    yield ""
    yield "## Broken files through the command line"
    yield ""
    yield f"Each run has {MEMORY >> 30} GiB and {SECONDS} CPU s. A finding is a traceback, more or"
    yield "less than one line on stderr, an undocumented code, a limit, or a file left behind."
    yield ""
    yield (
        f"| reader | files | {' | '.join(f'code {code}' for code in CODES)} | findings | kinds "
        "| slowest, CPU s | wall, s |"
    )
    yield "|---|" + "---:|" * (len(CODES) + 5)


def _readers(count: int, seed: int, out: Path) -> tuple[list[str], int]:
    rows, wrong = [], 0

    def tell(one: Mutant, found: str) -> None:
        fuzz_readers.tell(one, found, out)

    with Server() as server:
        for name, reader in READERS.items():
            if not reader.seeds():
                rows.append(f"| {name} | none: no corpus where the run was made |")
                continue
            start = time.monotonic()
            tally = files(server, reader, seed, range(count), tell)
            wrong += tally.ends["finding"]
            codes = " | ".join(str(tally.ends[f"code {code}"]) for code in CODES)
            rows.append(
                f"| {name} | {count} | {codes} | {tally.ends['finding']} "
                f"| {len(tally.findings)} | {tally.slowest:.1f} "
                f"| {time.monotonic() - start:.0f} |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows, wrong


def _plans(count: int, seed: int, out: Path) -> PlanTally:
    def tell(base: Base, found: Outcome) -> None:
        fuzz_plans.tell(found)
        out.mkdir(parents=True, exist_ok=True)
        name = f"base-{base.number}" if found.number < 0 else f"plan-{found.number}"
        (out / f"{name}.json").write_text(record(base, seed, found))

    with Server() as server:
        return plans(seed, range(-(-count // PER_BASE)), ROOT, tell, server)


def _plan_rows(tally: PlanTally) -> Iterator[str]:
    yield "## Wrong plans through `verify_plan`, beside an oracle of its own"
    yield ""
    yield f"{tally.sound} sound plans accepted, {tally.spoiled} rejected; {tally.refused.total()}"
    yield "graphs could not be planned."
    yield ""
    yield "| | mutants |"
    yield "|---|---:|"
    for kind in CLASSES:
        yield f"| {kind} | {tally.total[kind]} |"
    yield f"| kinds of finding | {len(tally.findings)} |"


if __name__ == "__main__":
    sys.exit(main())
