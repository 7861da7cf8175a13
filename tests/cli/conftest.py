"""Running the command line: in this process (`call`) and as a real one (`shell`)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from peakfold.cli import main
from tests.reports import graphs

Call = Callable[..., Result]
Shell = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-c", "from peakfold.cli import main; main()"]


def listening() -> None:
    """Run in a child before it starts: jobs in the background are born deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args: object) -> Result:
        result = CliRunner().invoke(main, [str(arg) for arg in args])
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


@pytest.fixture
def shell() -> Shell:
    def run(*args: object, **options: object) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=120, **options
        )
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of small models; `broken.onnx` and `cyclic.pf` are bad ones."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name, text in {
        "ex4.pf": graphs.EX4,
        "chain.pf": graphs.CHAIN,
        "roles.pf": graphs.ROLES,
        "evil.pf": graphs.evil(),
        "open.pf": "peakfold-graph 1\ninput x: int8[n,64]\ny: int8[n,64] = relu(x)\noutput y\n",
        "cyclic.pf": "peakfold-graph 1\na: int8[4] = relu(b)\nb: int8[4] = relu(a)\noutput b\n",
        "surrogate.pf": 'peakfold-graph 1\ninput "\\ud800": int8[4]\noutput "\\ud800"\n',
    }.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "broken.onnx").write_bytes(b"\x08\x07not a model\xff\xff")
    return folder


def error_line(stderr: str) -> str:
    """The one error line."""
    lines = [line for line in stderr.splitlines() if line.startswith("peakfold: error: ")]
    assert len(lines) == 1, stderr
    return lines[0]
