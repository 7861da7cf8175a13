"""The table of kernel scratch, against operators run alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peakfold.runtimes.tflite.interpreter import Job, Outcome, run_all
from peakfold.runtimes.tflite.schema import Signature, operator_name, pack_model, parse_model
from peakfold.runtimes.tflite.scratch import table_scratch
from peakfold.runtimes.tflite.single_op import own_bytes, single
from peakfold.target.formula import Operand
from peakfold.target.scratch import load_scratch, read_table
from peakfold.units import round_up
from tests.runtimes.tflite.build import Build
from tests.runtimes.tflite.models import SHIPPED, runnable

ARENA = 1 << 24


def reduction(kind: str, dtype: str, dims: tuple[int, ...], axes: tuple[int, ...]) -> Build:
    made = Build()
    x = made.tensor(dtype, dims)
    axis = made.tensor("INT32", (len(axes),), np.array(axes, np.int32))
    left = tuple(d for at, d in enumerate(dims) if at not in axes)
    y = made.tensor(dtype, left)
    made.op(kind, [x, axis], [y], "ReducerOptions")
    return made.ends([x], [y])


def transposed(dtype: str, side: int, channels: int) -> Build:
    made = Build()
    shape = made.tensor("INT32", (4,), np.array([1, 2 * side, 2 * side, channels], np.int32))
    weights = "FLOAT32" if dtype == "FLOAT32" else "INT8"
    kind = np.float32 if dtype == "FLOAT32" else np.int8
    w = made.tensor(
        weights,
        (channels, 3, 3, 4),
        np.ones((channels, 3, 3, 4), kind),
        scale=None if dtype == "FLOAT32" else [0.1] * channels,
    )
    x = made.tensor(dtype, (1, side, side, 4))
    y = made.tensor(dtype, (1, 2 * side, 2 * side, channels))
    made.op("TRANSPOSE_CONV", [shape, w, x], [y], "TransposeConvOptions", strideW=2, strideH=2)
    return made.ends([x], [y])


def padded(dims: tuple[int, ...]) -> Build:
    made = Build()
    x = made.tensor("FLOAT32", dims)
    pads = made.tensor("INT32", (len(dims), 2), np.ones((len(dims), 2), np.int32))
    y = made.tensor("FLOAT32", tuple(d + 2 for d in dims))
    made.op("MIRROR_PAD", [x, pads], [y], "MirrorPadOptions")
    return made.ends([x], [y])


def summed(count: int) -> Build:
    made = Build()
    terms = [made.tensor("FLOAT32", (1, 24)) for _ in range(count)]
    y = made.tensor("FLOAT32", (1, 24))
    made.op("ADD_N", terms, [y])
    return made.ends(terms, [y])


SWEEP = [
    *(
        reduction(kind, dtype, dims, axes)
        for kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
        for dtype in ("FLOAT32", "INT8")
        for dims, axes in [((1, 6, 5, 24), (1, 2)), ((3, 40, 2), (2,)), ((9, 7), (0, 1))]
    ),
    *(
        transposed(dtype, side, channels)
        for dtype in ("FLOAT32", "INT8", "INT16")
        for side, channels in [(4, 3), (7, 5)]
    ),
    *(padded(dims) for dims in [(8,), (3, 4, 5), (2, 3, 4, 5)]),
    *(summed(count) for count in (2, 3, 7)),
]


@pytest.mark.req("TFL2")
def test_closed_forms_against_a_sweep(tmp_path: Path) -> None:
    models = [parse_model(made.bytes()) for made in SWEEP]
    jobs = []
    for number, model in enumerate(models):
        path = tmp_path / f"{number}.tflite"
        path.write_bytes(pack_model(model))
        shape = Signature.of(model)
        jobs.append(Job(path, ARENA, shape.inputs, shape.results))
    for model, outcome in zip(models, run_all(jobs), strict=True):
        name = operator_name(model, model.subgraphs[0].operators[0])
        assert isinstance(outcome, Outcome), (name, outcome)
        sizes = table_scratch(model)[0, 0]
        assert sizes is not None
        padded_sizes = sum(round_up(size, 16) for size in sizes)
        assert outcome.head - own_bytes(model) == padded_sizes, name


@pytest.mark.shared
@pytest.mark.req("TFL2")
def test_one_operator_of_each_kind_of_real_models(tmp_path: Path) -> None:
    """The first of each kind and element type in the shared models, run alone."""
    alone, expected, seen = [], [], set()
    for name in SHIPPED:
        model = parse_model(runnable(name))
        sizes = table_scratch(model)
        for (number, at), scratch in sizes.items():
            graph = model.subgraphs[number]
            op = graph.operators[at]
            kind = operator_name(model, op)
            first = graph.tensors[op.inputs[0]].type if len(op.inputs) else None
            if (kind, first) in seen or kind in (
                "CALL_ONCE",
                "VAR_HANDLE",
                "READ_VARIABLE",
                "ASSIGN_VARIABLE",
            ):
                continue
            seen.add((kind, first))
            assert scratch is not None, kind
            alone.append(single(model, number, at))
            expected.append((kind, sum(round_up(size, 16) for size in scratch)))
    jobs = []
    for number, model in enumerate(alone):
        path = tmp_path / f"{number}.tflite"
        path.write_bytes(pack_model(model))
        shape = Signature.of(model)
        jobs.append(Job(path, ARENA, shape.inputs, shape.results))
    for model, outcome, (kind, size) in zip(alone, run_all(jobs), expected, strict=True):
        assert isinstance(outcome, Outcome), (kind, outcome)
        assert outcome.head - own_bytes(model) == size, kind
    assert len(seen) > 40


def test_an_operator_without_a_rule_is_unknown() -> None:
    x = Operand("float32", (1, 4), 4)
    assert load_scratch("tflm").sizes("NoSuchOperator", [x], [x]) is None
    assert load_scratch("generic").sizes("RELU", [x], [x]) is None


def test_a_shape_a_formula_was_not_made_for_is_unknown() -> None:
    table = read_table('pointer = 4\n[[rule]]\noperators = ["A"]\nscratch = ["i0.d3 * pointer"]')
    four, two = Operand("int8", (1, 2, 3, 4), 1), Operand("int8", (1, 2), 1)
    assert table.sizes("A", [four], []) == (16,)
    assert table.sizes("A", [two], []) is None


def test_a_formula_is_no_program() -> None:
    table = read_table('pointer = 8\n[[rule]]\noperators = ["A"]\nscratch = ["open(1)"]')
    with pytest.raises(KeyError):
        table.sizes("A", [], [])
