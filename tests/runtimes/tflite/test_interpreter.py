"""Interpreters in processes of their own: answers, refusals, deaths, hangs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peakfold.errors import RunFailed
from peakfold.runtimes.tflite.interpreter import (
    Job,
    equal_outputs,
    run,
    run_all,
    smallest_arena,
    varied,
)
from peakfold.runtimes.tflite.measure import arena_tensors
from peakfold.runtimes.tflite.schema import parse_model
from tests.runtimes.tflite.build import chain
from tests.runtimes.tflite.models import path_of

SIZE = 1 * 8 * 8 * 4 * 4


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.tflite"
    path.write_bytes(chain(["RELU", "TANH"]).bytes())
    return path


@pytest.mark.req("TFL4")
def test_a_run_tells_arena_and_outputs(model: Path) -> None:
    outcome = run(Job(model, 1 << 16, 1, 1, seeds=(1, 2)))
    assert outcome.head == 2 * SIZE
    assert outcome.total == outcome.head + outcome.tail
    # The seed alone decides the input, so the result is known without the interpreter.
    for run_number, seed in enumerate((1, 2)):
        x = np.random.default_rng(seed).uniform(-1, 1, (1, 8, 8, 4)).astype(np.float32)
        (y,) = outcome.outputs[run_number]
        np.testing.assert_allclose(y, np.tanh(np.maximum(x, 0)), rtol=1e-5, atol=1e-6)
    assert varied(outcome)
    again = run(Job(model, 1 << 16, 1, 1, seeds=(1, 2)))
    assert equal_outputs(outcome, again)
    assert not equal_outputs(outcome, run(Job(model, 1 << 16, 1, 1, seeds=(1, 3))))


@pytest.mark.req("TFL4")
def test_the_smallest_arena_is_exact(model: Path) -> None:
    job = Job(model, 1 << 16, 1, 1)
    total = run(job).total
    assert smallest_arena(job, total, 1 << 16) == total
    assert smallest_arena(job, 16, 1 << 16) == total
    with pytest.raises(RunFailed):
        run(Job(model, total - 16, 1, 1))


def test_a_refused_model_says_why(tmp_path: Path) -> None:
    path = tmp_path / "gelu.tflite"
    path.write_bytes(chain(["GELU"]).bytes())
    with pytest.raises(RunFailed, match="GELU"):
        run(Job(path, 1 << 16, 1, 1))


def test_a_death_is_one_error_and_later_jobs_still_run(model: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tflite"
    data = bytearray(chain(["RELU"]).bytes())
    data[:4] = (2**30).to_bytes(4, "little")  # the root lies far outside: native code follows it
    bad.write_bytes(bytes(data))
    first, second = run_all([Job(bad, 1 << 16, 1, 1), Job(model, 1 << 16, 1, 1)])
    assert isinstance(first, RunFailed)
    assert not isinstance(second, RunFailed)
    assert second.head == 2 * SIZE


def test_a_hang_ends(model: Path) -> None:
    with pytest.raises(RunFailed, match="did not finish"):
        run(Job(model, 1 << 16, 1, 1), timeout=0.01)


@pytest.mark.shared
def test_a_long_refusal_is_cut_short() -> None:
    """LiteRT names every tensor that it refuses."""
    (found,) = run_all([Job(path_of("models/tflite/person_detect"), 0, 1, 1, (1,), "litert")])
    assert isinstance(found, RunFailed)
    assert "quantized_dimension" in found.what
    assert len(found.what) < 350


@pytest.mark.shared
def test_weights_that_litert_widens_are_no_part_of_its_arena() -> None:
    """They lie in a block of their own: an address span across both would be any number."""
    path = path_of("models/tflite/face_detection_short_range")
    found = parse_model(path.read_bytes())
    tensors = found.subgraphs[0].tensors
    inside = arena_tensors(found)
    floats = sum(4 * int(np.prod(tensors[at].shape)) for at in inside)  # all of them are float32
    outcome = run(Job(path, 0, 1, 2, (1,), "litert", inside))
    assert 0 < outcome.head < floats
