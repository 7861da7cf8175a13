"""Interpreters as a function: a file in; arena bytes, report and outputs out.

Each call is a process of its own (`worker`): the native code trusts its file, so a crash, a hang
or a rejected model must end as one clear error here. Outputs are compared by their callers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakfold.errors import BackendMissing, RunFailed

_WORDS = 300
"""Characters of a refusal that are passed on."""
_EXTRA = {"tflm": "tflite", "litert": "litert"}
_STEP = 16
"""Bytes: what the interpreter aligns to."""
_TIMEOUT = 600.0
"""Seconds: the largest model of the test set takes 10 a run on the reference kernels."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run.

    Attributes:
        model: the file.
        arena: bytes given to the interpreter; LiteRT takes none.
        inputs, results: number of graph inputs and outputs.
        seeds: one run each, of inputs drawn from the seed; none = one run on what is there.
        dynamic: LiteRT only: indices of the tensors in its arena.
        builtin: LiteRT only: its plain kernels, not its default delegate.
        build_only: build the interpreter, which allocates everything, and run nothing.
    """

    model: Path
    arena: int
    inputs: int
    results: int
    seeds: tuple[int, ...] = ()
    runtime: str = "tflm"
    dynamic: tuple[int, ...] = ()
    builtin: bool = True
    build_only: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run showed.

    Attributes:
        head: bytes planned by lifetime (LiteRT: span of its arena).
        tail: bytes that live as long as the interpreter.
        total: head and tail.
        used: the interpreter's own account of its tail, by what it is for.
        outputs: by run and position.
    """

    head: int
    tail: int
    total: int
    used: dict[str, int] = field(default_factory=dict)
    outputs: tuple[tuple[NDArray[Any], ...], ...] = ()


def run(job: Job, timeout: float = _TIMEOUT) -> Outcome:
    """Run a job in a process of its own.

    Raises:
        BackendMissing: the runtime is not installed.
        RunFailed: it refused the model, died or took too long.
    """
    outcome = run_all([job], timeout)[0]
    if isinstance(outcome, RunFailed):
        raise outcome
    return outcome


def run_all(jobs: Sequence[Job], timeout: float = _TIMEOUT) -> list[Outcome | RunFailed]:
    """Run jobs one after another in one process, and in a new one after each that killed it.

    Args:
        jobs: what to run.
        timeout: seconds for one process.

    Raises:
        BackendMissing: the runtime is not installed.
    """
    done: list[Outcome | RunFailed] = []
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        while len(done) < len(jobs):
            left = jobs[len(done) :]
            answers, end = _ask(Path(folder), left, timeout)
            for at, (job, answer) in enumerate(zip(left, answers, strict=False)):
                done.append(_outcome(job, answer, Path(folder) / f"{at}.npz"))
            if len(done) < len(jobs):  # the next one killed the process
                done.append(RunFailed(end, where=str(jobs[len(done)].model)))
    return done


def _ask(folder: Path, jobs: Sequence[Job], timeout: float) -> tuple[list[dict[str, Any]], str]:
    """Answers to as many jobs as the process lived for, and how it ended."""
    request = folder / "request.json"
    request.write_text(
        json.dumps([_request(job, folder / f"{at}.npz") for at, job in enumerate(jobs)]), "utf-8"
    )
    answer = Path(f"{request}.answer")
    answer.write_text("", "utf-8")
    command = [sys.executable, "-m", "peakfold.runtimes.tflite.worker", str(request)]
    name = jobs[0].runtime
    try:
        code, said = _run(command, folder / "stderr", timeout)
    except subprocess.TimeoutExpired:
        end = f"{name} did not finish in {timeout:g} s"
    else:
        how = f"signal {-code}" if code < 0 else f"code {code}"
        end = f"{name} died with {how}{_last_words(said)}"
    lines = answer.read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines], end


def _run(command: Sequence[str], log: Path, timeout: float) -> tuple[int, str]:
    """The exit code of a process that ends with this one, and what it wrote to stderr.

    Its stdin is a pipe in which nothing comes: the end of it tells it that nobody waits.

    Raises:
        TimeoutExpired: it took longer than `timeout` seconds.
    """
    with (
        log.open("wb") as sink,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=sink
        ) as process,
    ):
        try:
            code = process.wait(timeout)
        except BaseException:  # a signal, too
            process.kill()
            raise
    return code, log.read_text("utf-8", "replace")


