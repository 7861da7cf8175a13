"""Mutated text models end in a plan or in one clean error, nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from peakfold.frontends import load
from peakfold.ir import print_graph
from tests.cli.test_nesting import text
from tests.ir.test_text import FULL
from tests.reports import graphs

from .mutate import mutate_bytes
from .mutate_text import mutate_text
from .test_tflite_fuzz import outcome

ROUNDS = 120


def seeds(shared: Path) -> list[bytes]:
    """Small models of every origin, and texts that use all of the form."""
    folder = shared / "models"
    files = [*folder.glob("onnx/*.onnx"), *folder.glob("tflite/*.tflite")]
    found = [print_graph(load(path).graph) for path in sorted(files)]
    own = [FULL, graphs.EX4, graphs.ROLES, text(4)]
    return [one.encode() for one in (*own, *found) if len(one) < 10_000]


@pytest.mark.shared
def test_mutated_texts_are_planned_or_refused_cleanly(
    shared: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models = seeds(shared)
    assert len(models) > 10
    path = tmp_path / "mutant.pf"
    seen = set()
    for number in range(ROUNDS):
        rng = random.Random(number)
        mutate = rng.choice([mutate_bytes, mutate_text, mutate_text])
        path.write_bytes(mutate(rng.choice(models), rng))
        seen.add(outcome(path))
    assert seen == {"planned", "refused"}  # the fuzzer reaches both ends
    assert capfd.readouterr() == ("", "")
