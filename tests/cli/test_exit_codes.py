from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peakfold.app import plan as face
from peakfold.errors import TimeLimit

from .conftest import Call, Shell, error_line, listening

CASES = [
    (0, "plan chain.pf"),
    (0, "inspect chain.pf"),
    (0, "chain.pf"),
    (0, "ops"),
    (0, "targets"),
    (0, "--version"),
    (0, "plan open.pf --dim n=4"),
    (0, "plan open.pf --shape x=2x64"),
    (1, "plan broken.onnx"),
    (1, "plan cyclic.pf"),
    (1, "inspect open.pf"),
    (1, "plan surrogate.pf --json"),
    (1, "plan open.pf"),
    (2, "plan"),
    (2, "verify chain.pf"),
    (2, "plan gone.pf"),
    (2, "verify chain.pf gone.json"),
    (2, "plan chain.txt"),
    (2, "frobnicate"),
    (2, "plan chain.pf --frobnicate"),
    (2, "plan chain.pf --mode most"),
    (2, "plan chain.pf --strategy magic"),
    (2, "plan chain.pf --target toaster"),
    (2, "plan chain.pf --align 0"),
    (2, "plan chain.pf --align 24"),
    (2, "lanes chain.pf --align 24"),
    (0, "plan chain.pf --align 1"),
    (2, "plan open.pf --dim n=\u00b2"),
    (2, f"plan open.pf --dim n={'9' * 5000}"),
    (2, f"plan chain.pf --budget {'9' * 5000}"),
    (2, f"plan chain.pf --budget {'9' * 400}.5"),
    (2, "plan chain.pf --lanes \u00b2"),
    (2, f"plan chain.pf --lanes {'9' * 5000}"),
    (2, "plan chain.pf --split y=\u00b2"),
    (2, f"plan chain.pf --seed {'9' * 30}"),
    (2, "inspect chain.pf --trips x=\u00b2"),
    (2, "inspect chain.pf --device t4 --batches \u00b2"),
    (2, "plan chain.pf --budget much"),
    (2, "plan chain.pf --time-limit -1"),
    (2, "plan chain.pf --dim n=4"),
    (2, "plan open.pf --dim n=four"),
    (2, "plan open.pf --shape x=9"),
    (2, "plan open.pf --dim n=999999999999999999999999"),
    (2, "plan chain.pf -o -  --json"),
    (2, "plan chain.pf -o - --svg -"),
    (2, "plan chain.pf -o missing/plan.json"),
    (2, "plan chain.pf -o chain.pf --force"),
    (2, "plan chain.pf --mode naive --strategy by-size"),
    (2, "plan chain.pf --order worst"),
    (2, "plan chain.pf --lanes none"),
    (2, "plan chain.pf --lanes 2 --strategy by-size"),
    (2, "plan chain.pf --flash 1MiB"),
    (2, "fit chain.pf --flash 1MiB"),
    (2, "fit chain.pf --flash 1MiB --budget 1MiB"),
    (3, "plan chain.pf --budget 255"),
    (3, "plan chain.pf --budget 767"),
    (3, "plan chain.pf --arena-budget 255"),
    (3, "plan chain.pf --budget 1MiB --arena-budget 255"),
    (3, "plan chain.pf --target tflm --budget 1MiB --flash 1MiB"),
    (3, "fit chain.pf --budget 767"),
    (5, "verify chain.pf ex4.pf"),
]


@pytest.mark.parametrize(("code", "line"), CASES, ids=[line for _, line in CASES])
def test_exit_codes_and_one_error_line(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch, code: int, line: str
) -> None:
    monkeypatch.chdir(models)
    result = call(*line.split())
    assert result.exit_code == code, result.output
    if code:
        error_line(result.stderr)
        assert len(result.stderr.splitlines()) == 1
    else:
        assert result.stderr == ""
    if code not in (0, 3):
        assert result.stdout == ""


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (0, "plan chain.pf"),
        (1, "plan broken.onnx"),
        (2, "plan"),
        (2, "nonsense"),
        (3, "plan chain.pf --budget 1"),
        (5, "verify chain.pf ex4.pf"),
    ],
)
def test_the_same_as_a_real_process(shell: Shell, models: Path, code: int, line: str) -> None:
    done = shell(*line.split(), cwd=models)
    assert done.returncode == code
    if code:
        error_line(done.stderr)
        assert len(done.stderr.splitlines()) == 1


