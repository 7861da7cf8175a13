"""Judge 3 where onnx's reference kernels cannot run a model: it says so, and goes on with bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from peakfold.frontends import load
from peakfold.planning import make_plan
from peakfold.runtimes.reference import check_run

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def _checked(path: Path, nodes: list, shape: list[int], **weights: object) -> str:
    ends = [helper.make_tensor_value_info("x", F, shape)]
    outs = [helper.make_tensor_value_info("y", F, None)]
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", ends, outs, stored)
    domains = {"": 17} | {node.domain: 1 for node in nodes if node.domain}
    opsets = [helper.make_opsetid(*item) for item in domains.items()]
    file = path / "m.onnx"
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    file.write_bytes(model.SerializeToString())
    loaded = load(file)
    check = check_run(file, loaded.graph, make_plan(loaded.graph).plan)
    assert check.ok, check.detail
    return check.detail


def test_a_kernel_of_the_reference_that_fails_is_named(tmp_path: Path) -> None:
    index = np.zeros((1, 512), np.int64)
    nodes = [
        helper.make_node("GatherElements", ["x", "i"], ["g"], axis=1),
        helper.make_node("Relu", ["g"], ["y"]),
    ]
    assert "GatherElements" in (said := _checked(tmp_path, nodes, [1, 512], i=index))
    assert "cannot run it" in said
    assert "stand-in" in said


def test_a_value_before_the_run_that_the_reference_cannot_make_is_named(tmp_path: Path) -> None:
    index, table = np.zeros((1, 512), np.int64), np.ones((1, 512), np.float32)
    nodes = [
        helper.make_node("GatherElements", ["t", "i"], ["g"], axis=1),
        helper.make_node("Add", ["x", "g"], ["y"]),
    ]
    assert "GatherElements" in _checked(tmp_path, nodes, [1, 512], i=index, t=table)


def test_operators_without_a_reference_and_other_sizes_are_no_failure(tmp_path: Path) -> None:
    gelu = helper.make_node("FastGelu", ["x"], ["y"], domain="com.microsoft")
    assert "no kernel" in _checked(tmp_path, [gelu], [4, 8])
    scales = np.array([1, 1, 0.7, 0.7], np.float32)  # 7 in single precision, 6 in the reference
    resize = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest")
    assert "Resize" not in _checked(tmp_path, [resize], [1, 1, 8, 8], s=scales)
    assert "[1, 1, 6, 6]" in _checked(tmp_path, [resize], [1, 1, 10, 10], s=scales)
    found = helper.make_node("NonZero", ["x"], ["n"])
    cast = helper.make_node("Cast", ["n"], ["y"], to=F)
    assert _checked(tmp_path, [found, cast], [3, 4])
