"""A .tflite file as objects of the schema, and the few facts every module here asks of them.

The classes are generated from TensorFlow's schema and come with the package `tflite-micro`.
Objects are mutable; functions of this package never change a model they were given.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peakfold.boundary import read_file
from peakfold.errors import ModelError
from peakfold.frontends.tflite.file import parse_tflite
from peakfold.frontends.tflite.schema import names_of, schema

Model = Any
"""`ModelT` of the generated classes."""
OFFLINE = "OfflineMemoryAllocation"
IDENTIFIER = b"TFL3"
MAX_BYTES = 2**31 - 1
"""Of a flatbuffer: its references have 31 bits."""


def classes() -> Any:
    """The generated classes, without the interpreter that lies in the same package.

    Raises:
        BackendMissing: the package is not installed.
    """
    return schema()


def parse_model(data: bytes, where: str = "model") -> Model:
    """Objects of a file's bytes.

    Raises:
        ModelError: it is no .tflite file.
        BackendMissing: there is no schema to read it with.
    """
    try:
        parse_tflite(memoryview(data))  # bounds and references
        model = schema().ModelT.InitFromObj(schema().Model.GetRootAs(data, 0))
    except ModelError as error:
        raise ModelError(error.what, where=error.where or where, hint=error.hint) from None
    except Exception as error:  # the generated classes raise what struct and numpy raise
        raise ModelError(f"broken file: {type(error).__name__}", where=where) from None
    if not model.subgraphs or model.operatorCodes is None:
        raise ModelError("the file has no graph", where=where)
    return model


def read_model(path: Path) -> bytes:
    """The bytes of a file, of the size that a flatbuffer has at most.

    Raises:
        UsageError: it cannot be read.
        ModelError: it is larger.
    """
    return read_file(path, MAX_BYTES, "a .tflite model without outside data")


def pack_model(model: Model) -> bytes:
    """The bytes of a file; constants start at multiples of 16, as the schema demands.

    Raises:
        ModelError: it would not fit the 2 GiB a flatbuffer can hold.
    """
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    kept = model.buffers
    try:
        model.buffers = [_AlignedBuffer(buffer) for buffer in kept or ()]
        builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    except flatbuffers.builder.BuilderSizeError as error:
        raise ModelError(f"the new file is too large: {error}") from None
    finally:
        model.buffers = kept
    return bytes(builder.Output())


class _AlignedBuffer:
    """A buffer that packs itself with its data at a multiple of 16 bytes."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def Pack(self, builder: Any) -> int:
        data = self.buffer.data
        vector = None
        if data is not None and not isinstance(data, int):
            raw = np.asarray(data, dtype=np.uint8).tobytes()
            builder.StartVector(1, len(raw), 16)
            builder.head -= len(raw)
            builder.Bytes[builder.head : builder.head + len(raw)] = raw
            vector = builder.EndVector()
        schema().BufferStart(builder)
        if vector is not None:
            schema().BufferAddData(builder, vector)
        return int(schema().BufferEnd(builder))


def operator_code(model: Model, op: Any) -> int:
    """Number of the builtin operator; the older field is the wider one for small numbers."""
    code = model.operatorCodes[op.opcodeIndex]
    return max(int(code.builtinCode), int(code.deprecatedBuiltinCode))


def operator_name(model: Model, op: Any) -> str:
    """``CONV_2D``, or the name of a custom operator.

    Example:
        >>> class Code: builtinCode, deprecatedBuiltinCode, customCode = 3, 3, None
        >>> class Model: operatorCodes = [Code]
        >>> class Op: opcodeIndex = 0
        >>> operator_name(Model, Op)
        'CONV_2D'
    """
    number = operator_code(model, op)
    if number == classes().BuiltinOperator.CUSTOM:
        custom = model.operatorCodes[op.opcodeIndex].customCode
        return custom.decode("utf-8", "replace") if custom else "CUSTOM"
    return names_of("BuiltinOperator").get(number, f"BUILTIN_{number}")


# Bytes of an element in the interpreter's memory, by number of the schema's TensorType.
# It unpacks sub-byte elements in the arena: an int4 takes a byte there.
_WIDTHS = {
    "FLOAT32": 4, "FLOAT16": 2, "BFLOAT16": 2, "FLOAT64": 8, "INT8": 1, "UINT8": 1, "INT16": 2,
    "UINT16": 2, "INT32": 4, "UINT32": 4, "INT64": 8, "UINT64": 8, "BOOL": 1, "COMPLEX64": 8,
    "COMPLEX128": 16, "RESOURCE": 4, "INT4": 1,
}  # fmt: skip


