"""`inspect`, `plan` and `verify` on `.tflite` files, as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SHARED

MODEL = SHARED / "models" / "tflite" / "mww_alexa.tflite"


def peakfold(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "peakfold", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.shared
def test_a_model_with_bodies_and_variables_goes_all_the_way(tmp_path):
    shown = peakfold("inspect", MODEL, "--json")
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["model"]["format"] == "tflite"
    assert document["static"]["state"] == 3024
    assert document["unsupported"] == []
    plan = tmp_path / "plan.json"
    made = peakfold("plan", MODEL, "--strategy", "by-size", "-o", plan)
    assert made.returncode == 0, made.stderr
    judged = peakfold("verify", MODEL, plan, "--run", "--json")
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["ok"]
    assert "kernels are not run here" in judged.stdout


@pytest.mark.shared
def test_a_truncated_file_is_one_line_and_exit_code_one(tmp_path):
    path = tmp_path / "short.tflite"
    path.write_bytes(MODEL.read_bytes()[:5000])
    told = peakfold("plan", path)
    assert told.returncode == 1
    assert told.stdout == ""
    assert told.stderr.count("\n") == 1
    assert told.stderr.startswith(f"peakfold: error: {path}: ")
