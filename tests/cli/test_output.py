from __future__ import annotations

import errno
import importlib.util
import json
import os
import pty
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .conftest import COMMAND, Call, Shell, error_line


@pytest.mark.parametrize(
    "line",
    [
        "plan ex4.pf",
        "plan ex4.pf --trace",
        "inspect roles.pf",
        "roles.pf",
        "ops",
        "targets",
        "verify ex4.pf p.json",
        "plan ex4.pf --budget 1 --svg x.svg",
    ],
)
def test_json_is_one_document_and_nothing_else(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(models)
    assert call("plan", "ex4.pf", "-o", "p.json", "-q").stderr == ""
    result = call(*line.split(), "--json")
    document = json.loads(result.stdout)
    name, version = document["schema"].split("/")
    assert name.startswith("peakfold.")
    assert int(version) >= 1


def test_json_can_be_piped_into_a_tool(models: Path) -> None:
    command = " ".join(f"'{part}'" for part in COMMAND)
    pipe = f"{command} plan ex4.pf --json | '{sys.executable}' -m json.tool"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipe], cwd=models, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["summary"]["order"] == "file"


def test_a_reader_that_goes_away_is_no_error(models: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "ops", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=models
    )
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate(timeout=60)
    assert stderr == b""
    assert process.returncode == 0


def test_a_missed_budget_is_told_to_a_reader_that_went_away(models: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "plan", "ex4.pf", "--budget", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=models,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    stderr = process.stderr.read()
    assert process.wait(60) == 3
    error_line(stderr)


def test_files_are_named_on_stderr_and_not_with_q(call: Call, models: Path) -> None:
    out = models / "p.json"
    result = call("plan", models / "ex4.pf", "-o", out)
    assert result.stderr == f"Wrote {out}\n"
    assert call("plan", models / "ex4.pf", "-o", out, "--force", "-q").stderr == ""


def test_output_to_stdout_is_only_the_plan(call: Call, models: Path) -> None:
    result = call("plan", models / "ex4.pf", "-o", "-")
    assert json.loads(result.stdout)["schema"] == "peakfold.plan/1"
    assert result.stderr == ""
    (models / "p.json").write_text(result.stdout)
    assert call("verify", models / "ex4.pf", models / "p.json").exit_code == 0


def test_the_json_output_is_itself_a_plan_to_verify(call: Call, models: Path) -> None:
    result = call("plan", models / "ex4.pf", "--json")
    (models / "p.json").write_text(result.stdout)
    assert call("verify", models / "ex4.pf", models / "p.json").exit_code == 0


@pytest.mark.req("R16")
def test_svg_and_png_files(call: Call, models: Path) -> None:
    pytest.importorskip("matplotlib")
    svg, image = models / "m.svg", models / "m.png"
    result = call("plan", models / "evil.pf", "--svg", svg, "--png", image)
    assert result.exit_code == 0
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert image.read_bytes().startswith(b"\x89PNG")
    assert call("plan", models / "evil.pf", "--svg", "-").stdout == svg.read_text()
    raw = call("plan", models / "evil.pf", "--png", "-")
    assert raw.stdout_bytes == image.read_bytes()


def test_a_png_without_matplotlib_fails_before_any_work(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with monkeypatch.context() as patch:
        patch.setattr("peakfold.cli.group._exists", lambda verb: True)
        result = call("plan", models / "gone.pf", "--png", models / "m.png")
    assert result.exit_code == 1
    assert 'pip install "peakfold[plot]"' in error_line(result.stderr)


def test_an_existing_file_is_refused_before_any_work(call: Call, models: Path) -> None:
    (models / "p.json").write_text("mine")
    result = call("plan", models / "broken.onnx", "-o", models / "p.json")
    assert result.exit_code == 2
    assert "exists already" in error_line(result.stderr)
    assert (models / "p.json").read_text() == "mine"


@pytest.mark.parametrize("call_fails", ["open", "rename"])
def test_an_error_while_writing_leaves_no_file(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch, call_fails: str
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, {"open": "fdopen", "rename": "replace"}[call_fails], full)
    before = sorted(models.iterdir())
    result = call("plan", models / "ex4.pf", "-o", models / "p.json", "--svg", models / "m.svg")
    assert result.exit_code == 2
    assert "No space left on device" in error_line(result.stderr)
    assert sorted(models.iterdir()) == before


def test_an_unwritable_folder_is_one_error(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*args: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", denied)
    result = call("plan", models / "broken.onnx", "-o", models / "p.json")
    assert result.exit_code == 2
    assert error_line(result.stderr).endswith("p.json: cannot be written: Permission denied")


def test_a_full_stdout_is_one_error(models: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "plan", "ex4.pf"], cwd=models, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert "cannot write to stdout" in error_line(done.stderr)
    assert len(done.stderr.splitlines()) == 1


def on_a_terminal(models: Path, *args: str, **env: str) -> str:
    """What a terminal shows: stdout and stderr are one pseudo-terminal."""
    leader, follower = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [*COMMAND, *args],
        cwd=models,
        stdout=follower,
        stderr=follower,
        stdin=subprocess.DEVNULL,
        env={**plain, "TERM": "xterm", "COLUMNS": "80", **env},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    os.close(leader)
    assert process.wait(60) == 0
    return shown.decode()


def test_colour_is_for_terminals_that_want_it(shell: Shell, models: Path) -> None:
    assert "\x1b[" not in shell("plan", "ex4.pf", cwd=models).stdout
    assert "\x1b[36m" in on_a_terminal(models, "plan", "ex4.pf")
    quiet = on_a_terminal(models, "plan", "ex4.pf", "-q", NO_COLOR="1")
    assert "\x1b[" not in quiet
    assert "Memory over time" in quiet


def test_names_cannot_reach_the_terminal(shell: Shell, models: Path) -> None:
    for verb in ("plan", "inspect"):
        done = shell(verb, "evil.pf", cwd=models)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout + done.stderr
        assert "\\x1b[31m" in done.stdout


def test_an_ascii_terminal_gets_an_ascii_picture(shell: Shell, models: Path) -> None:
    done = shell("plan", "ex4.pf", cwd=models, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "####" in done.stdout
    assert "\\u" not in done.stdout


@pytest.mark.parametrize("columns", ["20", "40", "60", "80", "140"])
def test_the_report_keeps_to_the_width(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.chdir(models)
    (models / "p.csv").write_text(
        "id,lower,upper,size\n"
        + "".join(f"{'a_long_name' * 3}{at},0,2,1048577\n" for at in range(4))
    )
    for line in (
        "plan ex4.pf --trace",
        "inspect roles.pf",
        "ops",
        "targets",
        "devices",
        "devices t4",
        "modes ex4.pf roles.pf",
        "lanes ex4.pf",
        "fit ex4.pf --budget 10 --time-limit 0",
        "compare ex4.pf roles.pf --ops",
        "inspect roles.pf --by scope --lint",
        "inspect --op fc,4->5",
        "pack p.csv --capacity 3 --explain",
    ):
        monkeypatch.setenv("COLUMNS", columns)
        from click.testing import CliRunner

        from peakfold.cli import main

        text = CliRunner().invoke(main, [w.replace(",", " ") for w in line.split()]).stdout
        assert text
        assert max(map(len, text.splitlines())) <= max(int(columns), 40), line


def test_no_kind_is_cut_in_the_list_of_ops(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peakfold.ops import KINDS

    lines = call("ops").stdout.splitlines()
    assert not [line for line in lines if "…" in line]
    words = "".join(line.split("  ")[0].strip() for line in lines[1:])
    assert all(kind in words for kind in KINDS)
