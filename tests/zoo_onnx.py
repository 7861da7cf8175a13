"""AlexNet and VGG-A as real ONNX files: weights come out of ConstantOfShape, so files are small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save


class _Network:
    def __init__(self, batch: int, side: int) -> None:
        self.nodes: list = []
        self.initializers: list = []
        self.last, self.channels, self.batch, self.side = "data", 3, batch, side

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.initializers)}"
        size = numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape")
        self.initializers.append(size)
        self.nodes.append(helper.make_node("ConstantOfShape", [size.name], [name], name=name))
        return name

    def add(self, op_type: str, *weights: str, **attrs: object) -> None:
        result = f"v{len(self.nodes)}"
        inputs = [self.last, *weights]
        self.nodes.append(helper.make_node(op_type, inputs, [result], name=result, **attrs))
        self.last = result

    def conv(self, filters: int, kernel: int, stride: int = 1, pad: int = 0) -> None:
        weights = self.weight(filters, self.channels, kernel, kernel), self.weight(filters)
        self.add("Conv", *weights, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        self.channels = filters
        self.add("Relu")

    def pool(self, kernel: int, stride: int, ceil: int = 0) -> None:
        self.add("MaxPool", kernel_shape=[kernel] * 2, strides=[stride] * 2, ceil_mode=ceil)

    def classifier(self, features: int) -> None:
        self.add("Flatten")
        for wide in (4096, 4096):
            self.add("Gemm", self.weight(features, wide), self.weight(wide))
            self.add("Relu")
            self.add("Dropout")
            features = wide
        self.add("Gemm", self.weight(features, 1000), self.weight(1000))
        self.add("Softmax", axis=1)

    def write(self, path: Path) -> Path:
        image = [self.batch, 3, self.side, self.side]
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("data", TensorProto.FLOAT, image)],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, [self.batch, 1000])],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        save(model, str(path))
        return path


def write_alexnet(path: Path, batch: int = 64) -> Path:
    """The network of the MXNet paper's memory chart."""
    net = _Network(batch, 224)
    for filters, kernel, stride, pad, pool, norm in (
        (96, 11, 4, 0, True, True),
        (256, 5, 1, 2, True, True),
        (384, 3, 1, 1, False, False),
        (384, 3, 1, 1, False, False),
        (256, 3, 1, 1, True, False),
    ):
        net.conv(filters, kernel, stride, pad)
        if pool:
            net.pool(3, 2, ceil=1)
        if norm:
            net.add("LRN", size=5)
    net.classifier(256 * 6 * 6)
    return net.write(path)


def write_vgg_a(path: Path, batch: int = 64) -> Path:
    """VGG with 11 layers."""
    net = _Network(batch, 224)
    for filters, repeats in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(repeats):
            net.conv(filters, 3, 1, 1)
        net.pool(2, 2)
    net.classifier(512 * 7 * 7)
    return net.write(path)
