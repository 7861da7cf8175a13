"""Dimensions that are no numbers: below 0, 0, shared names, names that are expressions."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper

from peakfold.analysis import Index, cost_of
from peakfold.errors import ModelError, UsageError
from peakfold.frontends import Bindings, Loaded, load
from peakfold.planning import PlanOptions, make_plan

F = TensorProto.FLOAT


def model(*shapes: list, declared: list | None = None) -> ModelProto:
    """One Relu an input: x0, x1, ... to y0, y1, ..."""
    ins = [helper.make_tensor_value_info(f"x{at}", F, shape) for at, shape in enumerate(shapes)]
    outs = [helper.make_tensor_value_info(f"y{at}", F, declared) for at in range(len(shapes))]
    nodes = [helper.make_node("Relu", [f"x{at}"], [f"y{at}"]) for at in range(len(shapes))]
    graph = helper.make_graph(nodes, "g", ins, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def read(path: Path, proto: ModelProto, dims: tuple = (), shapes: tuple = ()) -> Loaded:
    file = path / "m.onnx"
    file.write_bytes(proto.SerializeToString())
    return load(file, Bindings.parse(dims, shapes))


def test_a_dimension_below_0_is_open(tmp_path: Path) -> None:
    proto = model([-1, 4], declared=[-1, 4])
    with pytest.raises(ModelError, match=r"x0\.0"):
        Index.of(read(tmp_path, proto).graph)
    for loaded in (read(tmp_path, proto, shapes=("x0=2x4",)), read(tmp_path, proto, ("x0.0=2",))):
        assert make_plan(loaded.graph).summary.arena_bytes == 64
        assert cost_of(loaded.graph).total().figures.other_ops == 8
        assert not loaded.graph.notes


def test_a_batch_of_0_is_said_and_a_shape_replaces_it(tmp_path: Path) -> None:
    graph = read(tmp_path, model([0, 4])).graph
    assert any("leading dimension is 0" in doubt for doubt in graph.doubts)
    assert not make_plan(graph).summary.optimal
    graph = read(tmp_path, model([0, 4]), shapes=("x0=2x4",)).graph
    assert graph["y0"].shape == (2, 4)
    assert not graph.doubts


@pytest.mark.parametrize("name", ["N", "?", "None", "unk__1"])
def test_a_given_shape_wins_over_a_name_that_means_several(tmp_path: Path, name: str) -> None:
    proto = model([name, 3], [name, name], [name])
    loaded = read(tmp_path, proto, shapes=("x0=2x3", "x1=4x5", "x2=4"))
    assert [loaded.graph[f"y{at}"].shape for at in range(3)] == [(2, 3), (4, 5), (4,)]
    assert any(repr(name) in note and "win" in note for note in loaded.graph.notes)
    plan = make_plan(loaded.graph, PlanOptions(align=1), loaded.bindings).plan
    again = load(
        loaded.path,
        Bindings.parse(
            [f"{k}={v}" for k, v in plan.bindings.dims.items()],
            [f"{k}={v}" for k, v in plan.bindings.shapes.items()],
        ),
    )
    assert again.graph.digest == plan.graph.source


def test_a_name_still_binds_where_the_shapes_agree(tmp_path: Path) -> None:
    loaded = read(tmp_path, model(["N", 3], ["N"]), shapes=("x0=2x3",))
    assert loaded.graph["y1"].shape == (2,)
    with pytest.raises(UsageError, match="fixes 7"):
        read(tmp_path, model(["N", 3]), ("N=7",), ("x0=2x3",))


@pytest.mark.parametrize(
    ("name", "number"),
    [("seq//2", 4), ("seq + 1", 10), ("2*seq", 18), ("max(seq, 16)", 16), ("(seq+1)//2", 5)],
)
def test_a_derived_name_is_evaluated(tmp_path: Path, name: str, number: int) -> None:
    proto = model(["seq"], [name, 2])
    assert read(tmp_path, proto, ("seq=9",)).graph["y1"].shape == (number, 2)
    assert read(tmp_path, proto, shapes=("x0=9",)).graph["y1"].shape == (number, 2)


def test_a_derived_name_that_contradicts_is_named(tmp_path: Path) -> None:
    proto = model(["seq"], ["seq//2"])
    graph = read(tmp_path, proto, ("seq=9",), ("x1=7",)).graph
    assert graph["y1"].shape == (7,)  # the shape that was given
    assert any("'seq//2' is 7" in doubt and "makes it 4" in doubt for doubt in graph.doubts)
    declared = model(["seq"], declared=["seq//2"])  # an output that the op does not make
    graph = read(tmp_path, declared, ("seq=9",)).graph
    assert any("float32[4]" in doubt and "float32[9]" in doubt for doubt in graph.doubts)
