"""A signal ends a run in one line, whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from peakfold.cli import signals

from .conftest import listening

# Says so when click begins to be imported: before it, Python itself is starting.
STARTED = """
import os, sys
def told(event, args):
    if event == "import" and args[0] == "click":
        os.write(2, b"started\\n")
sys.addaudithook(told)
from peakfold.cli import main
main()
"""


def run(models: Path, number: int, delay: float) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a run that gets a signal `delay` seconds after its start."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, "plan", str(models / "chain.pf")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listening,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "started\n"
    time.sleep(delay)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("at", range(12))
def test_ctrl_c_at_any_moment_is_one_line_or_success(models: Path, at: int) -> None:
    code, out, err = run(models, signal.SIGINT, 0.4 * at / 11)
    if code == 0:
        assert "proven" in out
        assert err.replace("started\n", "") == ""
    else:
        assert code == 130, (code, err)
        assert err.replace("started\n", "") == "peakfold: error: interrupted\n"


def test_terminated_in_one_line(models: Path) -> None:
    code, _, err = run(models, signal.SIGTERM, 0.05)
    assert (code, err) == (143, "peakfold: error: terminated\n")


def test_what_an_interrupt_became_is_still_one() -> None:
    """Python wraps what falls into a class body; libraries wrap what falls into them."""

    def wrapped(end: BaseException, error: Exception) -> Exception:
        try:
            try:
                raise end
            except BaseException:
                raise error from None
        except Exception as raised:
            return raised

    assert signals.behind(ValueError()) is None
    assert isinstance(signals.behind(wrapped(signals.Interrupted(), OSError())), KeyboardInterrupt)
    assert signals.behind(wrapped(SystemExit(143), OSError())) is not None
    assert signals.behind(wrapped(SystemExit(2), OSError())) is None


def test_an_interrupt_that_a_finaliser_dropped_comes_again() -> None:
    code = (
        "from peakfold.cli import signals\n"
        "import time\n"
        "signals.arm()\n"
        "class Dies:\n"
        "    def __del__(self):\n"
        "        signals.interrupt()\n"
        "try:\n"
        "    one = Dies()\n"
        "    del one\n"
        "    time.sleep(20)\n"
        "except KeyboardInterrupt:\n"
        "    print('again')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        preexec_fn=listening,
    )
    assert (done.stdout, done.stderr) == ("again\n", "")


def _workers(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"tflite.worker" in line and os.fsencode(folder) in line:
                found.append(int(entry.name))
    return found


def _until(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not done() and time.monotonic() < end:
        time.sleep(0.02)
    return done()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for workers in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_parent(tmp_path: Path, number: int) -> None:
    """A stand-in for the interpreter that never ends; folders go, too, where a signal allows."""
    pytest.importorskip("flatbuffers")
    (tmp_path / "tflite_micro").mkdir()
    (tmp_path / "tflite_micro" / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = (
        "from pathlib import Path\n"
        "from peakfold.cli import main, signals\n"
        "from peakfold.cli.group import PeakfoldGroup\n"
        "from peakfold.runtimes.tflite.interpreter import Job, run\n"
        "PeakfoldGroup.main = lambda self: run(Job(Path('m.tflite'), 1, 0, 0))\n"
        "main()\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": paths},
    )
    assert _until(lambda: bool(_workers(temporary)) or process.poll() is not None)
    time.sleep(0.3)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert _until(lambda: not _workers(temporary))
    if number == signal.SIGTERM:
        assert (process.returncode, err) == (143, "peakfold: error: terminated\n")
        assert list(temporary.iterdir()) == []
