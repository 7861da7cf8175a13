"""What a model calls its tensors cannot move a cursor, leave its cell, or fill a screen."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path
from xml.dom import minidom

import pytest

from .conftest import Call

LONG = 20_000
NAMES = [
    "\x1b[31mred\x07",
    "</script><b>",
    "*/ int x;",
    "??/",
    "a\r\nb",
    "x" * LONG,
    "\u202eabc",
    "n\0ul",
    "=cmd|'/C calc'!A0",
    "-1+1",
    "@sum",
    "../../x",
    "",
    "\x9b31m",
    "|`a`|",
    "\u2028",
    "[red]x[/red]",
    "x " * (LONG // 2),
    "\ufeff",
]


def model_of(name: str) -> str:
    a, w, b, c, d, op = (json.dumps(name + end) for end in ("1", "w", "2", "3", "4", "op"))
    return (
        f"peakfold-graph 1\nname {json.dumps(name)}\nnote {json.dumps(name)}\n"
        f"input {a}: float32[1,4,8,8]\nparameter {w}: float32[4,4,3,3]\n"
        f"{b}: float32[1,4,8,8] = conv({a}, {w}, pads=[1,1,1,1]) name={op} scope={op}\n"
        f"{c}: float32[1,4,8,8] = relu({b})\n{d}: float32[1,4,8,8] = warp({c})\noutput {d}\n"
    )


def safe(text: str, *, whole: bool = False) -> None:
    for line in text.split("\n"):
        assert line.isprintable()
        assert whole or len(line) < 4000


@pytest.fixture(params=range(len(NAMES)))
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "m.pf"
    path.write_text(model_of(NAMES[request.param]), "utf-8")
    return path


def test_every_output_is_safe(call: Call, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile.parent)
    made = call("plan", "m.pf", "-o", "p.json", "--svg", "m.svg", "--budget", "1")
    assert made.exit_code == 3
    for done in (
        made,
        call("inspect", "m.pf", "--lint", "--by", "scope"),
        call("modes", "m.pf"),
        call("fit", "m.pf", "--budget", "1", "--time-limit", "0"),
        call("lanes", "m.pf"),
        call("inspect", "m.pf", "--markdown", "-"),
        call("compare", "m.pf", "--markdown", "-"),
        call("verify", "m.pf", "p.json"),
        call("plan", "m.pf", "--split", "9=2"),
    ):
        safe(done.stdout)
        safe(done.stderr)
    for picture in (
        Path("m.svg").read_text(),
        call("modes", "m.pf", "--chart", "-").stdout,
        call("inspect", "m.pf", "--device", "t4", "--roofline", "-").stdout,
    ):
        minidom.parseString(picture)
        safe(picture)
    for data in (
        Path("p.json").read_text(),
        call("plan", "m.pf", "--json").stdout,
        call("inspect", "m.pf", "--json").stdout,
    ):
        safe(data, whole=True)
        json.loads(data)
    for table in (
        call("inspect", "m.pf", "--csv", "-"),
        call("compare", "m.pf", "m.pf", "--ops", "--csv", "-"),
        call("apply", "m.pf", "p.json", "--to", "csv", "-o", "-"),
    ):
        safe(table.stdout, whole=True)
        for row in csv.reader(io.StringIO(table.stdout)):
            assert not any(cell.strip()[:1] in set("=+-@") for cell in row if cell.strip())


def test_headers_compile(call: Call, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile.parent)
    assert call("plan", "m.pf", "-o", "p.json", "-q").exit_code == 0
    header = call("apply", "m.pf", "p.json", "--to", "c", "-o", "-").stdout
    safe(header)
    if shutil.which("gcc"):
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"]
        subprocess.run(["gcc", *flags], input=header, text=True, check=True)


@pytest.mark.parametrize("name", [n for n in NAMES if len(n) < LONG and "\0" not in n])
def test_a_packed_table_is_safe_and_reads_back(call: Call, tmp_path: Path, name: str) -> None:
    path, once, twice = (tmp_path / n for n in ("p.csv", "once.csv", "twice.csv"))
    out = io.StringIO(newline="")
    rows = [["id", "lower", "upper", "size"], *([f"{name}_{i}", 0, 3, 64] for i in range(3))]
    csv.writer(out, lineterminator="\n").writerows(rows)
    path.write_text(out.getvalue(), "utf-8", newline="")
    missed = call("pack", path, "--capacity", 100, "--explain")
    assert missed.exit_code == 3
    safe(missed.stdout)
    assert call("pack", path, "-o", once, "-q").exit_code == 0
    safe(once.read_text("utf-8"), whole=True)
    assert call("pack", once, "-o", twice, "-q").exit_code == 0
    assert once.read_text("utf-8") == twice.read_text("utf-8")
    again = call("pack", path, "--replan", once, "--json")
    if name.isprintable():
        assert json.loads(again.stdout)["moved"] == []


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "n\0ul", "x" * 10**6, "x " * 10**5])
def test_a_path_that_is_none_is_a_usage_error(
    call: Call, models: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(models)
    (models / "p.csv").write_text("id,lower,upper,size\na,0,1,1\n")
    for line in (
        ["inspect", f"{name}.onnx"],
        ["plan", "chain.pf", "-o", name],
        ["pack", f"{name}.csv"],
        ["verify", f"{name}.tflite"],
        ["pack", "p.csv", "--replan", name],
        ["demo", name],
        ["plan", "chain.pf", "--profile", name],
        ["devices", f"{name}.toml"],
        ["compare", "chain.pf", "--accuracy", name],
        ["inspect", "chain.pf", "--csv", name],
    ):
        done = call(*line)
        assert done.exit_code == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1
        safe(done.stderr)


@pytest.mark.parametrize("which", ["--profile", "--device"])
def test_options_take_files_and_no_devices(call: Call, models: Path, which: str) -> None:
    for source in ("/dev/zero", str(models)):
        given = models / "given.toml"
        given.symlink_to(source)
        done = call("inspect" if which == "--device" else "plan", models / "chain.pf", which, given)
        assert done.exit_code == 2, done.stderr
        given.unlink()
