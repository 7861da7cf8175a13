"""Small .tflite models made with the schema's own objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from peakfold.runtimes.tflite.schema import classes, pack_model

TYPES = {
    "FLOAT32": np.float32,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "FLOAT16": np.float16,
}


class Build:
    """One subgraph after another, tensors and operators in the order they are added."""

    def __init__(self) -> None:
        schema = classes()
        self.schema = schema
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes, self.model.subgraphs = [], []
        self.model.buffers = [schema.BufferT()]
        self.model.description = b"made by a test"
        self.model.metadata = None
        self.codes: dict[tuple[str, str], int] = {}
        self.subgraph()

    def subgraph(self) -> int:
        graph = self.schema.SubGraphT()
        graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [], []
        self.model.subgraphs.append(graph)
        self.graph = graph
        return len(self.model.subgraphs) - 1

    def tensor(
        self,
        kind: str,
        dims: tuple[int, ...],
        data: Any = None,
        *,
        name: str = "",
        scale: Any = None,
        zero: int = 0,
        variable: bool = False,
        axis: int = 0,
    ) -> int:
        tensor = self.schema.TensorT()
        tensor.type = getattr(self.schema.TensorType, kind)
        tensor.shape = list(dims)
        tensor.hasRank = not dims  # a scalar, and not a tensor of unknown shape
        tensor.name = (name or f"t{len(self.graph.tensors)}").encode()
        tensor.isVariable = variable
        tensor.buffer = 0
        scale = scale if scale is not None else (0.05 if kind in ("INT8", "UINT8") else None)
        if kind == "INT16" and scale is None:
            scale = 0.001
        if scale is not None:
            quantization = self.schema.QuantizationParametersT()
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            quantization.scale = list(map(float, scales))
            quantization.zeroPoint = [zero] * len(scales)
            quantization.quantizedDimension = axis
            tensor.quantization = quantization
        if data is not None:
            buffer = self.schema.BufferT()
            raw = np.ascontiguousarray(data).tobytes()
            buffer.data = np.frombuffer(raw, np.uint8)
            tensor.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def op(
        self, name: str, inputs: list[int], outputs: list[int], options: str = "", **fields: Any
    ) -> int:
        schema = self.schema
        number = getattr(schema.BuiltinOperator, name, None)
        key = (name, "")
        if key not in self.codes:
            code = schema.OperatorCodeT()
            code.builtinCode = schema.BuiltinOperator.CUSTOM if number is None else number
            code.deprecatedBuiltinCode = min(code.builtinCode, 127)
            code.customCode = name.encode() if number is None else None
            code.version = 1
            self.codes[key] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(code)
        op = schema.OperatorT()
        op.opcodeIndex = self.codes[key]
        op.inputs, op.outputs = inputs, outputs
        op.builtinOptionsType = 0
        if options:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            op.builtinOptions = getattr(schema, f"{options}T")()
            for field, value in fields.items():
                setattr(op.builtinOptions, field, value)
        self.graph.operators.append(op)
        return len(self.graph.operators) - 1

    def ends(self, inputs: list[int], outputs: list[int]) -> Build:
        self.graph.inputs, self.graph.outputs = inputs, outputs
        return self

    def bytes(self) -> bytes:
        return pack_model(self.model)


def chain(kinds: list[str], dims: tuple[int, ...] = (1, 8, 8, 4)) -> Build:
    """A model of unary float operators in a row."""
    made = Build()
    last = first = made.tensor("FLOAT32", dims)
    for kind in kinds:
        out = made.tensor("FLOAT32", dims)
        made.op(kind, [last], [out])
        last = out
    return made.ends([first], [last])