def type_names() -> dict[int, str]:
    """Names of the schema's element types by number."""
    return names_of("TensorType")


def dims(tensor: Any) -> tuple[int, ...]:
    """The shape; a scalar has none."""
    shape = tensor.shape
    return () if shape is None or isinstance(shape, int) else tuple(int(n) for n in shape)


def elements(tensor: Any) -> int:
    """Number of elements; a dimension left open counts as the file states it."""
    count = 1
    for dim in dims(tensor):
        count *= dim
    return count


def tensor_width(tensor: Any) -> int | None:
    """Bytes of an element in the arena, or `None` for a type the interpreter cannot hold."""
    return _WIDTHS.get(type_names().get(int(tensor.type), ""))


def tensor_bytes(tensor: Any) -> int | None:
    """Bytes in the arena, or `None` for a type the interpreter cannot hold."""
    width = tensor_width(tensor)
    return None if width is None else elements(tensor) * width


def scales(tensor: Any) -> int:
    """How many scales a tensor is quantised with, as kernels see it: none without zero points."""
    found = tensor.quantization
    if found is None or found.scale is None or found.zeroPoint is None:
        return 0
    return len(found.scale) if len(found.zeroPoint) else 0


def has_data(model: Model, tensor: Any) -> bool:
    """Whether the file holds the value, so that it needs no memory."""
    buffer = model.buffers[tensor.buffer]
    data = buffer.data
    if data is None or isinstance(data, int):
        return bool(getattr(buffer, "offset", 0) > 1)
    return len(data) > 0


def indices(values: Any) -> tuple[int, ...]:
    """A vector of indices that may be absent."""
    return () if values is None or isinstance(values, int) else tuple(int(n) for n in values)


def called_subgraphs(model: Model, op: Any) -> tuple[int, ...]:
    """Subgraphs that an operator runs, in the interpreter's order.

    Raises:
        ModelError: it should name some, and has no options.
    """
    # It looks at the newer field only: a file without it hides its IF and WHILE from the planner.
    code = int(model.operatorCodes[op.opcodeIndex].builtinCode)
    builtin = classes().BuiltinOperator
    named = {
        builtin.IF: ("thenSubgraphIndex", "elseSubgraphIndex"),
        builtin.WHILE: ("condSubgraphIndex", "bodySubgraphIndex"),
        builtin.CALL_ONCE: ("initSubgraphIndex",),
    }.get(code, ())
    found = [getattr(op.builtinOptions, name, None) for name in named]
    if None in found:  # no options, or those of another operator
        raise ModelError("an operator of control flow names no subgraph")
    return tuple(int(index) for index in found if index is not None)


@dataclass(frozen=True, slots=True)
class Signature:
    """What running a model needs to know of it: counts of inputs and outputs of its main graph."""

    inputs: int
    results: int

    @classmethod
    def of(cls, model: Model) -> Signature:
        """Of a parsed model."""
        main = model.subgraphs[0]
        return cls(len(indices(main.inputs)), len(indices(main.outputs)))


def offline_offsets(model: Model) -> tuple[int, ...] | None:
    """The offsets a file carries for all tensors of all subgraphs, or `None`.

    The interpreter takes any metadata whose name begins like `OFFLINE`; -1 leaves a tensor to it.

    Raises:
        ModelError: the table is cut short.
    """
    found = None
    for entry in model.metadata or ():
        name = entry.name.decode("utf-8", "replace") if entry.name else ""
        if name and OFFLINE.startswith(name[: len(OFFLINE)]) and entry.buffer < len(model.buffers):
            data = model.buffers[entry.buffer].data
            if data is None or isinstance(data, int):
                continue
            raw = np.asarray(data, dtype=np.uint8).tobytes()
            words = np.frombuffer(raw[: len(raw) // 4 * 4], dtype="<i4")
            if len(words) < 3 or len(words) - 3 < words[2]:
                raise ModelError(f"its {OFFLINE} table is cut short")
            found = tuple(int(n) for n in words[3 : 3 + int(words[2])])
    return found
