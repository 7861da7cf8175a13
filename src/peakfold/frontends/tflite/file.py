"""A `.tflite` file as plain records: what is stored, in file order, nothing interpreted.

The file is mapped, not read: the bytes of a buffer are touched only when somebody asks for them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from peakfold.boundary import file_size, foreign, readable
from peakfold.errors import ModelError
from peakfold.frontends.tflite.options import options_of
from peakfold.frontends.tflite.schema import names_of, schema
from peakfold.frontends.tflite.types import dtype_of
from peakfold.frontends.tflite.walk import check_bounds
from peakfold.ir import MAX_RANK, AttrValue, DType

MAX_BYTES = 1 << 40
"""Of a file; it is mapped, so that none of its weights is read."""

_T = TypeVar("_T")

Extent = tuple[int, int]
"""First byte in the file, and length."""
_Outside = Mapping[int, tuple[int, bool]]
"""Length of data in other files by its number, and whether it is packed."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a subgraph as the file states it.

    Attributes:
        shape: dimensions; empty for a scalar and, in old files, for an unknown rank.
        signature: dimensions with -1 where they are open, or `None` when nothing is open.
        has_rank: whether an empty shape surely means a scalar.
        buffer: index of its stored bytes; an empty buffer means there are none.
        variable: whether it keeps its value from one run to the next.
        index_bytes: bytes of the index of a sparse tensor, `None` for a dense one.
        external: whether its bytes lie in another file.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    signature: tuple[int, ...] | None
    has_rank: bool
    buffer: int
    variable: bool
    index_bytes: int | None = None
    external: bool = False


