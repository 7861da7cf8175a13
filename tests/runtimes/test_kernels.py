"""Our kernels against onnx's reference implementation, on small shapes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.helper import get_attribute_value
from onnx.reference import ReferenceEvaluator

from peakfold.frontends.onnx.names import onnx_kind
from peakfold.runtimes.reference.elementwise import elementwise
from peakfold.runtimes.reference.kernels import Kernel, plain_kernel

from .helpers import floats

F32 = np.float32


def node_of(op: str, count: int, **attrs: object) -> onnx.NodeProto:
    return helper.make_node(op, [f"i{n}" for n in range(count)], ["y"], **attrs)


def ours(node: onnx.NodeProto, opset: int = 17) -> Kernel | None:
    attrs = {a.name: get_attribute_value(a) for a in node.attribute}
    kind = onnx_kind(node.op_type, node.domain)
    return elementwise(kind, attrs, len(node.input), True) or plain_kernel(kind, attrs, opset, True)


def theirs(node: onnx.NodeProto, args: list[np.ndarray], opset: int = 17) -> np.ndarray:
    empty = helper.make_empty_tensor_value_info
    graph = helper.make_graph([node], "g", [empty(n) for n in node.input], [empty("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return ReferenceEvaluator(model).run(None, dict(zip(node.input, args, strict=True)))[0]


CASES = {
    "conv": ("Conv", [(2, 3, 7, 6), (4, 3, 3, 3)], {}),
    "conv bias": ("Conv", [(1, 3, 7, 6), (4, 3, 3, 3), (4,)], {"pads": [1, 1, 1, 1]}),
    "conv 1x1": ("Conv", [(2, 3, 5, 4), (4, 3, 1, 1), (4,)], {}),
    "conv 1x1 strided": ("Conv", [(1, 3, 5, 4), (4, 3, 1, 1)], {"strides": [2, 2]}),
    "conv uneven": (
        "Conv", [(1, 2, 9, 8), (3, 2, 3, 2)],
        {"strides": [2, 1], "dilations": [2, 3], "pads": [0, 1, 2, 3]},
    ),
    "conv groups": ("Conv", [(2, 4, 6, 6), (6, 2, 3, 3), (6,)], {"group": 2}),
    "conv depthwise": ("Conv", [(1, 4, 6, 6), (4, 1, 3, 3)], {"group": 4, "pads": [1] * 4}),
    "conv same upper": (
        "Conv", [(1, 2, 7, 8), (3, 2, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    "conv valid": ("Conv", [(1, 2, 7, 8), (3, 2, 3, 3)], {"auto_pad": "VALID"}),
    "conv 1d": ("Conv", [(2, 3, 9), (4, 3, 4)], {"strides": [3], "pads": [2, 0]}),
    "conv 3d": ("Conv", [(1, 2, 4, 5, 6), (3, 2, 2, 3, 2)], {"pads": [1, 0, 1, 0, 1, 1]}),
    "conv transpose": ("ConvTranspose", [(1, 3, 4, 5), (3, 2, 2, 2)], {"strides": [2, 2]}),
    "conv transpose bias": (
        "ConvTranspose", [(1, 3, 4, 5), (3, 2, 3, 3), (2,)],
        {"strides": [2, 1], "pads": [1, 0, 1, 1], "output_padding": [1, 0]},
    ),
    "conv transpose dilated": (
        "ConvTranspose", [(1, 2, 3, 3), (2, 2, 2, 2)], {"dilations": [2, 2]},
    ),
    "max pool": ("MaxPool", [(2, 3, 7, 6)], {"kernel_shape": [3, 2], "strides": [2, 2]}),
    "max pool padded": (
        "MaxPool", [(1, 3, 7, 6)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "max pool ceil": (
        "MaxPool", [(1, 2, 6, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    "max pool 1d": ("MaxPool", [(1, 2, 9)], {"kernel_shape": [4], "strides": [3]}),
    "average pool": (
        "AveragePool", [(1, 3, 7, 6)], {"kernel_shape": [3, 2], "strides": [2, 1]},
    ),
    "average pool padded": (
        "AveragePool", [(1, 2, 6, 6)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "average pool padding counts": (
        "AveragePool", [(1, 2, 6, 6)],
        {"kernel_shape": [3, 3], "pads": [1, 0, 1, 1], "count_include_pad": 1},
    ),
    "average pool ceil": (
        "AveragePool", [(1, 2, 6, 7)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    # onnx 1.23's kernel counts channels by the batch size, so the two are equal here.
    "lrn": ("LRN", [(7, 7, 3, 4)], {"size": 5, "alpha": 0.1, "beta": 0.6, "bias": 1.5}),
    "lrn even": ("LRN", [(6, 6, 3, 3)], {"size": 4}),
    "relu": ("Relu", [(3, 4)], {}),
    "neg": ("Neg", [(3, 4)], {}),
    "abs": ("Abs", [(3, 4)], {}),
    "add": ("Add", [(3, 1, 4), (5, 1)], {}),
    "sub": ("Sub", [(3, 4), (4,)], {}),
    "mul": ("Mul", [(4,), (3, 4)], {}),
    "div": ("Div", [(3, 4), (3, 1)], {}),
    "sum": ("Sum", [(3, 4), (3, 4)], {}),
    "clip": ("Clip", [(3, 4), (), ()], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_of_our_own_computes_what_onnx_says(name: str) -> None:
    op, shapes, attrs = CASES[name]
    args = [floats(*shape, seed=n) for n, shape in enumerate(shapes)]
    if op == "Clip":
        args[1:] = [F32(-0.5), F32(0.7)]
    node = node_of(op, len(args), **attrs)
    kernel = ours(node)
    assert kernel is not None
    got, want = kernel.run(args)[0], theirs(node, args)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    if kernel.into is not None:
        out = np.full_like(got, np.nan)
        kernel.into(args, out)
        assert out.tobytes() == got.tobytes()


def test_batch_normalisation() -> None:
    args = [floats(2, 3, 4, 5), *(np.abs(floats(3, seed=n)) + F32(0.1) for n in range(1, 5))]
    node = node_of("BatchNormalization", 5, epsilon=0.01)
    kernel = ours(node)
    assert kernel is not None
    np.testing.assert_allclose(kernel.run(args)[0], theirs(node, args), rtol=1e-5, atol=1e-5)
    training = node_of("BatchNormalization", 5, training_mode=1)
    assert ours(training) is None  # statistics are results there


@pytest.mark.parametrize("axis", [None, 1, 2, -1])
def test_softmax_before_opset_13_takes_the_axes_behind_as_one(axis: int | None) -> None:
    x = floats(2, 3, 4)
    node = node_of("Softmax", 1, **({} if axis is None else {"axis": axis}))
    kernel = ours(node, opset=9)
    assert kernel is not None
    flat = x.reshape(int(np.prod(x.shape[: 1 if axis is None else axis % 3])), -1)
    powers = np.exp(flat.astype(np.float64))
    want = (powers / powers.sum(axis=1, keepdims=True)).reshape(x.shape)
    np.testing.assert_allclose(kernel.run([x])[0], want, rtol=1e-5)
    assert ours(node, opset=13) is None


@pytest.mark.parametrize("factors", [(1, 1, 2, 3), (1, 1, 2.5, 1), (1, 1, 0.5, 2)])
def test_nearest_repeats_pixels(factors: tuple[float, ...]) -> None:
    x = floats(1, 2, 4, 6)
    node = helper.make_node(
        "Resize",
        ["i0", "", "i2"],
        ["y"],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    scales = np.array(factors, F32)
    kernel = ours(node)
    assert kernel is not None
    empty = helper.make_empty_tensor_value_info
    graph = helper.make_graph([node], "g", [empty("i0"), empty("i2")], [empty("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    want = ReferenceEvaluator(model).run(None, {"i0": x, "i2": scales})[0]
    np.testing.assert_array_equal(kernel.run([x, None, scales])[0], want)


def test_what_our_kernels_do_not_cover_is_left_to_onnx() -> None:
    assert ours(node_of("Resize", 1, mode="linear")) is None
    assert ours(node_of("ConvTranspose", 2, auto_pad="SAME_UPPER")) is None
    assert plain_kernel("conv", {}, 17, floating=False) is None
    assert elementwise("div", {}, 2, floating=False) is None
    assert elementwise("sum", {}, 3, floating=True) is None
    assert elementwise("exp", {}, 1, floating=True) is None
