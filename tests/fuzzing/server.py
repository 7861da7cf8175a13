"""A fork server for the command line: everything is imported once, each run is a forked child.

``python -m tests.fuzzing.server`` reads a job per line and writes a result per line, both JSON.
It is a process of its own, so that it has one thread when it forks. A child gets limits on
address space and CPU time, an empty folder, and its descriptors 1 and 2 as files, so that what a
library in C prints is seen as well.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import peakfold

MEMORY = 4 << 30
"""Bytes of address space."""
SECONDS = 15
"""Of CPU time."""
WALL = 120
"""Seconds after which a child that only waits is ended."""
KEPT = 20_000
"""Characters of each stream that are kept."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a child did.

    Attributes:
        codes: exit codes of its commands; one that failed is the last.
        out, err: what the last command wrote.
        signal: that ended the child; 0 = none.
        cpu_s: seconds of CPU time of the child.
        files: left in its folder, beside what the job put there.
    """

    codes: tuple[int, ...]
    out: str
    err: str
    signal: int
    cpu_s: float
    files: tuple[str, ...]


class Server:
    """The client's end: a context in which `run` may be called."""

    def __init__(self) -> None:
        env = {
            **os.environ,
            **dict.fromkeys(
                ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"),
                "1",
            ),
        }
        root = Path(__file__).parents[2]
        env["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(root / "src"), str(root), env.get("PYTHONPATH")])
        )
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzzing.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            cwd=root,
            text=True,
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=WALL + 10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def run(self, commands: Sequence[Sequence[str]], files: dict[str, bytes]) -> Run:
        """Run commands one after the other, as long as they succeed, in a folder with `files`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                (Path(folder) / name).write_bytes(data)
            job = {"commands": [list(c) for c in commands], "folder": folder}
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
            left = sorted(p.name for p in Path(folder).iterdir() if p.name not in files)
        return Run(
            tuple(answer["codes"]),
            answer["out"],
            answer["err"],
            answer["signal"],
            answer["cpu_s"],
            tuple(left),
        )


def main() -> None:
    """Serve until stdin ends."""
    requests = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    _warm()
    for line in requests:
        answers.write(json.dumps(_forked(json.loads(line))) + "\n")
        answers.flush()


def _warm() -> None:
    """Import what any run may import, but for PyTorch: no file of a model needs it."""
    for found in pkgutil.walk_packages(peakfold.__path__, "peakfold."):
        if "torch" not in found.name and not found.name.endswith("__main__"):
            with contextlib.suppress(Exception):  # an extra that is not installed
                importlib.import_module(found.name)


def _forked(job: dict[str, Any]) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as codes,
    ):
        child = os.fork()
        if child == 0:
            _child(job, out.fileno(), err.fileno(), codes.fileno())
        status = _waited(child)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "codes": json.loads(_text(codes) or "[]"),
            "out": _text(out),
            "err": _text(err),
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        }


def _text(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode("utf-8", "backslashreplace"))[:KEPT]


def _waited(child: int) -> int:
    end = time.monotonic() + WALL
    pause = 0.0005
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 1.3, 0.02)


def _child(job: dict[str, Any], out: int, err: int, codes: int) -> None:
    """Run the commands and end the process, whatever happens."""
    done: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(job["folder"])
        for number in (1, 2):
            os.dup2((out, err)[number - 1], number)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8")
        from peakfold.cli.group import main as command

        for argv in job["commands"]:
            for stream, number in ((sys.stdout, out), (sys.stderr, err)):
                stream.flush()
                os.ftruncate(number, 0)
                os.lseek(number, 0, os.SEEK_SET)
            sys.argv = ["peakfold", *argv]
            done.append(_exit_code(command, argv))
            if done[-1]:
                break
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os.write(codes, json.dumps(done).encode())
        os._exit(0)


def _exit_code(command: Any, argv: list[str]) -> int:
    try:
        command(argv)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # what Python itself would print
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
