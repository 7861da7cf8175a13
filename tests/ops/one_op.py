"""TFLite models of one operator, run by TensorFlow Lite Micro with its tensors put anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Value:
    """A tensor: `data` for a constant."""

    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None
    scale: float | tuple[float, ...] | None = None
    zero: int = 0
    axis: int = 0


@dataclass(frozen=True)
class OneOp:
    """One operator with one input that is no constant, and one output.

    Attributes:
        code: name in the schema's BuiltinOperator.
        options: name of the options table without ``Options``, or empty.
        fields: of the options.
    """

    code: str
    inputs: tuple[Value, ...]
    output: Value
    options: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    version: int = 1

    def model(self, offsets: tuple[int, int] | None) -> bytes:
        """The file, with the input and the output at these offsets, or wherever they go."""
        import flatbuffers
        from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

        values = (*self.inputs, self.output)
        model, graph, op = schema.ModelT(), schema.SubGraphT(), schema.OperatorT()
        model.buffers = [schema.BufferT()]
        graph.tensors = [self._tensor(schema, model, at, v) for at, v in enumerate(values)]
        moving = [at for at, v in enumerate(values) if v.data is None]
        graph.inputs, graph.outputs = moving[:1], [len(values) - 1]
        op.inputs, op.outputs = list(range(len(self.inputs))), [len(values) - 1]
        if self.options:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, f"{self.options}Options")
            op.builtinOptions = getattr(schema, f"{self.options}OptionsT")()
            for name, value in self.fields.items():
                assert hasattr(op.builtinOptions, name), name
                setattr(op.builtinOptions, name, value)
        graph.operators = [op]
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, self.code)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), self.version
        model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
        if offsets is not None:
            places = [-1] * len(values)
            places[moving[0]], places[-1] = offsets
            note, buffer = schema.MetadataT(), schema.BufferT()
            note.name, note.buffer = b"OfflineMemoryAllocation", len(model.buffers)
            words = np.array([1, 1, len(values), *places], np.int32)
            buffer.data = list(words.tobytes())
            model.buffers.append(buffer)
            model.metadata = [note]
        builder = flatbuffers.Builder(4096)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def _tensor(self, schema: Any, model: Any, at: int, value: Value) -> Any:
        tensor = schema.TensorT()
        tensor.shape, tensor.name = list(value.shape), f"t{at}".encode()
        tensor.type = getattr(schema.TensorType, value.dtype.upper())
        if value.data is not None:
            buffer = schema.BufferT()
            buffer.data = np.ascontiguousarray(value.data).view(np.uint8).ravel()
            tensor.buffer = len(model.buffers)
            model.buffers.append(buffer)
        if value.scale is not None:
            scales = value.scale if isinstance(value.scale, tuple) else (value.scale,)
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = list(scales)
            tensor.quantization.zeroPoint = [value.zero] * len(scales)
            tensor.quantization.quantizedDimension = value.axis
        return tensor

    def run(self, feed: np.ndarray, offsets: tuple[int, int] | None, arena: int) -> np.ndarray:
        """The output of the real interpreter."""
        from tflite_micro import runtime

        model = runtime.Interpreter.from_bytes(self.model(offsets), arena_size=arena)
        model.set_input(feed, 0)
        model.invoke()
        return np.array(model.get_output(0))
