"""Effective multiply-accumulates against counting them one by one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from peakfold.analysis import cost_of
from peakfold.analysis.cost.sparsity import Effective, effective
from peakfold.errors import UsageError
from peakfold.frontends import load
from peakfold.frontends.weights import open_weights
from peakfold.ir import parse_graph
from peakfold.transform import Fold
from tests.analysis.onnx_cases import MS, info, node, values

RNG = np.random.default_rng(7)


def measured(tmp_path, nodes, inputs, stored, opset=17) -> Effective:
    model = helper.make_model(
        helper.make_graph(
            [node(n) for n in nodes],
            "m",
            [info(k, v) for k, v in inputs.items()],
            [helper.make_empty_tensor_value_info("y")],
            stored,
        ),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)],
        ir_version=10,
    )
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    graph = load(path).graph
    folded = Fold()(graph)
    return effective(folded, cost_of(folded, original=graph), graph, open_weights(path))


def sparse(shape, density):
    array = RNG.standard_normal(shape).astype(np.float32)
    array[RNG.random(shape) >= density] = 0
    return array


@pytest.mark.req("R20")
def test_half_of_a_layer_pruned(tmp_path):
    w = RNG.standard_normal((64, 64)).astype(np.float32)
    w.reshape(-1)[RNG.permutation(4096)[:2048]] = 0
    found = measured(
        tmp_path, [("Gemm", "x w", "y", {"transB": 1})], {"x": (4, 64)}, [values("w", w)]
    )
    # pruned50_linear of the measured table: dense 16,384 by every counter
    assert (found.macs, found.unstructured) == (16384, 8192)
    assert (found.elements, found.zeros) == (4096, 2048)


@pytest.mark.req("R20")
def test_a_convolution_against_a_loop_over_its_taps(tmp_path):
    w = sparse((6, 4, 3, 3), 0.4)
    w[2] = 0  # a filter
    w[:, 1] = 0  # an input channel
    nodes = [("Conv", "x w", "y", {"pads": [1] * 4})]
    found = measured(tmp_path, nodes, {"x": (2, 4, 5, 5)}, [values("w", w)])
    taps = sum(int(w[f, c, i, j] != 0) for f, c, i, j in np.ndindex(*w.shape))
    assert found.unstructured == 2 * 25 * taps
    zero_filters = sum(not w[f].any() for f in range(6))
    zero_channels = sum(not w[:, c].any() for c in range(4))
    assert found.structured == 2 * 25 * (6 - zero_filters) * (4 - zero_channels) * 9
    assert found.two_four == found.macs


@pytest.mark.req("R20")
@pytest.mark.parametrize("way", ["matmul", "transposed", "gemm", "cast"])
def test_two_of_four_along_the_input_axis(tmp_path, way):
    k, n = 16, 8
    dense = RNG.standard_normal((k, n)).astype(np.float32)
    for column in range(n):
        for first in range(0, k, 4):
            dense[first + RNG.permutation(4)[:2], column] = 0
    nodes = {
        "matmul": [("MatMul", "x w", "y")],
        "transposed": [("Transpose", "w", "t", {"perm": [1, 0]}), ("MatMul", "x t", "y")],
        "gemm": [("Gemm", "x w", "y", {"transB": 1})],
        "cast": [("Cast", "w", "t", {"to": 1}), ("MatMul", "x t", "y")],
    }[way]
    stored = dense.T if way in ("transposed", "gemm") else dense
    stored = stored.astype(np.float16) if way == "cast" else stored
    found = measured(tmp_path, nodes, {"x": (3, k)}, [values("w", np.ascontiguousarray(stored))])
    assert (found.macs, found.two_four) == (3 * k * n, 3 * k * n // 2)
    assert found.unstructured == 3 * int((dense != 0).sum())
    broken = np.ascontiguousarray(stored).copy()
    broken[...] = np.where(np.arange(broken.size).reshape(broken.shape) < 8, 1, broken)
    found = measured(tmp_path, nodes, {"x": (3, k)}, [values("w", broken)])
    assert found.two_four == found.macs


@pytest.mark.req("R20")
def test_a_quantised_zero_is_the_zero_point(tmp_path):
    q = RNG.integers(0, 6, (8, 4, 1, 1)).astype(np.uint8)
    stored = [values("q", q), values("s", 0.1, np.float32), values("z", 3, np.uint8)]
    nodes = [("DequantizeLinear", "q s z", "w"), ("Conv", "x w", "y")]
    found = measured(tmp_path, nodes, {"x": (1, 4, 2, 2)}, stored)
    assert found.unstructured == 4 * int((q != 3).sum())
    points = RNG.integers(0, 6, 8).astype(np.uint8)
    stored = [values("q", q), values("s", np.full(8, 0.1, np.float32)), values("z", points)]
    nodes[0] = ("DequantizeLinear", "q s z", "w", {"axis": 0})
    found = measured(tmp_path, nodes, {"x": (1, 4, 2, 2)}, stored)
    assert found.unstructured == 4 * int((q != points.reshape(8, 1, 1, 1)).sum())


@pytest.mark.req("R20")
def test_packed_four_bit_weights(tmp_path):
    q = RNG.integers(0, 16, (6, 64)).astype(np.uint8)
    packed = (q[:, 0::2] | q[:, 1::2] << 4).reshape(6, 2, 16)
    nodes = [("MatMulNBits", "x w s", "y", {"K": 64, "N": 6, "bits": 4, "block_size": 32}, MS)]
    stored = [values("w", packed), values("s", np.ones(12, np.float32))]
    found = measured(tmp_path, nodes, {"x": (5, 64)}, stored)
    assert found.unstructured == 5 * int((q != 8).sum())
    points = RNG.integers(0, 16, (6, 2)).astype(np.uint8)
    nodes[0] = ("MatMulNBits", "x w s z", *nodes[0][2:])
    stored.append(values("z", (points[:, 0] | points[:, 1] << 4).astype(np.uint8)))
    found = measured(tmp_path, nodes, {"x": (5, 64)}, stored)
    assert found.unstructured == 5 * int((q != np.repeat(points, 32, axis=1)).sum())


@pytest.mark.req("R20")
def test_recurrent_weights_and_products_of_activations(tmp_path):
    w, r = sparse((1, 16, 3), 0.5), sparse((1, 16, 4), 0.5)
    nodes = [("LSTM", "x w r", "y", {"hidden_size": 4})]
    found = measured(tmp_path, nodes, {"x": (7, 2, 3)}, [values("w", w), values("r", r)])
    assert found.unstructured == 14 * int((w != 0).sum() + (r != 0).sum())
    found = measured(tmp_path, [("MatMul", "a b", "y")], {"a": (2, 3), "b": (3, 4)}, [])
    assert found.macs == found.unstructured == found.structured == 24
    assert found.ops == ()


@pytest.mark.shared
@pytest.mark.req("R20")
def test_a_tflite_model_is_read(shared):
    path = shared / "data" / "mlperf_tiny" / "kws_ref_model.tflite"
    graph = load(path).graph
    found = effective(graph, cost_of(graph), graph, open_weights(path))
    assert found.macs == 2656768
    assert found.unread == ()
    assert 0 < found.unstructured <= found.macs


def test_files_without_weights_are_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        open_weights(tmp_path / "m.pf")


@pytest.mark.req("R20")
def test_a_weight_that_does_not_fit_its_layer_is_named(tmp_path):
    graph = parse_graph(
        "peakfold-graph 1\ninput x: float32[1,4,2,2]\nparameter w: float32[8,4,1,1]\n"
        "y: float32[1,8,2,2] = conv(x, w)\noutput y"
    )
    found = effective(graph, cost_of(graph), graph, lambda name: np.ones(3, np.float32))
    assert (found.unread, found.unstructured) == (("y",), found.macs)