@dataclass(frozen=True, slots=True)
class StoredOp:
    """An operator.

    Attributes:
        builtin: its name in the schema (``CUSTOM`` for a custom one).
        custom: code of a custom operator.
        inputs, outputs: tensor indices; -1 stands for one that is absent.
        mutates: per input, whether its variable is written; empty when the file does not say.
        options: scalars and lists of the operator's options, in snake case, zeros left out.
    """

    builtin: str
    custom: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    mutates: tuple[bool, ...]
    options: Mapping[str, AttrValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredSubgraph:
    """A subgraph: the first is the model, the others are bodies of control flow."""

    name: str
    tensors: tuple[StoredTensor, ...]
    ops: tuple[StoredOp, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TfliteFile:
    """A checked file.

    Attributes:
        data: its bytes, mapped.
        buffers: where the bytes of each buffer lie; length 0 for an empty one.
        signatures: name and subgraph of every signature.
        notes: what was not understood, one line each.
    """

    data: memoryview
    subgraphs: tuple[StoredSubgraph, ...]
    buffers: tuple[Extent, ...]
    signatures: tuple[tuple[str, int], ...]
    notes: tuple[str, ...] = ()

    def stored(self, tensor: StoredTensor) -> memoryview:
        """The bytes of a tensor's buffer."""
        start, length = self.buffers[tensor.buffer]
        return self.data[start : start + length]


def read_tflite(path: Path) -> TfliteFile:
    """Map and check a file.

    Raises:
        UsageError: it cannot be opened.
        ModelError: it is no TFLite model, is damaged, or refers to things it does not hold.
        BackendMissing: the extra `tflite` is not installed.
    """
    schema()
    size = file_size(path)
    if not 0 < size <= MAX_BYTES:
        what = f"it has {size} bytes; a model has at most {MAX_BYTES}" if size else "it is empty"
        raise ModelError(what, where=str(path))
    with readable(path), path.open("rb") as stream:
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    return parse_tflite(data)


def parse_tflite(data: memoryview) -> TfliteFile:
    """The records of a model in memory.

    Raises:
        ModelError: it is no model, or a damaged one.
    """
    check_bounds(data)
    # A scalar at the very end of a damaged file, a union of a wrong type: the generated classes
    # raise what struct, numpy and Python do.
    with foreign("its flatbuffer is malformed"):
        return _parsed(data)


def _parsed(data: memoryview) -> TfliteFile:
    model = schema().Model.GetRootAs(data, 0)
    buffers = tuple(_extent(data, buffer) for buffer in _each(model.Buffers, model.BuffersLength()))
    codes = [_code(c) for c in _each(model.OperatorCodes, model.OperatorCodesLength())]
    if not model.SubgraphsLength():
        raise ModelError("holds no subgraph")
    notes: list[str] = []
    outside = {
        external.Id(): (int(external.Length()), bool(external.Packing()))
        for external in _each(model.ExternalBuffers, model.ExternalBuffersLength())
    }
    subgraphs = tuple(
        _subgraph(graph, codes, notes, outside)
        for graph in _each(model.Subgraphs, model.SubgraphsLength())
    )
    for graph in subgraphs:
        _check_references(graph, len(buffers))
    signatures = tuple(
        (_text(s.SignatureKey()), s.SubgraphIndex())
        for s in _each(model.SignatureDefs, model.SignatureDefsLength())
    )
    if len(signatures) > 1:
        listed = ", ".join(key or "without a name" for key, _ in signatures)
        notes.append(f"{len(signatures)} signatures ({listed}): the graph is the first subgraph")
    return TfliteFile(data, subgraphs, buffers, signatures, tuple(dict.fromkeys(notes)))


def _each(item: Callable[[int], _T], count: int) -> Iterator[_T]:
    return (item(at) for at in range(count))


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "backslashreplace")


def _numbers(table: Any, field: str) -> tuple[int, ...]:
    """A vector of integers of a table reader."""
    if not getattr(table, field + "Length")():
        return ()
    return tuple(int(v) for v in getattr(table, field + "AsNumpy")())


def _extent(data: memoryview, buffer: Any) -> Extent:
    """Where a buffer's bytes lie: inside the flatbuffer, or behind it in the same file."""
    offset, size = int(buffer.Offset()), int(buffer.Size())
    if offset > 1:
        if offset + size > len(data):
            raise ModelError("a buffer lies behind the end of the file")
        return offset, size
    length = buffer.DataLength()
    if not length:
        return 0, 0
    tab = buffer._tab
    return int(tab.Vector(tab.Offset(4))), int(length)


def _code(code: Any) -> tuple[str, str]:
    """Name and custom code of an operator code; old files use a field of one byte."""
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = names_of("BuiltinOperator").get(number)
    if name is None:
        raise ModelError(f"operator code {number} is newer than the schema that is installed")
    return name, _text(code.CustomCode())


def _subgraph(
    graph: Any, codes: list[tuple[str, str]], notes: list[str], outside: _Outside
) -> StoredSubgraph:
    return StoredSubgraph(
        _text(graph.Name()),
        tuple(_tensor(t, outside) for t in _each(graph.Tensors, graph.TensorsLength())),
        tuple(_operator(o, codes, notes) for o in _each(graph.Operators, graph.OperatorsLength())),
        _numbers(graph, "Inputs"),
        _numbers(graph, "Outputs"),
    )


def _tensor(tensor: Any, outside: _Outside) -> StoredTensor:
    signature = _numbers(tensor, "ShapeSignature")
    sparsity = tensor.Sparsity()
    found = StoredTensor(
        _text(tensor.Name()),
        dtype_of(tensor.Type()),
        _numbers(tensor, "Shape"),
        signature if -1 in signature else None,
        bool(tensor.HasRank()),
        tensor.Buffer(),
        bool(tensor.IsVariable()),
        None if sparsity is None else _index_bytes(sparsity),
        tensor.ExternalBuffer() > 0,
    )
    if found.external:
        _check_outside(found, tensor.ExternalBuffer(), outside)
    return found


def _check_outside(tensor: StoredTensor, number: int, outside: _Outside) -> None:
    """Compare the length of data in another file with the tensor's size.

    Raises:
        ModelError: they differ, or the file lists no such data.
    """
    where = f"tensor {tensor.name!r}"
    if number not in outside:
        raise ModelError(f"its data has the number {number}, which is not listed", where=where)
    length, packed = outside[number]
    needed = tensor.dtype.nbytes(prod(tensor.shape))
    if not packed and tensor.index_bytes is None and needed not in (None, length):
        raise ModelError(
            f"{length} bytes are stored outside, its type and shape need {needed}", where=where
        )


def _index_bytes(sparsity: Any) -> int:
    """Bytes of the segments and indices that say where a sparse tensor's values belong."""
    total = 0
    classes = {1: schema().Int32Vector, 2: schema().Uint16Vector, 3: schema().Uint8Vector}
    widths = {1: 4, 2: 2, 3: 1}
    for at in range(sparsity.DimMetadataLength()):
        level = sparsity.DimMetadata(at)
        for kind, held in (
            (level.ArraySegmentsType(), level.ArraySegments()),
            (level.ArrayIndicesType(), level.ArrayIndices()),
        ):
            if held is not None and kind in classes:
                vector = classes[kind]()
                vector.Init(held.Bytes, held.Pos)
                total += widths[kind] * int(vector.ValuesLength())
    return total


def _operator(op: Any, codes: list[tuple[str, str]], notes: list[str]) -> StoredOp:
    if op.OpcodeIndex() >= len(codes):
        raise ModelError(f"an operator has code {op.OpcodeIndex()} of {len(codes)}")
    builtin, custom = codes[op.OpcodeIndex()]
    options, note = options_of(op)
    if note:
        notes.append(f"{builtin}: {note}")
    return StoredOp(
        builtin,
        custom,
        _numbers(op, "Inputs"),
        _numbers(op, "Outputs"),
        tuple(map(bool, _numbers(op, "MutatingVariableInputs"))),
        options,
    )


def _check_references(graph: StoredSubgraph, buffers: int) -> None:
    """Refuse indices of tensors and buffers that do not exist.

    Raises:
        ModelError: the first such index.
    """
    count = len(graph.tensors)
    where = f"subgraph {graph.name!r}"
    for name in (*graph.inputs, *graph.outputs):
        if not 0 <= name < count:
            raise ModelError(f"its signature names tensor {name} of {count}", where=where)
    for at, op in enumerate(graph.ops):
        if any(not -1 <= name < count for name in (*op.inputs, *op.outputs)):
            raise ModelError(
                f"operator {at} ({op.builtin}) names a tensor that does not exist", where=where
            )
    for at, tensor in enumerate(graph.tensors):
        if tensor.buffer >= buffers and not (tensor.buffer == 0 and buffers == 0):
            raise ModelError(f"tensor {at} has buffer {tensor.buffer} of {buffers}", where=where)
        sizes = tensor.shape if tensor.signature is None else (*tensor.shape, *tensor.signature)
        if len(sizes) > 2 * MAX_RANK:
            raise ModelError(f"tensor {at} has more than {MAX_RANK} dimensions", where=where)
        if any(not -1 <= dim < 2**31 for dim in sizes):
            raise ModelError(f"tensor {at} has a negative dimension", where=where)
