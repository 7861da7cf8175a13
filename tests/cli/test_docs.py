"""``docs/cli.md`` against the program it describes."""

from __future__ import annotations

import re
import shutil
from importlib import resources
from pathlib import Path

import click
import pytest

from peakfold import errors
from peakfold.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")


def flags_of(verb: str) -> set[str]:
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    return {name for option in command.params for name in option.opts if name.startswith("-")}


@pytest.mark.parametrize("verb", ["plan", "pack", "inspect", "compare", "apply", "measure"])
def test_every_option_is_described_and_none_is_invented(verb: str) -> None:
    table = PAGE.split(f"## Options of `{verb}`")[1].split("## ")[0]
    described = set(re.findall(r"`(-[-a-z]+)", table)) | set(re.findall(r", `(-[-a-z]+)", table))
    flags = flags_of(verb)
    common = {"--json", "--force", "-q", "--quiet", "--traceback", "--order", "--output"}
    assert flags - common - described == set()
    assert described - flags == set()


def test_no_option_of_the_page_is_invented() -> None:
    everywhere = set(re.findall(r"(?<![\w-])(--?[a-z][-a-z]*)", PAGE))
    verbs = main.list_commands(click.Context(main))
    known = {"--help"}.union(*map(flags_of, verbs))
    assert everywhere - known == set()


def test_the_exit_codes_are_those_of_the_errors() -> None:
    rows = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    classes = [e for e in vars(errors).values() if isinstance(e, type)]
    codes = {e.exit_code for e in classes if issubclass(e, errors.PeakfoldError)}
    assert {int(row) for row in rows} == codes | {0, 130}


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bundled = resources.files("peakfold").joinpath("data", "models", "blazeface.onnx")
    with resources.as_file(bundled) as path:
        shutil.copy(path, "model.onnx")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/cli.md", "exec"), {})
    assert (tmp_path / "model.plan.json").is_file()
