"""Local functions written for another version of the operators than the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from peakfold.analysis import cost_of, unsupported
from peakfold.frontends import load
from peakfold.ir import Graph
from peakfold.planning import make_plan

F = TensorProto.FLOAT


def read(path: Path, inner: list, versions: tuple[int, int], *, known: bool = True) -> Graph:
    """A call of function ``act`` (a -> b), then a Relu; versions of the function and the model."""
    opsets = [helper.make_opsetid("", versions[0])]
    function = helper.make_function("my", "act", ["a"], ["b"], inner, opsets)
    nodes = [
        helper.make_node("act", ["x"], ["t"], domain="my"),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    x, y, t = (helper.make_tensor_value_info(n, F, [2, 3]) for n in "xyt")
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=[t] if known else [])
    imports = [helper.make_opsetid("", versions[1]), helper.make_opsetid("my", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=9)
    file = path / "m.onnx"
    file.write_bytes(model.SerializeToString())
    return load(file).graph


def test_a_function_of_another_version_is_inlined_where_nothing_changed(tmp_path: Path) -> None:
    inner = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Exp", ["n"], ["b"])]
    graph = read(tmp_path, inner, (17, 18))
    assert [op.kind for op in graph.ops] == ["neg", "exp", "relu"]
    assert cost_of(graph).total().figures.other_ops == 18
    assert make_plan(graph).summary.arena_bytes == 64
    assert not graph.notes


@pytest.mark.parametrize("versions", [(12, 13), (13, 12)])
def test_a_function_whose_operators_changed_is_named_with_both_versions(
    tmp_path: Path, versions: tuple[int, int]
) -> None:
    graph = read(tmp_path, [helper.make_node("Softmax", ["a"], ["b"])], versions)
    assert unsupported(graph) == {"my::act": 1}
    note = next(note for note in graph.notes if "function 'act'" in note)
    assert f"version {versions[0]} of ai.onnx, the model for {versions[1]}: Softmax" in note
    assert not make_plan(graph).summary.optimal
