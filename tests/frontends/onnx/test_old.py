"""Opsets below 7, read node by node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from peakfold.analysis import cost_of, unsupported
from peakfold.errors import ModelError
from peakfold.frontends import load
from peakfold.ir import Graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.runtimes.reference.run import run_plan

F = TensorProto.FLOAT


def write(path: Path, nodes: list, inputs: dict, outputs: dict, stored: dict, opset: int) -> Path:
    """A file with float inputs and outputs of these shapes, and these weights."""
    sides = [
        [helper.make_tensor_value_info(name, F, shape) for name, shape in side.items()]
        for side in (inputs, outputs)
    ]
    weights = [numpy_helper.from_array(np.asarray(v), name) for name, v in stored.items()]
    for weight in weights:  # up to IR version 3 weights are inputs, too
        sides[0].append(helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    graph = helper.make_graph(nodes, "g", *sides, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    file = path / "old.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def one(path: Path, op: str, dims: list, opset: int, *stored: object, **attrs: object) -> Graph:
    """The graph of one old node on ``x``, with further stored operands."""
    names = [f"v{at}" for at in range(len(stored))]
    made = ["y", *attrs.pop("more", [])]
    node = helper.make_node(op, ["x", *names], made, **attrs)
    values = dict(zip(names, stored, strict=True))
    return load(write(path, [node], {"x": dims}, dict.fromkeys(made), values, opset)).graph


@pytest.mark.parametrize("batch", [1, 2])
def test_a_bias_of_opset_6_lies_along_its_axis(tmp_path: Path, batch: int) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["c", "b"], ["d"], broadcast=1, axis=1),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    stored = {"w": np.ones((8, 3, 3, 3), np.float32), "b": np.arange(8, dtype=np.float32)}
    shapes = {"x": [batch, 3, 16, 16]}, {"y": [batch, 8, 16, 16]}
    file = write(tmp_path, nodes, *shapes, stored, 6)
    graph = load(file).graph
    result = make_plan(graph, PlanOptions(align=1))
    assert result.summary.arena_bytes == result.summary.output_bytes == 8192 * batch
    assert cost_of(graph).total().figures.other_ops == 4096 * batch
    assert all(check.ok for check in verify_plan(graph, result.plan))
    assert run_plan(file, graph, result.plan).ok


@pytest.mark.parametrize(
    ("op", "axis", "small"),
    [
        ("Add", 0, [2]),
        ("Sub", 1, [3, 4]),
        ("Mul", 2, [4]),
        ("Div", -2, [4]),
        ("Pow", 3, [5]),
        ("And", 1, [3]),
        ("Greater", 1, [3]),
        ("Equal", None, [4, 5]),
        ("Add", 2, []),
    ],
)
def test_a_broadcasting_op_has_the_shape_of_its_first_operand(
    tmp_path: Path, op: str, axis: int | None, small: list[int]
) -> None:
    attrs = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    graph = one(tmp_path, op, [2, 3, 4, 5], 6, np.ones(small, np.float32), **attrs)
    assert graph["y"].shape == (2, 3, 4, 5)
    assert not unsupported(graph)


def test_a_slope_per_channel_is_spread_over_the_rest(tmp_path: Path) -> None:
    graph = one(tmp_path, "PRelu", [2, 3, 4, 4], 6, np.ones(3, np.float32))
    assert graph["y"].shape == (2, 3, 4, 4)
    assert graph["y/v0"].shape == (3, 1, 1)


@pytest.mark.parametrize(
    ("op", "stored", "attrs", "shape"),
    [
        ("Pad", (), {"paddings": [0, 0, 1, 2, 0, 0, 3, 4]}, (2, 6, 12, 14)),
        ("Tile", (np.float32(3), np.float32(1)), {}, (2, 18, 8, 8)),
        ("Split", (np.array([2, 4], np.float32),), {"axis": 1, "more": ["z"]}, (2, 2, 8, 8)),
        ("Split", (), {"axis": 1, "more": ["z"]}, (2, 3, 8, 8)),
        ("GlobalLpPool", (), {"p": 2.0}, (2, 6, 1, 1)),
        ("LpPool", (), {"p": 2.0, "kernel_shape": [2, 2], "strides": [2, 2]}, (2, 6, 4, 4)),
        ("Reshape", (), {"shape": [0, -1], "consumed_inputs": [0]}, (2, 384)),
        ("Upsample", (), {"height_scale": 2.0, "width_scale": 3.0}, (2, 6, 16, 24)),
        ("Concat", (np.ones((2, 1, 8, 8), np.float32),), {}, (2, 7, 8, 8)),
        ("Relu", (), {"consumed_inputs": [0]}, (2, 6, 8, 8)),
        ("Dropout", (), {"is_test": 1, "consumed_inputs": [0]}, (2, 6, 8, 8)),
    ],
)
def test_operators_of_opset_1(
    tmp_path: Path, op: str, stored: tuple, attrs: dict, shape: tuple
) -> None:
    graph = one(tmp_path, op, [2, 6, 8, 8], 1, *stored, **attrs)
    assert graph["y"].shape == shape
    assert not unsupported(graph)


def test_an_element_type_by_name_and_a_recurrence(tmp_path: Path) -> None:
    assert one(tmp_path, "Cast", [2, 6], 1, to="FLOAT16")["y"].dtype.name == "float16"
    weights = np.ones((1, 16, 5), np.float32), np.ones((1, 16, 4), np.float32)
    graph = one(tmp_path, "LSTM", [7, 2, 5], 1, *weights, hidden_size=4, output_sequence=1)
    assert graph["y"].shape == (7, 1, 2, 4)


def test_a_node_that_cannot_be_read_is_a_stranger_and_not_the_end(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Tile", ["x", "n", "axis"], ["t"]),  # how often is not known
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    file = write(
        tmp_path, nodes, {"x": [2, 3], "n": [1]}, {"y": [2, 9]}, {"axis": np.float32([1])}, 1
    )
    graph = load(file).graph
    assert unsupported(graph) == {"ai.onnx.opset1::tile": 1}
    assert any("not understood in opset 1" in note for note in graph.notes)


@pytest.mark.parametrize(
    ("op", "stored", "attrs"),
    [
        ("Add", (np.ones(3, np.float32),), {"broadcast": 1, "axis": 2**40}),
        ("Add", (np.ones(3, np.float32),), {"broadcast": 1, "axis": "x"}),
        ("GlobalLpPool", (), {"p": float("nan")}),
        ("Upsample", (), {"height_scale": float("inf"), "width_scale": 2.0}),
        ("Tile", (np.float32("nan"), np.float32(1)), {}),
        ("Split", (np.float32([np.inf, 1]),), {"axis": 1}),
        ("Cast", (), {"to": "NOTHING"}),
        ("Reshape", (), {"shape": 4}),
        ("Pad", (), {"paddings": [1]}),
    ],
)
def test_nonsense_in_an_old_node_is_named(
    tmp_path: Path, op: str, stored: tuple, attrs: dict
) -> None:
    try:
        graph = one(tmp_path, op, [2, 3, 4, 5], 1, *stored, **attrs)
    except ModelError as error:
        assert "Assertion" not in str(error)
        assert "please report" not in str(error)
    else:
        assert unsupported(graph)


def test_weights_that_are_no_inputs_are_read_in_version_3_too(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        [helper.make_node("Split", ["w"], ["y", "z"], axis=0)],
        {},
        {"y": [2, 4], "z": [2, 4]},
        {"w": np.ones((4, 4), np.float32)},
        6,
    )
    model = onnx.load(file)
    del model.graph.input[:]
    onnx.save(model, file)
    graph = load(file).graph
    assert graph["z"].shape == (2, 4)
    assert not graph.doubts


def test_a_weight_that_is_declared_otherwise_is_a_doubt(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": [1, 4]},
        {"y": [1, 4]},
        {"w": np.ones((4, 4), np.float32)},
        6,
    )
    assert not load(file).graph.doubts
    model = onnx.load(file)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 5
    onnx.save(model, file)
    (doubt,) = load(file).graph.doubts
    assert "declares float32[5, 4], its data are float32[4, 4]" in doubt
