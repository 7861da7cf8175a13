"""What the interpreter keeps, and the arena it needs: predicted, and measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakfold.runtimes.tflite.interpreter import Job, Outcome, run_all, smallest_arena
from peakfold.runtimes.tflite.schema import Signature, parse_model
from peakfold.runtimes.tflite.scratch import table_scratch
from peakfold.runtimes.tflite.tail import Arena, predict_arena
from tests.runtimes.tflite.build import chain
from tests.runtimes.tflite.models import FOLDED, SHIPPED, path_of, runnable

SMALL = ("hello_world_int8", "dtln_noise_suppression", "mww_alexa", "person_detect")


def predicted(data: bytes, pointer: int = 8) -> Arena:
    model = parse_model(data)
    scratch = {at: sizes for at, sizes in table_scratch(model).items() if sizes}
    return predict_arena(model, scratch, pointer)


@pytest.mark.shared
@pytest.mark.req("TFL10")
def test_the_tail_of_every_model_is_predicted_exactly(tmp_path: Path) -> None:
    jobs, expected = [], []
    for name in (*SHIPPED, *FOLDED):
        data = runnable(name)
        shape = Signature.of(parse_model(data))
        path = tmp_path / f"{Path(name).name}.tflite"
        path.write_bytes(data)
        jobs.append(Job(path, 1 << 25, shape.inputs, shape.results, build_only=True))
        expected.append(predicted(data))
    for job, arena, outcome in zip(jobs, expected, run_all(jobs), strict=True):
        assert isinstance(outcome, Outcome), outcome
        assert arena.unknown == ()
        assert (arena.head, arena.tail) == (outcome.head, outcome.tail), job.model.name


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.req("TFL10")
@pytest.mark.parametrize("name", SMALL)
def test_the_smallest_arena_is_predicted_exactly(name: str) -> None:
    """Of small models the room for planning decides, of others head and tail."""
    path = path_of(f"models/tflite/{name}")
    arena = predicted(path.read_bytes())
    shape = Signature.of(parse_model(path.read_bytes()))
    job = Job(path, 0, shape.inputs, shape.results)
    assert smallest_arena(job, arena.total, 1 << 21) == arena.total
    assert (arena.planning > arena.head + arena.tail) == (name != "person_detect")


@pytest.mark.req("TFL10")
def test_kernels_that_no_table_knows_are_named() -> None:
    arena = predicted(chain(["RELU", "ELU", "SIN"]).bytes())
    assert arena.unknown == ("ELU", "SIN")


@pytest.mark.shared
def test_narrow_pointers_shorten_the_tail_alone() -> None:
    data = path_of("models/tflite/person_detect").read_bytes()
    wide, narrow = predicted(data), predicted(data, 4)
    assert narrow.head == wide.head
    assert narrow.tail < wide.tail