def _request(job: Job, store: Path) -> dict[str, Any]:
    return {
        "runtime": job.runtime,
        "model": str(Path(job.model).resolve()),
        "arena": job.arena,
        "inputs": job.inputs,
        "results": job.results,
        "seeds": job.seeds,
        "dynamic": job.dynamic,
        "builtin": job.builtin,
        "build_only": job.build_only,
        "outputs": str(store) if job.seeds else None,
    }


def _outcome(job: Job, answer: dict[str, Any], store: Path) -> Outcome | RunFailed:
    if "missing" in answer:
        raise BackendMissing(
            f"{job.runtime} is not installed",
            hint=f"pip install 'peakfold[{_EXTRA[job.runtime]}]'",
        )
    if not answer["ok"]:
        reason = _last_words(answer["log"]) or f": {answer['error']}"
        if len(reason) > _WORDS:  # LiteRT says the same of every tensor
            reason = reason[:_WORDS].rstrip() + " ..."
        return RunFailed(f"{job.runtime} refused it{reason}", where=str(job.model))
    outputs = _read(store, job) if job.seeds else ()
    return Outcome(
        head=answer.get("head", 0),
        tail=answer.get("tail", 0),
        total=answer.get("total", answer.get("head", 0)),
        used=answer.get("used", {}),
        outputs=outputs,
    )


def _last_words(text: str) -> str:
    """The first thing native code complained about: later lines follow from it."""
    for line in text.splitlines():
        words = " ".join(line.split())
        if words and not words.startswith(("INFO", "WARNING", "W0000", "I0000")):
            return f": {words[:200]}"
    return ""


def _read(store: Path, job: Job) -> tuple[tuple[NDArray[Any], ...], ...]:
    with np.load(store) as values:
        return tuple(
            tuple(values[f"{run}/{at}"] for at in range(job.results))
            for run in range(len(job.seeds))
        )


def smallest_arena(job: Job, guess: int, enough: int, least: int = 0) -> int:
    """The smallest arena, a multiple of 16 bytes, in which the interpreter builds and runs.

    Starting is not monotone: an arena may do although a larger one does not, with memory of the
    interpreter overwritten. Bisection may find such a size.

    Args:
        job: the run; its own arena is ignored.
        guess: bytes; where this is the answer, one look at it and the step below proves it.
        enough: bytes that are enough.
        least: bytes below which no size is looked at.

    Raises:
        RunFailed: not even `enough` bytes are enough.
    """

    def fitting(arenas: Sequence[int]) -> list[bool]:
        jobs = [replace(job, arena=arena, seeds=(), build_only=True) for arena in arenas]
        return [isinstance(outcome, Outcome) for outcome in run_all(jobs)]

    first, top = -(-guess // _STEP), -(-enough // _STEP)
    low, high = max(-(-least // _STEP) - 1, 0), top  # low does not fit, high does
    looks = sorted({max(first - 1, 1), first, *(first + 2**n for n in range(0, 24, 2)), top})
    while True:
        looks = [at for at in looks if low < at <= top]
        fits = fitting([at * _STEP for at in looks])
        if not any(fits) and high == top and looks[-1] == top:
            raise RunFailed(f"{enough} bytes of arena are not enough", where=str(job.model))
        for at, fit in zip(looks, fits, strict=True):
            low, high = (low, min(high, at)) if fit else (max(low, at), high)
        if high - low <= 1:
            run(replace(job, arena=high * _STEP, seeds=job.seeds[:1]))  # and it runs there, too
            return high * _STEP
        looks = sorted({low + (high - low) * n // 13 for n in range(1, 13)} - {low, high})


def equal_outputs(a: Outcome, b: Outcome) -> bool:
    """Whether two runs gave the same bits, NaN included."""
    if len(a.outputs) != len(b.outputs):
        return False
    pairs = [
        pair
        for left, right in zip(a.outputs, b.outputs, strict=True)
        for pair in zip(left, right, strict=True)
    ]
    return all(_same_bits(left, right) for left, right in pairs)


def _same_bits(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return (
        left.shape == right.shape
        and left.dtype == right.dtype
        and left.tobytes() == right.tobytes()
    )


def varied(outcome: Outcome) -> bool:
    """Whether the outputs say anything: some output differs between runs or within itself."""
    flat: Sequence[NDArray[Any]] = [value.ravel() for run in outcome.outputs for value in run]
    inside = any(value.size > 1 and (value != value[0]).any() for value in flat)
    across = any(
        not _same_bits(first, other)
        for run in outcome.outputs[1:]
        for first, other in zip(outcome.outputs[0], run, strict=True)
    )
    return inside or across
