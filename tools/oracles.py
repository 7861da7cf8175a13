"""All of what runtimes run, against what is read: ``make oracles``.

Writes the table of the run to docs/benchmarks/oracles.md; one oracle alone is printed only.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.oracles.campaign import ORACLES, Tally, whole  # noqa: E402 - needs the path

TITLES = {
    "wrong": "wrong",
    "skip": "skipped",
    "open": "open",
    "bounded": "bounded",
    "defined": "by another definition",
    "not run": "not run by the runtime",
}
COLUMNS = {
    "equal": "equal",
    "bounded": "bounded",
    "defined": "defined",
    "open": "open",
    "skip": "skipped",
    "wrong": "wrong",
}
RESULT = ROOT / "docs" / "benchmarks" / "oracles.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(ORACLES), help="this oracle alone")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, tuple[Tally, float]] = {}
    for name in [args.only] if args.only else ORACLES:
        start = time.monotonic()
        found[name] = whole(name), time.monotonic() - start
        print(f"{name}: {found[name][0].line()}", file=sys.stderr, flush=True)
    text = "\n".join([*_head(), *_rows(found), *_lists(found), ""])
    print(text)
    if not args.only:
        RESULT.write_text(text)
    return 1 if any(tally.of("wrong") for tally, _ in found.values()) else 0


def _head() -> Iterator[str]:
    import onnx
    import onnxruntime

    ran = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    yield "# Sizes against what runs: the last whole run"
    yield ""
    today = datetime.datetime.now(datetime.UTC).date()
    yield f"{today}, commit {ran.stdout.strip() or 'unknown'},"
    yield f"ONNX Runtime {onnxruntime.__version__}, onnx {onnx.__version__}, {platform.machine()}."
    yield "Written by `make oracles`; CI runs a tenth (the number of commits modulo 10)."
    yield ""
    yield "Shapes and bytes of every tensor that ran, intermediate ones included, against the graph"
    yield "that is read from the file alone. Backend cases are read twice: as they are, and with"
    yield "nothing declared and short inputs stored, so that every size is our own. *Open*: what is"
    yield "told is right, and a size that only values decide is told not to be known. *Bounded*: a"
    yield "size is told to be at most so large, and was no larger. Peers' cases are those of other"
    yield "planners' and counters' own tests: packings and graphs, valid by the judges and never"
    yield "worse than the peer; .tflite models built anew from facts, run by the interpreter;"
    yield "networks and their counts. *Defined*: the peer counts something else by the same name."
    yield ""


def _rows(found: dict[str, tuple[Tally, float]]) -> Iterator[str]:
    yield f"| oracle | ran | {' | '.join(COLUMNS.values())} | tensors | wall, s |"
    yield f"|---|{'---:|' * (len(COLUMNS) + 3)}"
    for name, (tally, seconds) in found.items():
        counts = " | ".join(str(len(tally.of(kind))) for kind in COLUMNS)
        yield f"| {name} | {tally.ran} | {counts} | {tally.tensors} | {seconds:.0f} |"


def _lists(found: dict[str, tuple[Tally, float]]) -> Iterator[str]:
    for name, (tally, _) in found.items():
        for kind, title in TITLES.items():
            listed = tally.of(kind)
            if not listed:
                continue
            yield ""
            yield f"## {name.capitalize()}: {title}, {len(listed)}"
            yield ""
            yield from (f"- {result.name}: {_short(result.why)}" for result in listed)


def _short(why: str) -> str:
    """A reason without the runtime's own paths and prefixes."""
    kept = why.replace("[ONNXRuntimeError] : ", "").replace("|", "\\|")
    kept = " ".join(word for word in kept.split() if "/onnxruntime_src/" not in word)
    return kept if len(kept) < 140 else f"{kept[:137]}..."


if __name__ == "__main__":
    sys.exit(main())
