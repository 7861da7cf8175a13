"""`peakfold pack` as people call it: bad files, banks, replanning, Ctrl-C, its schema."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from peakfold.packing import violations
from peakfold.packing.csv_format import LINE_LIMIT, Table, format_csv, read_csv
from peakfold.packing.questions.infeasible import subproblem
from tests.packing.oracle import guillotine

from .conftest import COMMAND, Call, Shell, error_line, listening

HEAD = "id,lower,upper,size\n"
HUGE = "4611686018427387904"  # 2^62
BAD = {
    "missing column": ("id,lower,size\na,0,1\n", 1, "'upper' is missing"),
    "negative": (HEAD + "a,0,1,4\nb,0,1,-4\n", 3, "negative"),
    "stop before start": (HEAD + "a,7,3,4\n", 2, "before it starts"),
    "one number past 2^63": (HEAD + "a,0,1,9223372036854775808\n", 2, "2^62"),
    "sum past 2^63": (HEAD + f"a,0,1,{int(HUGE) - 9}\nb,0,1,{int(HUGE) - 9}\n", 3, "add up"),
    "duplicate id": (HEAD + "a,0,1,4\nb,0,1,4\na,2,3,4\n", 4, "first in line 2"),
    "NaN": (HEAD + "a,0,1,NaN\n", 2, "not an integer"),
    "infinity": (HEAD + "a,0,inf,4\n", 2, "not an integer"),
    "endless line": (HEAD + "a,0,1,4\n" + "b" * (LINE_LIMIT + 5), 3, "longer than"),
    "endless quote": (HEAD + 'a,0,1,"4\n' + "4\n" * 90_000, None, "field larger than"),
    "empty": ("", None, "is empty"),
}


def csv_of(path: Path, problem: object, offsets: object = None) -> Path:
    named = subproblem(problem, np.arange(problem.buffers))
    table = Table(named, named.start, named.stop, ("",) * named.buffers)
    path.write_text(format_csv(table, offsets))
    return path


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_error_with_its_line(call: Call, tmp_path: Path, case: str) -> None:
    text, line, what = BAD[case]
    file = tmp_path / "bad.csv"
    file.write_text(text)
    result = call("pack", file, "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    told = error_line(result.stderr)
    assert what in told
    assert "line " in told or line is None
    assert line is None or f"{file}, line {line}:" in told
    assert len(told) < 400


def test_a_stream_that_never_ends_its_line_is_left(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "pack", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    with pytest.raises(BrokenPipeError):
        process.stdin.writelines("4" * LINE_LIMIT for _ in range(10_000))
    assert process.stderr is not None
    told = error_line(process.stderr.read())
    assert "stdin, line 1: line is longer than" in told
    assert process.wait(60) == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--capacity", "64", "--minimize"],
        ["--capacity", "63", "--explain"],
        ["--banks", "a=40,b@3"],
        ["--replan", "old.csv"],
        ["--time-limit", "0", "--capacity", "64"],
    ],
)
def test_json_has_its_schema(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    import jsonschema

    monkeypatch.chdir(tmp_path)
    problem = guillotine(30, 64, 1)
    csv_of(Path("x.csv"), problem)
    csv_of(Path("old.csv"), problem, (np.cumsum(problem.size) - problem.size).tolist())
    document = json.loads(call("pack", "x.csv", "--json", *flags).stdout)
    root = Path(__file__).parents[2]
    schema = json.loads((root / "docs" / "schema" / "pack.json").read_text())
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "height_bytes": "many"}, schema)


def test_banks_are_filled_and_written(call: Call, tmp_path: Path) -> None:
    problem = guillotine(40, 64, 2)
    file, out = csv_of(tmp_path / "x.csv", problem), tmp_path / "out.csv"
    result = call("pack", file, "--banks", "SRAM=40,DRAM@10", "--json", "-o", out)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    sram, dram = document["banks"]
    assert (sram["name"], sram["capacity_bytes"], dram["capacity_bytes"]) == ("SRAM", 40, None)
    rows = [line.split(",") for line in out.read_text().splitlines()]
    where = np.array([row[rows[0].index("bank")] for row in rows[1:]])
    assert "bank" in error_line(call("pack", out).stderr)
    offsets = np.array([int(row[rows[0].index("offset")]) for row in rows[1:]])
    for bank in (sram, dram):
        inside = np.flatnonzero(where == bank["name"])
        assert len(inside) == bank["buffers"] > 0
        assert violations(subproblem(problem, inside), offsets[inside], bank["height_bytes"]) == []
    assert sram["height_bytes"] <= 40
    price = np.where(where == "SRAM", 1, 10)
    assert document["cost"] == (problem.size * price).sum()
    text = call("pack", file, "--banks", "SRAM=40,DRAM@10").stdout
    assert "SRAM: " in text
    assert "of 40 B" in text
    assert call("pack", file, "--banks", "a=8,b=8").exit_code == 3


def test_replanning_moves_few_and_says_whom(call: Call, tmp_path: Path) -> None:
    problem = guillotine(40, 64, 3)
    file, old, out = (tmp_path / name for name in ("x.csv", "old.csv", "out.csv"))
    csv_of(file, problem)
    assert call("pack", file, "-o", old, "--time-limit", 60).exit_code == 0
    same = json.loads(call("pack", file, "--replan", old, "--json").stdout)
    assert (same["moved"], same["height_bytes"], same["optimal"]) == ([], 64, True)
    rows = file.read_text().splitlines()
    grown = int(np.argmin(problem.size))
    cells = rows[grown + 1].split(",")
    rows[grown + 1] = ",".join([*cells[:3], str(int(cells[3]) + 4)])
    file.write_text("\n".join([*rows, "new,0,64,8"]) + "\n")
    found = call("pack", file, "--replan", old, "--json", "-o", out)
    document = json.loads(found.stdout)
    assert found.exit_code == 0
    assert 0 < len(document["moved"]) < 10
    after, before = read_csv(out).problem, read_csv(old).problem.fixed
    assert violations(read_csv(file).problem, after.fixed) == []
    assert document["moved"] == [after.names[b] for b in range(40) if after.fixed[b] != before[b]]
    few = call("pack", file, "--replan", old, "--max-moves", len(document["moved"]))
    none = call("pack", file, "--replan", old, "--max-moves", 0)
    assert (few.exit_code, none.exit_code) == (0, 4)
    assert "moved" in none.stdout
    assert call("pack", file, "--replan", old, "--capacity", 9).exit_code == 3


@pytest.mark.parametrize(
    ("flags", "code", "what"),
    [
        (["--max-moves", "1"], 2, "--replan"),
        (["--banks", "a=1", "--capacity", "8"], 2, "do not go together"),
        (["--banks", "a=1", "--replan", "x.csv"], 2, "do not go together"),
        (["--replan", "x.csv", "--minimize"], 2, "do not go together"),
        (["--replan", "x.csv"], 1, "holds no offsets"),
        (["--replan", "none.csv"], 2, "no such file"),
        (["--banks", "a=1=2"], 2, "is no bank"),
        (["--banks", ""], 2, "is no bank"),
        (["--banks", "a@nan"], 2, "is no bank"),
        (["--banks", "a,b,a=8"], 2, "given twice"),
        (["--banks", "a=8XiB"], 2, "is not a size"),
    ],
)
def test_what_does_not_go_together(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    code: int,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    csv_of(Path("x.csv"), guillotine(5, 8, 1))
    result = call("pack", "x.csv", *flags)
    assert result.exit_code == code
    assert what in error_line(result.stderr)


def test_the_old_packing_is_not_overwritten(call: Call, tmp_path: Path) -> None:
    file = csv_of(tmp_path / "x.csv", guillotine(5, 8, 1))
    old = csv_of(tmp_path / "old.csv", guillotine(5, 8, 1), [0] * 5)
    before = old.read_text()
    assert call("pack", file, "--replan", old, "-o", old, "--force").exit_code == 2
    assert old.read_text() == before


def test_a_wait_for_the_compiler_is_told(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = csv_of(tmp_path / "x.csv", guillotine(120, 1000, 1))
    monkeypatch.setattr(
        "peakfold.packing.exact.kernels.compiled.must_compile", lambda kernel: False
    )
    assert call("pack", file).stderr == ""
    monkeypatch.setattr("peakfold.packing.exact.kernels.compiled.must_compile", lambda kernel: True)
    assert call("pack", file).stderr.count("Compiling kernels, once") == 1
    assert call("pack", file, "-q").stderr == ""
    assert "Compiling kernels, once" in call("pack", file, "--banks", "DRAM@1").stderr
    old = csv_of(tmp_path / "old.csv", guillotine(120, 1000, 2), range(0, 120_000, 1000))
    again = call("pack", file, "--replan", old, "--capacity", "1000").stderr
    assert "Compiling kernels, once" in again


def test_ctrl_c_shows_the_best_packing(tmp_path: Path) -> None:
    """A real SIGINT, sent once the run itself tells of packings that are not yet optimal."""
    problem = guillotine(900, 100_003, 1)
    file, out = csv_of(tmp_path / "x.csv", problem), tmp_path / "out.csv"
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "pack", file, "--time-limit", "600", "--json", "-o", out],
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
        env={**os.environ, "TERM": "dumb"},
        preexec_fn=listening,
    )
    os.close(follower)
    told = b""
    while told.count(b"bound") < 2:
        told += os.read(leader, 4096)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    os.close(leader)
    assert process.returncode == 0
    document = json.loads(stdout)
    assert document["seconds"] < 100
    assert not document["optimal"]
    assert document["height_bytes"] > document["lower_bound_bytes"] == 100_003
    offsets = read_csv(out).problem.fixed
    assert violations(problem, offsets, document["height_bytes"]) == []


def test_ctrl_c_before_any_packing_is_130(tmp_path: Path) -> None:
    """While stdin is still being read there is nothing to show."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print(end='go', flush=True)\n" + COMMAND[-1], "pack", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listening,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.read(2) == "go"
    process.stdin.write(HEAD)
    process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in error_line(stderr)


def test_an_answer_in_text_for_every_status(shell: Shell, tmp_path: Path) -> None:
    file = csv_of(tmp_path / "x.csv", guillotine(300, 4096, 1))
    for capacity, limit, code, what in (
        (9000, 5, 0, "fits"),
        (4095, 5, 3, "cannot fit, 1 bytes missing"),
        (4096, 0, 4, "unknown"),
    ):
        done = shell("pack", file, "--capacity", capacity, "--time-limit", limit)
        assert done.returncode == code
        assert what in done.stdout
        assert len(done.stderr.splitlines()) == (code != 0)
        assert {3: "proven that", 4: "not decided"}.get(code, "") in done.stderr