def test_a_missed_budget_still_shows_and_writes_the_plan(call: Call, models: Path) -> None:
    out = models / "p.json"
    result = call("plan", models / "chain.pf", "--budget", "100B", "-o", out)
    assert result.exit_code == 3
    assert "arena" in result.stdout
    assert "does not fit" in error_line(result.stderr)
    assert "proven" in error_line(result.stderr)
    assert call("verify", models / "chain.pf", out).exit_code == 0
    assert call("plan", models / "chain.pf", "--arena-budget", "256B").exit_code == 0
    assert call("plan", models / "chain.pf", "--budget", "768B").exit_code == 0
    assert call("plan", models / "chain.pf", "--budget", "767B").exit_code == 3


def test_a_tampered_plan_fails_with_5(call: Call, models: Path) -> None:
    out = models / "p.json"
    assert call("plan", models / "ex4.pf", "-o", out).exit_code == 0
    plan = json.loads(out.read_text())
    for buffer in plan["buffers"]:
        buffer["offset"] = 0
    out.write_text(json.dumps(plan))
    result = call("verify", models / "ex4.pf", out)
    assert result.exit_code == 5
    assert "FAILED" in result.stdout
    assert "NOT valid" in result.stdout
    assert "failed:" in error_line(result.stderr)
    document = json.loads(call("verify", models / "ex4.pf", out, "--json").stdout)
    assert document["ok"] is False
    assert not all(check["ok"] for check in document["checks"])


def test_the_plan_of_another_model_is_refused_with_a_document(call: Call, models: Path) -> None:
    out = models / "p.json"
    assert call("plan", models / "open.pf", "--dim", "n=2", "-o", out).exit_code == 0
    result = call("verify", models / "chain.pf", out, "--json")
    assert result.exit_code == 5
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert "another model" in document["checks"][0]["detail"]
    assert "another model" in error_line(result.stderr)


def test_a_time_limit_without_a_plan_is_4(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*args: object, **options: object) -> None:
        raise TimeLimit("no plan in 0 s")

    monkeypatch.setattr(face, "plan", late)
    result = call("plan", models / "chain.pf")
    assert result.exit_code == 4
    assert "no plan in 0 s" in error_line(result.stderr)


def test_an_internal_error_is_one_line(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("first\nsecond \x1b[31m")

    monkeypatch.setattr(face, "plan", broken)
    result = call("plan", models / "chain.pf")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("peakfold: internal error, please report: ZeroDivisionError: first")
    assert "\x1b" not in line


@pytest.mark.parametrize("where", ["before", "after"])
def test_traceback_shows_where_on_request(
    models: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    from click.testing import CliRunner

    from peakfold.cli import main

    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(face, "plan", broken)
    args = ["plan", str(models / "chain.pf")]
    args = ["--traceback", *args] if where == "before" else [*args, "--traceback"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 1
    assert "in broken" in result.stderr


SLOW = """
import sys, time
from peakfold.cli import main
from peakfold.app import plan as face

def slow(*args, **options):
    print("ready", flush=True)
    time.sleep(60)

face.plan = slow
main()
"""


@pytest.mark.parametrize("times", [1, 200])
def test_ctrl_c_is_130_in_one_line_and_leaves_nothing(models: Path, times: int) -> None:
    """Some shells, and `timeout`, signal a process and its group: it arrives more than once."""
    out = models / "p.json"
    command = [sys.executable, "-c", SLOW, "plan", str(models / "chain.pf"), "-o", str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listening
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.0005 if times > 1 else 0)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr.splitlines() == ["peakfold: error: interrupted"]
    assert not out.exists()
    assert not list(models.glob(".peakfold-*"))
