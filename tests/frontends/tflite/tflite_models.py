"""Small `.tflite` models written for tests with the schema's object API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from peakfold.frontends.tflite.schema import schema

TYPES = {
    "float32": 0,
    "float16": 1,
    "int32": 2,
    "uint8": 3,
    "int64": 4,
    "bool": 6,
    "int16": 7,
    "int8": 9,
    "complex64": 8,
    "resource": 13,
    "int4": 17,
}


@dataclass
class Builder:
    """A model under construction; subgraph 0 is the first that `graph` makes."""

    model: Any = field(default_factory=lambda: schema().ModelT())

    def __post_init__(self) -> None:
        self.model.version, self.model.description = 3, "test"
        self.model.buffers = [schema().BufferT()]
        self.model.operatorCodes, self.model.subgraphs = [], []

    def graph(self, name: str = "main") -> GraphBuilder:
        made = schema().SubGraphT()
        made.name, made.tensors, made.operators, made.inputs, made.outputs = name, [], [], [], []
        self.model.subgraphs.append(made)
        return GraphBuilder(self, made)

    def code(self, name: str, custom: str = "") -> int:
        made = schema().OperatorCodeT()
        number = getattr(schema().BuiltinOperator, name)
        made.builtinCode, made.deprecatedBuiltinCode = number, min(number, 127)
        made.version = 2 if name == "BROADCAST_TO" else 1  # it never had a version 1
        made.customCode = custom or None
        self.model.operatorCodes.append(made)
        return len(self.model.operatorCodes) - 1

    def data(self) -> bytes:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


@dataclass
class GraphBuilder:
    """One subgraph under construction."""

    owner: Builder
    graph: Any

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        name: str | None = None,
        *,
        value: Any = None,
        variable: bool = False,
        signature: Sequence[int] | None = None,
        has_rank: bool = True,
        buffer: int | None = None,
    ) -> int:
        made = schema().TensorT()
        made.shape, made.type, made.hasRank = list(shape), TYPES[dtype], has_rank
        made.name = f"t{len(self.graph.tensors)}" if name is None else name
        made.isVariable = variable
        made.shapeSignature = None if signature is None else list(signature)
        made.buffer = 0
        if buffer is not None:
            made.buffer = buffer
        elif value is not None:
            stored = schema().BufferT()
            stored.data = list(np.ascontiguousarray(value).tobytes())
            self.owner.model.buffers.append(stored)
            made.buffer = len(self.owner.model.buffers) - 1
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, value: Any, dtype: str, name: str | None = None) -> int:
        array = np.asarray(value, dtype)
        return self.tensor(array.shape, dtype, name, value=array)

    def input(self, shape: Sequence[int], dtype: str = "float32", **more: Any) -> int:
        self.graph.inputs.append(self.tensor(shape, dtype, **more))
        return self.graph.inputs[-1]

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        *,
        custom: str = "",
        **fields: Any,
    ) -> Any:
        made = schema().OperatorT()
        made.opcodeIndex = self.owner.code(name, custom)
        made.inputs, made.outputs = list(inputs), list(outputs)
        if options:
            record = getattr(schema(), options + "T")()
            for key, value in fields.items():
                assert key in vars(record), key
                setattr(record, key, value)
            second = hasattr(schema().BuiltinOptions2, options)
            union = schema().BuiltinOptions2 if second else schema().BuiltinOptions
            suffix = "2" if second else ""
            setattr(made, f"builtinOptions{suffix}Type", getattr(union, options))
            setattr(made, f"builtinOptions{suffix}", record)
        self.graph.operators.append(made)
        return made

    def outputs(self, *tensors: int) -> None:
        self.graph.outputs = list(tensors)
