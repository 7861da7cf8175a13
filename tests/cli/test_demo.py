from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .conftest import Call, error_line


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    from click.testing import CliRunner

    from peakfold.cli import main

    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    result = CliRunner().invoke(main, ["demo", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.stdout, result.stderr


def test_the_demo_plans_draws_and_proves(demo: tuple[Path, str, str]) -> None:
    folder, stdout, stderr = demo
    assert "blazeface.onnx" in stdout
    assert "Memory over time" in stdout
    assert "What was proven" in stdout
    assert "FAILED" not in stdout
    assert stderr.splitlines()[0] == f"Wrote {folder / 'blazeface.plan.json'}"
    assert ET.parse(folder / "blazeface.svg").getroot().tag.endswith("svg")
    assert json.loads((folder / "blazeface.plan.json").read_text())["mode"] == "arena"


def test_a_second_demo_needs_force(call: Call, demo: tuple[Path, str, str]) -> None:
    result = call("demo", demo[0])
    assert result.exit_code == 2
    assert "--force" in error_line(result.stderr)


def test_the_demo_as_json(call: Call, tmp_path: Path) -> None:
    import jsonschema

    document = json.loads(call("demo", tmp_path / "d", "--json", "-q").stdout)
    root = Path(__file__).parents[2]
    schema = json.loads((root / "docs" / "schema" / "demo.json").read_text())
    jsonschema.validate(document, schema)
    assert document["verified"]["ok"] is True
    assert all(Path(path).is_file() for path in document["written"])


def test_a_folder_that_cannot_be_made(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = call("demo", tmp_path / "file" / "x")
    assert result.exit_code == 2
    assert "cannot create the folder" in error_line(result.stderr)
