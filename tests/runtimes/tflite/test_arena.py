"""What the interpreter keeps, and the arena it needs: predicted, and measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from peakfold.runtimes.tflite.arena import Arena, predict_arena
from peakfold.runtimes.tflite.interpreter import Job, Outcome, run_all
from peakfold.runtimes.tflite.schema import Signature, parse_model
from peakfold.runtimes.tflite.scratch import table_scratch
from peakfold.target.arena import load_arena
from peakfold.target.scratch import load_scratch
from tests.runtimes.tflite.build import chain
from tests.runtimes.tflite.models import FOLDED, SHIPPED, path_of, runnable
from tests.runtimes.tflite.oracle.parts import Model, convolution, ints, one

SMALL = ("hello_world_int8", "dtln_noise_suppression", "mww_alexa", "person_detect")


def predicted(data: bytes, build: str = "wheel") -> Arena:
    model = parse_model(data)
    scratch = {at: sizes for at, sizes in table_scratch(model).items() if sizes}
    return predict_arena(model, scratch, build)


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
@pytest.mark.req("TFL10")
@pytest.mark.parametrize("name", SMALL)
def test_the_smallest_arena_is_predicted_exactly(name: str) -> None:
    """Of small models starting decides, of others head and tail."""
    path = path_of(f"models/tflite/{name}")
    arena = predicted(path.read_bytes())
    shape = Signature.of(parse_model(path.read_bytes()))
    job = Job(path, 0, shape.inputs, shape.results, build_only=True)
    jobs = [replace(job, arena=arena.total - 16), replace(job, arena=arena.total)]
    assert [isinstance(outcome, Outcome) for outcome in run_all(jobs)] == [False, True]
    assert (arena.starting > arena.head + arena.tail) == (name != "person_detect")


@pytest.mark.req("TFL10")
def test_operators_that_no_table_knows_are_named() -> None:
    made = chain(["RELU", "ELU"])
    known = predicted(made.bytes())
    made.op("RELU_N1_TO_1", [0], [1])
    arena = predicted(made.bytes())
    assert (known.unknown, arena.unknown) == ((), ("RELU_N1_TO_1",))
    assert arena.total >= known.total


def test_tables_of_arena_and_scratch_cover_the_same_operators() -> None:
    stranger = {"RELU_N1_TO_1"}  # of other kernels of this family; the interpreter has none
    assert load_scratch("tflm").operators - stranger == load_arena("tflm").operators


@pytest.mark.shared
def test_devices_need_less_than_the_package() -> None:
    """232 bytes for the first records of a 64-bit build, 8 a subgraph; narrow records besides."""
    data = path_of("models/tflite/person_detect").read_bytes()
    wheel, wide, narrow = (predicted(data, build) for build in ("wheel", "device64", "device32"))
    assert wheel.head == wide.head == narrow.head
    operators = parse_model(data).subgraphs[0].operators
    assert wheel.tail - wide.tail >= 232 + 8
    assert wheel.tail - wide.tail <= 232 + 8 + 16 * (len(operators) + 2)
    assert narrow.tail < wide.tail
    assert [b.run for b in load_arena("tflm").builds.values()] == [True, True, False]


def one_layer(name: str) -> bytes:
    """A model of one quantised operator."""
    made = Model()
    if name == "depthwise":
        x = made.tensor("INT8", (1, 4, 4, 4))
        return made.ends([x], [convolution(made, "INT8", x, 4, (4, 4), k=3, deep=True)]).bytes()
    if name == "fully connected":
        w, b = made.const("INT8", 1, (3, 7), [0.01]), made.const("INT32", 0, (3,), [0.0005])
        return one(
            "FULLY_CONNECTED",
            [("INT8", (1, 7)), w, b],
            [("INT8", (1, 3))],
            "FullyConnectedOptions",
            made,
        )
    if name == "softmax":
        return one(
            "SOFTMAX",
            [("INT8", (1, 10))],
            [("INT8", (1, 10), 1 / 256, -128)],
            "SoftmaxOptions",
            beta=1.0,
        )
    axes = ints(made, [1, 2])
    return one("MEAN", [("INT8", (1, 4, 4, 2)), axes], [("INT8", (1, 2))], "ReducerOptions", made)


@pytest.mark.req("TFL10")
@pytest.mark.parametrize(
    ("name", "need"),
    [("depthwise", 1712), ("fully connected", 1328), ("softmax", 1072), ("mean", 1376)],
)
def test_one_operator_whose_preparation_decides(name: str, need: int) -> None:
    """Bisected sizes of models where tensors are looked at while the head is small."""
    assert predicted(one_layer(name)).total == need
