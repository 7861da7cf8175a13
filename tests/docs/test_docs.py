"""What the documentation says is true: its Python runs, its commands print what is shown."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.bench_models import measure
from click.testing import CliRunner

from peakfold.cli import main
from tests.conftest import ROOT
from tests.frontends.models import model, save

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
MODELS = ROOT / "src" / "peakfold" / "data" / "models"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for kind, text in _BLOCK.findall(page.read_text("utf-8")):
            if kind == language:
                found.append((page.name, text))
    return found


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_blocks_run(
    page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a reader would: beside the demo's folder, with a model of their own.
    (tmp_path / "peakfold-demo").symlink_to(MODELS)
    text = model("g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }")
    save(tmp_path / "model.onnx", text)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "docs"})


@pytest.mark.parametrize(("page", "text"), blocks("console"))
def test_console_blocks_print_what_is_shown(page: str, text: str) -> None:
    first, _, expected = text.partition("\n")
    command = first.removeprefix("$ ")
    bin_folder = Path(sys.executable).parent
    home = MODELS if page == "README.md" else ROOT  # after `cd peakfold-demo`
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        capture_output=True,
        text=True,
        env={"PATH": f"{bin_folder}:/usr/bin:/bin", "COLUMNS": "80"},
        check=False,
    )
    assert done.stdout == expected, done.stderr


def commands() -> list[tuple[str, int]]:
    """What README's blocks tell to type, and the exit code that its comment names."""
    found = []
    for language, text in _BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        for line in text.splitlines() if language == "" else ():
            command, _, comment = line.partition(" #")
            if command.startswith(("peakfold ", "cd ")):
                code = re.search(r"exit code (\d)", comment)
                found.append((command.strip(), int(code[1]) if code else 0))
    return found


def test_every_command_of_the_first_page_runs_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BERT-base, batch 32, 512 tokens: with its loss and AdamW it does not fit a T4."""
    pytest.importorskip("torch")
    pytest.importorskip("tflite_micro")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    typed = commands()
    assert len(typed) >= 18
    for command, code in typed:
        verb, *words = shlex.split(command)
        if verb == "cd":
            monkeypatch.chdir(tmp_path / words[0])
            continue
        done = CliRunner().invoke(main, words)
        assert done.exit_code == code, (command, done.output, done.exception)
        if "examples:bert" in command:
            assert "does not fit t4" in done.stdout
            assert "\nloss: the module's own" in done.stdout
            assert "\noptimizer: adamw" in done.stdout


def test_the_table_on_the_first_screen_is_what_the_program_prints() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    table = [line for line in readme.splitlines() if re.match(r"^[ >] (naive|arena|lower)", line)]
    model = "src/peakfold/data/models/blazeface.onnx"
    done = subprocess.run(
        [sys.executable, "-m", "peakfold", *shlex.split(f"plan {model}")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"COLUMNS": "80", "PATH": "/usr/bin"},
        check=True,
    )
    assert len(table) >= 3
    for line in table:
        assert line in done.stdout


PROVEN = {
    "DenseNet-121": "light_densenet121",
    "PP-OCRv4 detection, 320x320": "ppocrv4_det",
    "ResNet-50": "light_resnet50",
    "VGG-19": "light_vgg19",
    "BlazeFace 256": "blazeface_back_256",
    "ShuffleNet": "light_shufflenet",
    "Inception v1": "light_inception_v1",
    "SqueezeNet": "light_squeezenet",
}


@pytest.mark.shared
def test_every_model_of_the_first_page_is_proven_minimal(shared: Path) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([A-Z][^|]+?) \| (\d[^\n]*) \|$", readme, re.MULTILINE))
    assert rows.keys() == PROVEN.keys()
    for name, stem in PROVEN.items():
        found = measure(shared / "models" / "onnx" / f"{stem}.onnx")
        figures = found.ops, found.naive, found.arena, found.arena_best_order
        assert rows[name] == " | ".join(f"{figure:,}" for figure in figures)
        assert found.order_proven, name
        assert found.arena_best_order == found.any_order, name
        assert found.verified, name


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
