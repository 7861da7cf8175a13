"""The interpreter as its own oracle: what its allocator was asked for, held against our steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from peakfold.runtimes.tflite.arena import after
from peakfold.runtimes.tflite.schema import parse_model
from peakfold.runtimes.tflite.scratch import table_scratch
from peakfold.runtimes.tflite.steps import Start, Step, starting
from peakfold.target.arena import load_arena
from peakfold.units import round_up

MISSING = "needs a C compiler and nm" if not (shutil.which("cc") and shutil.which("nm")) else ""
"""Why the interpreter's calls cannot be seen here; empty where they can."""

_KINDS: dict[str, Any] = {
    "k": "keep",
    "h": "hold",
    "x": "release",
    "r": "resize",
    "v": "reserve",
}
_PLANNER = 1 << 20
"""The planner takes all that is left, which is more than any temporary."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one file showed.

    Attributes:
        name: of the model.
        need: bytes of the arena that we print.
        refused: why the interpreter does not take the model; else empty.
        wrong: what is wrong with our steps or `need`; empty when all is well.
        below: whether it starts 16 bytes below, with memory of its own overwritten.
    """

    name: str
    need: int
    refused: str = ""
    wrong: str = ""
    below: bool = False


@cache
def library() -> str:
    """The hooks, compiled."""
    made = Path(tempfile.mkdtemp(prefix="peakfold-")) / "calls.so"
    source = Path(__file__).parent / "calls.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def asked(requests: Sequence[tuple[Path, int]]) -> list[Any]:
    """Answers of `trace` to requests, each in a process that its file may kill."""
    done: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        request = Path(folder) / "request.json"
        while len(done) < len(requests):
            left = [(str(path), arena) for path, arena in requests[len(done) :]]
            request.write_text(json.dumps(left))
            command = [
                sys.executable,
                "-m",
                "tests.runtimes.tflite.oracle.trace",
                library(),
                str(request),
            ]
            end = subprocess.run(command, capture_output=True, text=True, check=False)
            answers = Path(f"{request}.answer").read_text().splitlines()
            done += [json.loads(line) for line in answers]
            if len(done) < len(requests):
                if not answers and end.returncode > 0:
                    raise RuntimeError(end.stderr)
                done.append(f"died with signal {-end.returncode}")
    return done


def expected(data: bytes) -> Start:
    """Our steps for a file; scratch by the table alone."""
    model = parse_model(data)
    scratch = {at: sizes for at, sizes in table_scratch(model).items() if sizes}
    return starting(model, scratch, load_arena("tflm").builds["wheel"])


def peak(steps: Iterable[Step]) -> int:
    """The most bytes in use at any step, rounded up to 16."""
    head = temp = tail = most = 0
    for step in steps:
        head, temp, tail, used = after(step, head, temp, tail)
        most = max(most, used)
    return round_up(most, 16)


def traced(calls: Sequence[tuple[str, int, int]], ours: Sequence[Step]) -> list[Step]:
    """The interpreter's steps.

    Its first record is made before anything can be seen, and what the planner needs of all that
    it takes shows in no call: both are filled in from ours. The head is resized to the plan's size
    once more than needed.
    """
    plan = next((step for step in ours if step.what == "plan"), Step("plan"))
    steps = [ours[0]]
    for what, size, align in calls:
        if what == "h" and align == 16 and size > _PLANNER:
            steps.append(plan)
        elif not (what == "r" and align == 16):
            steps.append(Step(_KINDS[what], size, align))
    return steps


def difference(ours: Sequence[Step], theirs: Sequence[Step]) -> str:
    """The first step that differs, in words; empty when none does."""
    for at, (mine, seen) in enumerate(zip(ours, theirs, strict=False)):
        if mine != seen:
            return f"step {at}: {mine} expected, {seen} seen"
    return "" if len(ours) == len(theirs) else f"{len(ours)} steps expected, {len(theirs)} seen"


def findings(models: dict[str, bytes]) -> list[Finding]:
    """Every model held against the interpreter: its calls, and starts at and below the need."""
    found: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        requests, starts = [], []
        for number, data in enumerate(models.values()):
            path = Path(folder) / f"{number}.tflite"
            path.write_bytes(data)
            start = expected(data)
            need = peak(start.steps)
            starts.append((start, need))
            requests += [(path, 0), (path, need), (path, need - 16)]
        answers = asked(requests)
    for at, (name, (start, need)) in enumerate(zip(models, starts, strict=True)):
        calls, enough, less = answers[3 * at : 3 * at + 3]
        if isinstance(calls, str):
            found.append(Finding(name, need, refused=calls))
            continue
        theirs = traced([tuple(call) for call in calls], start.steps)
        wrong = difference(start.steps, theirs)
        if not wrong and peak(theirs) != need:
            wrong = f"{need} bytes expected, {peak(theirs)} seen"
        if not wrong and isinstance(enough, str):
            wrong = f"{need} bytes are not enough: {enough}"
        if start.unknown:
            wrong = f"no row for {', '.join(start.unknown)}"
        found.append(Finding(name, need, wrong=wrong, below=not isinstance(less, str)))
    return found


def slice_number() -> int:
    """Which tenth a commit tries: the number of commits, modulo ten; 0 without a history."""
    command = ["git", "rev-list", "--count", "HEAD"]
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(told) % 10
