"""Mutated real models end in success or in one clean `ModelError`, nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from peakfold.errors import ModelError
from peakfold.frontends import load
from peakfold.planning import make_plan
from peakfold.planning.verify import verify_plan

from .mutate import mutate_bytes, mutate_structure

BACKEND = Path(onnx.__file__).parent / "backend" / "test" / "data"
ROUNDS = 400


def seeds(shared: Path) -> list[bytes]:
    """Small real models: the fuzzer spends its time on structure, not on weights."""
    files = [*BACKEND.rglob("*.onnx"), *(shared / "models" / "onnx").glob("*.onnx")]
    return [f.read_bytes() for f in sorted(files) if f.stat().st_size < 40_000]


def outcome(path: Path) -> str:
    """What became of a file: its plan's verdict or the first words of its error."""
    try:
        loaded = load(path)
        plan = make_plan(loaded.graph, bindings=loaded.bindings).plan
    except ModelError as error:
        assert "\n" not in str(error)
        assert "please report" not in str(error)
        assert error.where
        return "refused"
    assert all(check.ok for check in verify_plan(loaded.graph, plan))
    return "planned"


@pytest.mark.shared
@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_structure])
def test_mutated_models_are_planned_or_refused_cleanly(
    mutate: Callable[[bytes, random.Random], bytes], shared: Path, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    models = seeds(shared)
    seen: dict[str, int] = {}
    path = tmp_path / "mutant.onnx"
    for number in range(ROUNDS):
        rng = random.Random(number)
        path.write_bytes(mutate(rng.choice(models), rng))
        verdict = outcome(path)
        seen[verdict] = seen.get(verdict, 0) + 1
    assert set(seen) == {"planned", "refused"}  # the fuzzer reaches both ends
    assert capfd.readouterr() == ("", "")
