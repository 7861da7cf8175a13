"""Write `keywords.tflite`, a bundled model: depthwise-separable convolutions that spot keywords.

    python tools/demo_models.py

The shape of the network is that of "Hello Edge" (arXiv 1711.07128), DS-CNN small; int8. Its
weights are random, since only sizes matter here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np

from peakfold.frontends.tflite.schema import schema

HOME = Path(__file__).parents[1] / "src" / "peakfold" / "data" / "models"
INT8, INT32 = 9, 2
SAME = 0


@dataclass
class Net:
    """A model of one subgraph under construction."""

    model: Any = field(default_factory=lambda: schema().ModelT())
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        graph = schema().SubGraphT()
        graph.name, graph.tensors, graph.operators = "main", [], []
        self.model.version, self.model.description = 3, "keyword spotting, random weights"
        self.model.buffers, self.model.operatorCodes = [schema().BufferT()], []
        self.model.subgraphs, self.graph = [graph], graph

    def tensor(
        self,
        name: str,
        shape: list[int],
        scale: float,
        value: Any = None,
        zero: int = 0,
        kind: int = INT8,
    ) -> int:
        made, quantised = schema().TensorT(), schema().QuantizationParametersT()
        quantised.scale, quantised.zeroPoint = [scale], [zero]
        made.name, made.shape, made.type, made.quantization = name, shape, kind, quantised
        made.buffer = 0
        if value is not None:
            stored = schema().BufferT()
            stored.data = np.frombuffer(value.tobytes(), np.uint8)
            self.model.buffers.append(stored)
            made.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def op(self, kind: str, given: list[int], made: int, options: Any = None) -> int:
        number = getattr(schema().BuiltinOperator, kind)
        known = [code.builtinCode for code in self.model.operatorCodes]
        if number not in known:
            code = schema().OperatorCodeT()
            code.builtinCode, code.deprecatedBuiltinCode, code.version = number, number, 1
            self.model.operatorCodes.append(code)
        op = schema().OperatorT()
        op.opcodeIndex = [code.builtinCode for code in self.model.operatorCodes].index(number)
        op.inputs, op.outputs, op.builtinOptions = given, [made], options
        if options is not None:
            name = type(options).__name__.removesuffix("T")
            op.builtinOptionsType = getattr(schema().BuiltinOptions, name)
        self.graph.operators.append(op)
        return made

    def weights(self, name: str, shape: list[int], count: int) -> list[int]:
        values = self.random.integers(-127, 128, shape, np.int8)
        bias = self.random.integers(-500, 500, count, np.int32)
        return [
            self.tensor(name, shape, 0.01, values),
            self.tensor(f"{name}_bias", [count], 0.001, bias, kind=INT32),
        ]

    def conv(self, x: int, name: str, size: list[int], count: int, stride: int = 1) -> int:
        _, rows, columns, given = self.graph.tensors[x].shape
        options = schema().Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME, stride, stride
        options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = schema().ActivationFunctionType.RELU
        shape = [1, -(-rows // stride), -(-columns // stride), count]
        made = self.tensor(f"{name}_out", shape, 0.1)
        return self.op(
            "CONV_2D", [x, *self.weights(name, [count, *size, given], count)], made, options
        )

    def depthwise(self, x: int, name: str) -> int:
        shape = list(self.graph.tensors[x].shape)
        options = schema().DepthwiseConv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME, 1, 1
        options.depthMultiplier = options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = schema().ActivationFunctionType.RELU
        made = self.tensor(f"{name}_out", shape, 0.1)
        return self.op(
            "DEPTHWISE_CONV_2D",
            [x, *self.weights(name, [1, 3, 3, shape[3]], shape[3])],
            made,
            options,
        )


def keywords() -> bytes:
    net = Net()
    start = net.tensor("sound", [1, 49, 10, 1], 0.1)
    x = net.conv(start, "conv", [10, 4], 64, 2)
    for at in range(4):
        x = net.conv(net.depthwise(x, f"depth{at}"), f"point{at}", [1, 1], 64)
    pool = schema().Pool2DOptionsT()
    _, pool.filterHeight, pool.filterWidth, _ = net.graph.tensors[x].shape
    pool.padding, pool.strideH, pool.strideW = 1, 1, 1
    x = net.op("AVERAGE_POOL_2D", [x], net.tensor("mean", [1, 1, 1, 64], 0.1), pool)
    full = net.weights("dense", [12, 64], 12)
    x = net.op(
        "FULLY_CONNECTED",
        [x, *full],
        net.tensor("logits", [1, 12], 0.1),
        schema().FullyConnectedOptionsT(),
    )
    soft = schema().SoftmaxOptionsT()
    soft.beta = 1.0
    x = net.op("SOFTMAX", [x], net.tensor("words", [1, 12], 1 / 256, zero=-128), soft)
    net.graph.inputs, net.graph.outputs = [start], [x]
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(net.model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


if __name__ == "__main__":
    (HOME / "keywords.tflite").write_bytes(keywords())
