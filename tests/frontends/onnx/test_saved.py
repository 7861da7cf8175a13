"""Files that ONNX Runtime saves: its own operators, their layouts, and names it shares."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from peakfold.analysis import cost_of
from peakfold.frontends import load
from peakfold.frontends.onnx.names import onnx_kind
from peakfold.ir import Graph
from peakfold.ops import lookup
from peakfold.planning import PlanOptions, make_plan

MS, NCHWC = "com.microsoft", "com.microsoft.nchwc"
F, U8 = TensorProto.FLOAT, TensorProto.UINT8


def _const(name: str, value: object) -> TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def graph_of(
    path: Path, nodes: list, inputs: dict, outputs: dict, stored: list, opset: int = 17
) -> Graph:
    """The graph of a file with these nodes; inputs and outputs as (type, shape)."""
    infos = [
        [helper.make_tensor_value_info(name, *kind) for name, kind in side.items()]
        for side in (inputs, outputs)
    ]
    proto = helper.make_graph(nodes, "g", *infos, stored)
    domains = sorted({"", *(node.domain for node in nodes)})
    opsets = [helper.make_opsetid(d, opset if d == "" else 1) for d in domains]
    file = path / "m.onnx"
    model = helper.make_model(proto, opset_imports=opsets, ir_version=8)
    file.write_bytes(model.SerializeToString())
    return load(file).graph


def _quantised(channels_last: int) -> tuple[list, dict, dict, list]:
    """A quantised convolution as ONNX Runtime saves it, or as a user wrote it."""
    s, z = "s", "z"
    conv = ["a", s, z, "w", "ws", "wz", s, z]
    layout = {"channels_last": 1} if channels_last else {}
    there = ([0, 2, 3, 1], [0, 3, 1, 2]) if channels_last else ([0, 1, 2, 3],) * 2
    nodes = [
        helper.make_node("QuantizeLinear", ["x", s, z], ["q"]),
        helper.make_node("Transpose", ["q"], ["a"], perm=there[0]),
        helper.make_node("QLinearConv", conv, ["c"], domain=MS, pads=[1] * 4, **layout),
        helper.make_node("Transpose", ["c"], ["y"], perm=there[1]),
    ]
    stored = [
        _const("s", np.float32(0.05)),
        _const("z", np.uint8(0)),
        _const("ws", np.float32(0.01)),
        _const("wz", np.int8(0)),
        _const("w", np.ones((16, 4, 3, 3), np.int8)),
    ]
    return nodes, {"x": (F, [1, 4, 32, 48])}, {"y": (U8, [1, 16, 32, 48])}, stored


@pytest.mark.parametrize("last", [0, 1])
def test_a_quantised_convolution_counts_the_same_in_both_layouts(tmp_path: Path, last: int) -> None:
    graph = graph_of(tmp_path, *_quantised(last))
    assert graph["c"].shape == ((1, 32, 48, 16) if last else (1, 16, 32, 48))
    assert cost_of(graph).total().figures.macs == 884_736
    summary = make_plan(graph, PlanOptions(align=1)).summary
    assert summary.output_bytes == 24_576


def test_pools_with_channels_last(tmp_path: Path) -> None:
    nodes = [
        helper.make_node(
            "NhwcMaxPool", ["x"], ["a"], domain=MS, kernel_shape=[3, 2], strides=[2, 1]
        ),
        helper.make_node(
            "QLinearAveragePool",
            ["a", "s", "z", "s", "z"],
            ["b"],
            domain=MS,
            kernel_shape=[2, 5],
            channels_last=1,
        ),
        helper.make_node(
            "QLinearGlobalAveragePool", ["b", "s", "z", "s", "z"], ["y"], domain=MS, channels_last=1
        ),
    ]
    graph = graph_of(
        tmp_path,
        nodes,
        {"x": (U8, [2, 31, 48, 5])},
        {"y": (U8, [2, 1, 1, 5])},
        [_const("s", np.float32(1)), _const("z", np.uint8(0))],
    )
    assert [graph[n].shape for n in "aby"] == [(2, 15, 47, 5), (2, 14, 43, 5), (2, 1, 1, 5)]


@pytest.mark.parametrize(
    ("kind", "weight"),
    [("NhwcConv", [7, 5, 3, 2]), ("NhwcFusedConv", [7, 5, 3, 2])],
)
def test_convolutions_with_channels_last(tmp_path: Path, kind: str, weight: list[int]) -> None:
    nodes = [helper.make_node(kind, ["x", "w"], ["y"], domain=MS, strides=[2, 1])]
    graph = graph_of(
        tmp_path,
        nodes,
        {"x": (F, [2, 31, 48, 5])},
        {"y": (F, [2, 15, 47, 7])},
        [_const("w", np.zeros(weight, np.float32))],
    )
    assert graph["y"].shape == (2, 15, 47, 7)
    assert cost_of(graph).total().figures.macs == 2 * 15 * 47 * 7 * 5 * 6


@pytest.mark.parametrize(("ta", "tb", "ba", "bb"), [*itertools.product((0, 1), repeat=4)])
def test_a_fused_product_reads_all_its_flags(
    tmp_path: Path, ta: int, tb: int, ba: int, bb: int
) -> None:
    def stored(rows: int, columns: int, swapped: int, first: int) -> list[int]:
        shape = [2, 6, *((columns, rows) if swapped else (rows, columns))]
        return [shape[2], 2, 6, shape[3]] if first else shape

    node = helper.make_node(
        "FusedMatMul",
        ["a", "b"],
        ["y"],
        domain=MS,
        transA=ta,
        transB=tb,
        transBatchA=ba,
        transBatchB=bb,
        alpha=0.5,
    )
    operands = {"a": (F, stored(3, 4, ta, ba)), "b": (F, stored(4, 5, tb, bb))}
    graph = graph_of(tmp_path, [node], operands, {"y": (F, None)}, [])
    assert graph["y"].shape == (2, 6, 3, 5)  # what ONNX Runtime's own result has, in all sixteen
    assert cost_of(graph).total().figures.macs == 2 * 6 * 3 * 5 * 4


def _blocked(block: int) -> tuple[list, dict, dict, list]:
    """Two convolutions as the nchwc transformer writes them: 20 channels, then 20 to 40."""
    wide, out = (32, 48) if block == 16 else (24, 40)
    nodes = [
        helper.make_node(
            "Conv",
            ["x", "w0"],
            ["a"],
            domain=NCHWC,
            pads=[1] * 4,
            strides=[2, 2],
            activation="Relu",
        ),
        helper.make_node(
            "MaxPool", ["a"], ["b"], domain=NCHWC, kernel_shape=[2, 2], strides=[2, 2]
        ),
        helper.make_node("ReorderOutput", ["b"], ["c"], domain=NCHWC, channels=20),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("ReorderInput", ["d"], ["e"], domain=NCHWC),
        helper.make_node("Upsample", ["e"], ["f"], domain=NCHWC, scales=[1, 1, 2, 2]),
        helper.make_node("Conv", ["f", "w1"], ["g"], domain=NCHWC),
        helper.make_node("GlobalAveragePool", ["g"], ["h"], domain=NCHWC),
        helper.make_node("ReorderOutput", ["h"], ["y"], domain=NCHWC, channels=37),
    ]
    stored = [
        _const("w0", np.zeros((wide, 3, 3, 3), np.float32)),
        _const("w1", np.zeros((out, wide, 1, 1), np.float32)),
    ]
    return nodes, {"x": (F, [2, 3, 32, 48])}, {"y": (F, [2, 37, 1, 1])}, stored


@pytest.mark.parametrize(("block", "wide", "out"), [(16, 32, 48), (8, 24, 40)])
def test_channels_in_blocks(tmp_path: Path, block: int, wide: int, out: int) -> None:
    graph = graph_of(tmp_path, *_blocked(block))
    assert [graph[n].shape for n in "abcefghy"] == [
        (2, wide, 16, 24),
        (2, wide, 8, 12),
        (2, 20, 8, 12),
        (2, wide, 8, 12),
        (2, wide, 16, 24),
        (2, out, 16, 24),
        (2, out, 1, 1),
        (2, 37, 1, 1),
    ]
    macs = 2 * 16 * 24 * (wide * 27 + out * wide)
    assert cost_of(graph).total().figures.macs == macs
    assert any(f"blocks of {block}" in note for note in graph.notes)


def test_a_contrib_name_shares_a_row_only_where_its_attributes_do() -> None:
    for name in ("Conv", "MaxPool", "Resize", "ReverseV2"):
        assert not lookup(onnx_kind(name, MS)).known, name
    for name in ("Gelu", "Trilu", "QLinearConv", "GridSample", "NhwcMaxPool", "FusedConv"):
        assert lookup(onnx_kind(name, MS)).known, name
    assert not lookup(onnx_kind("Conv", "com.ms.internal.nhwc")).known
