"""Attack the readers with broken files: ``python tools/fuzz_readers.py onnx pf --count 1000``.

Every mutant goes through the real command line in a forked process of 4 GiB and 15 CPU seconds
(tests/fuzzing/readers.py). A mutant is its reader, seed and number: ``onnx --only NUMBER --out
DIR`` writes that file again, and says what became of it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.fuzzing.campaign import files  # noqa: E402 - needs the path
from tests.fuzzing.readers import READERS, Mutant, finding, mutant, run  # noqa: E402 - the same
from tests.fuzzing.server import Server  # noqa: E402 - the same


def main() -> int:
    args = _arguments()
    wrong = 0

    with Server() as server:
        for name in args.readers or READERS:
            reader = READERS[name]
            if not reader.seeds():
                print(f"{name}: no corpus here")
                continue
            if args.only is not None:
                return _show(server, mutant(reader, args.seed, args.only), args.out)
            start = time.monotonic()
            numbers = range(args.first, args.first + args.count)
            tally = files(
                server, reader, args.seed, numbers, lambda one, found: tell(one, found, args.out)
            )
            wrong += tally.ends["finding"]
            told = ", ".join(f"{key}: {count}" for key, count in sorted(tally.ends.items()))
            print(
                f"{name}: {args.count} files, {told}; slowest {tally.slowest:.1f} s CPU, "
                f"{time.monotonic() - start:.0f} s in all",
                flush=True,
            )
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", choices=[*READERS, []], help="all by default")
    parser.add_argument("--count", type=int, default=1000, help="files per reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--only", type=int, help="make, run and show this mutant")
    parser.add_argument("--out", type=Path, help="folder for files with findings")
    return parser.parse_args()


def _show(server: Server, one: Mutant, out: Path | None) -> int:
    ran = run(server, one)
    _save(one, out)
    print(f"{one.seed_name}, {one.steps} steps, {_said(one)}")
    print(f"codes {ran.codes}, signal {ran.signal}, {ran.cpu_s:.2f} s CPU, files {ran.files}")
    print(f"--- stdout\n{ran.out[:2000]}\n--- stderr\n{ran.err[:6000]}")
    print(f"--- finding: {finding(one, ran)}")
    return 0


def tell(one: Mutant, found: str, out: Path | None) -> None:
    """A finding in one line on stderr; its files into a folder."""
    print(
        f"{one.reader} mutant {one.number} of {one.seed_name}, {one.steps} steps, "
        f"{_said(one)}: {found[:300]}",
        file=sys.stderr,
    )
    _save(one, out)


def _said(one: Mutant) -> str:
    return " && ".join(shlex.join(["peakfold", *command]) for command in one.commands)


def _save(one: Mutant, out: Path | None) -> None:
    if out is not None:
        folder = out / f"{one.reader}-{one.number}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in (*one.beside, (one.file, one.data)):
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
