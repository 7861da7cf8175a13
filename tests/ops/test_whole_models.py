"""Rows on whole models: published totals, and every node of the models that onnx carries."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, shape_inference

from peakfold.ir.graph import Tensor
from peakfold.ir.types import OPAQUE
from peakfold.ops import VALUE_INPUTS, Context, lookup

from .bridge import attributes, ctx_of, dtype_of, plain
from .bridge import onnx_kind as kind_of

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


class Net:
    """Adds up parameters and multiply-accumulates of a chain of layers, batch 1."""

    def __init__(self, channels: int, size: int) -> None:
        self.shape = (1, channels, size, size)
        self.params = self.macs = 0

    def layer(self, kind, *weights, **attrs) -> Net:
        ctx = ctx_of(kind, [self.shape, *weights], **attrs)
        self.macs += lookup(kind).macs(ctx)
        self.params += sum(int(np.prod(w)) for w in weights)
        self.shape = ctx.out_shape()
        return self

    def conv(self, out, k, stride=1, pad=None, *, group=1, bias=False, norm=True) -> Net:
        pad = k // 2 if pad is None else pad
        weights = [(out, self.shape[1] // group, k, k), *([(out,)] if bias else [])]
        self.params += 2 * out if norm else 0
        return self.layer("conv", *weights, strides=(stride,) * 2, pads=(pad,) * 4, group=group)

    def pool(self, k, stride, pad=0) -> Net:
        return self.layer("max_pool", kernel_shape=(k, k), strides=(stride,) * 2, pads=(pad,) * 4)

    def dense(self, out) -> Net:
        if len(self.shape) == 4:
            self.layer("flatten")
        return self.layer("gemm", (out, self.shape[1]), (out,), transB=1)


def vgg(plan) -> Net:
    net = Net(3, 224)
    for width in plan:
        net = net.pool(2, 2) if width == 0 else net.conv(width, 3, bias=True, norm=False)
    return net.dense(4096).dense(4096).dense(1000)


def alexnet() -> Net:
    net = Net(3, 224)
    for out, k, stride, pad, pooled in (
        (64, 11, 4, 2, 1),
        (192, 5, 1, 2, 1),
        (384, 3, 1, 1, 0),
        (256, 3, 1, 1, 0),
        (256, 3, 1, 1, 1),
    ):
        net.conv(out, k, stride, pad, bias=True, norm=False)
        if pooled:
            net.pool(3, 2)
    return net.dense(4096).dense(4096).dense(1000)


def mobilenet_v1() -> Net:
    net = Net(3, 224).conv(32, 3, 2)
    for out, stride in (
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ):
        net.conv(net.shape[1], 3, stride, group=net.shape[1]).conv(out, 1)
    return net.layer("global_average_pool").dense(1000)


def mobilenet_v2() -> Net:
    net = Net(3, 224).conv(32, 3, 2)
    for t, c, n, s in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for at in range(n):
            wide = net.shape[1] * t
            if t != 1:
                net.conv(wide, 1)
            net.conv(wide, 3, s if at == 0 else 1, group=wide).conv(c, 1)
    return net.conv(1280, 1).layer("global_average_pool").dense(1000)


def resnet_50() -> Net:
    net = Net(3, 224).conv(64, 7, 2).pool(3, 2, 1)
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for at in range(blocks):
            step, entry = (stride if at == 0 else 1), net.shape
            net.conv(width, 1).conv(width, 3, step).conv(4 * width, 1)
            if at == 0:  # the projection of the shortcut
                result, net.shape = net.shape, entry
                net.conv(4 * width, 1, step)
                assert net.shape == result
    return net.layer("global_average_pool").dense(1000)


VGG_11 = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
VGG_16 = (64, 64, 0, 128, 128, 0, *[256] * 3, 0, *[512] * 3, 0, *[512] * 3, 0)


@pytest.mark.req("R70", "R66")
@pytest.mark.parametrize(
    ("net", "params", "macs"),
    [
        (vgg(VGG_16), 138_357_544, 15_470_264_320),
        (vgg(VGG_11), 132_863_336, 7_609_090_048),
        (alexnet(), 61_100_840, 714_188_480),
        (resnet_50(), 25_557_032, 4_089_184_256),
        (mobilenet_v2(), 3_504_872, 300_774_272),
        (mobilenet_v1(), 4_231_976, 568_740_352),
    ],
    ids=["vgg16", "vgg11", "alexnet", "resnet50", "mobilenet_v2", "mobilenet_v1"],
)
def test_published_networks(net, params, macs):
    assert (net.params, net.macs) == (params, macs)


def declared(model: onnx.ModelProto) -> dict[str, Tensor]:
    graph = model.graph
    found = {}
    for info in [*graph.value_info, *graph.input, *graph.output]:
        kind = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
            continue
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim]
        if all(isinstance(d, int) or d for d in dims):
            found[info.name] = Tensor(info.name, dtype_of(kind.elem_type), tuple(dims))
    for stored in graph.initializer:
        shape = tuple(stored.dims)
        found[stored.name] = Tensor(stored.name, dtype_of(stored.data_type), shape)
    return found


def judge(model: onnx.ModelProto, seen: Counter, wrong: list[str], label: str) -> None:
    model = shape_inference.infer_shapes(model, data_prop=True)
    tensors = declared(model)
    values = {
        t.name: t
        for t in model.graph.initializer
        if t.data_location != onnx.TensorProto.EXTERNAL and np.prod(t.dims) < 64
    }
    for node in model.graph.node:
        if node.op_type == "Constant":
            found = [a.t for a in node.attribute if a.name == "value"]
            values |= dict(zip(node.output, found, strict=False))
        if not all(name in tensors or not name for name in node.input):
            continue
        attrs, kind = attributes(node), kind_of(node.op_type, node.domain)
        for at, name in VALUE_INPUTS.get(kind, {}).items():
            stored = values.get(node.input[at]) if at < len(node.input) else None
            if stored is not None:
                attrs[name] = plain(numpy_helper.to_array(stored))
        compare(node, kind, attrs, tensors, seen, wrong, label)


def compare(node, kind, attrs, tensors, seen, wrong, label) -> None:
    from peakfold.ir.graph import Op

    op = Op(node.name, kind, tuple(node.input), tuple(node.output), attrs)
    ctx = Context(op, tuple(tensors.get(n) for n in node.input), ())
    rule = lookup(kind).shape
    for name, told in zip(node.output, (rule(ctx) if rule else None) or (), strict=False):
        if told is None or name not in tensors or tensors[name].dtype is OPAQUE:
            seen["silent"] += 1
            continue
        expected = (tensors[name].dtype, tensors[name].shape)
        if any(isinstance(d, str) for d in expected[1]):
            seen["symbolic"] += 1  # onnx makes up names of its own
            continue
        seen["equal" if told == expected else "wrong"] += 1
        if told != expected:
            wrong.append(f"{label}: {node.name} {kind}: told {told}, onnx {expected}")


@pytest.mark.req("R13")
def test_every_node_of_the_carried_models_agrees_with_onnx():
    seen, wrong = Counter(), []
    for file in sorted(DATA.rglob("*.onnx")):
        judge(onnx.load(file), seen, wrong, file.parent.name)
    assert not wrong, "\n".join(wrong[:20])
    print(dict(seen))
    assert seen["equal"] > 2500, seen


@pytest.mark.shared
@pytest.mark.req("R13")
def test_every_node_of_the_shared_models_agrees_with_onnx(shared_models):
    seen, wrong = Counter(), []
    for file in shared_models:
        judge(onnx.load(file, load_external_data=False), seen, wrong, file.name)
    assert not wrong, "\n".join(wrong[:20])
    print(dict(seen))
    assert seen["equal"] > 3000, seen
