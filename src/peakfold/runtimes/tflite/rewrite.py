"""A .tflite file written anew: operators moved, constants folded, offsets carried along.

Everything the edits do not touch is kept as the schema reads it: names, quantisation, signatures,
metadata, custom options, constants. Every edit gives a new model; the given bytes stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakfold.errors import ModelError, RunFailed
from peakfold.runtimes.tflite.one_op import evaluate
from peakfold.runtimes.tflite.schema import (
    OFFLINE,
    Model,
    classes,
    has_data,
    indices,
    operator_name,
    pack_model,
    parse_model,
    type_names,
)

Where = tuple[int, int]
"""(subgraph, index) of a tensor or operator."""
_VERSION = 1
_FLOATS = {"FLOAT32": np.float32, "FLOAT16": np.float16}


@dataclass(frozen=True, slots=True)
class Edit:
    """What to change.

    Attributes:
        order: per subgraph that changes, its operators in their new order; those left out are
            computed once, now, and their results become constants.
        offsets: of tensors in the arena; others are left to the interpreter. `None` = the file
            carries no offsets.
    """

    order: Mapping[int, Sequence[int]] = field(default_factory=dict)
    offsets: Mapping[Where, int] | None = None


def rewrite(data: bytes, edit: Edit, where: str = "model") -> bytes:
    """The bytes of a file after an edit.

    Args:
        data: the file.
        edit: what to change; nothing gives a file that means the same.
        where: what errors call the file.

    Raises:
        ModelError: it is no .tflite file, or holds what cannot be carried over.
        RunFailed: an operator to be folded cannot be computed here.
    """
    model = parse_model(data, where)
    _take_in_outer_data(model, data, where)
    for number, order in edit.order.items():
        kept = set(order)
        operators = model.subgraphs[number].operators or []
        fold(model, number, [at for at in range(len(operators)) if at not in kept])
        model.subgraphs[number].operators = [operators[at] for at in order]
    set_offsets(model, edit.offsets)
    return pack_model(model)


def fold(model: Model, subgraph: int, operators: Iterable[int]) -> None:
    """Turn the results of operators into constants, in file order.

    Raises:
        RunFailed: one of them cannot be computed.
    """
    for at in operators:
        op = model.subgraphs[subgraph].operators[at]
        for index, value in zip(indices(op.outputs), _value(model, subgraph, at), strict=True):
            tensor = model.subgraphs[subgraph].tensors[index]
            buffer = classes().BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), dtype=np.uint8)
            tensor.buffer = len(model.buffers)
            model.buffers.append(buffer)


def _value(model: Model, subgraph: int, at: int) -> tuple[NDArray[Any], ...]:
    graph = model.subgraphs[subgraph]
    op = graph.operators[at]
    name = operator_name(model, op)
    operands = [graph.tensors[index] for index in indices(op.inputs) if index >= 0]
    if name == "DEQUANTIZE" and type_names()[operands[0].type] == "FLOAT16":
        return (_halves(model, operands[0]).astype(np.float32),)  # TFLM's kernel refuses halves
    if name == "SHAPE":
        wide = np.int64 if type_names()[graph.tensors[op.outputs[0]].type] == "INT64" else np.int32
        return (np.asarray(indices(operands[0].shape), dtype=wide),)
    try:
        return evaluate(model, subgraph, at)
    except RunFailed as error:
        raise RunFailed(
            f"{name} of constants cannot be computed here: {error.what}",
            where=f"operator {at} of subgraph {subgraph}", hint="plan with --no-fold",
        ) from None  # fmt: skip


def _halves(model: Model, tensor: Any) -> NDArray[np.float16]:  # noqa: ANN401
    if tensor.sparsity is not None or not has_data(model, tensor):
        raise ModelError("sparse half-precision weights cannot be folded here")
    raw = np.asarray(model.buffers[tensor.buffer].data, dtype=np.uint8).tobytes()
    return np.frombuffer(raw, dtype="<f2").reshape(indices(tensor.shape))


def _take_in_outer_data(model: Model, data: bytes, where: str) -> None:
    """Constants stored behind the flatbuffer move into it: their positions would be wrong."""
    for buffer in model.buffers or ():
        offset, size = getattr(buffer, "offset", 0), getattr(buffer, "size", 0)
        if offset > 1:
            if offset + size > len(data):
                raise ModelError("a constant lies behind the end of the file", where=where)
            buffer.data = np.frombuffer(data, np.uint8, size, offset)
            buffer.offset = buffer.size = 0
    for graph in model.subgraphs:
        for op in graph.operators or ():
            if getattr(op, "largeCustomOptionsOffset", 0) > 1:
                raise ModelError("its custom options lie behind the flatbuffer", where=where)


def set_offsets(model: Model, offsets: Mapping[Where, int] | None) -> None:
    """Put a table of offsets into a model, in place of any it has; `None` only removes it.

    The table is little-endian int32: version, number of subgraphs, number of tensors, then an
    offset per tensor of all subgraphs, -1 leaving it to the interpreter (TFLM,
    docs/memory_management.md).
    """
    entries = list(model.metadata or ())
    old = [entry for entry in entries if _is_table(entry)]
    if offsets is None:
        model.metadata = [entry for entry in entries if not _is_table(entry)] or None
        return
    counts = [len(graph.tensors or ()) for graph in model.subgraphs]
    base = np.concatenate([[0], np.cumsum(counts)])
    words = np.full(3 + int(base[-1]), -1, dtype="<i4")
    words[:3] = (_VERSION, len(counts), int(base[-1]))
    for (subgraph, tensor), offset in offsets.items():
        words[3 + base[subgraph] + tensor] = offset
    data = np.frombuffer(words.tobytes(), dtype=np.uint8)
    schema = classes()
    if old:
        model.buffers[old[0].buffer].data = data
        model.metadata = [entry for entry in entries if entry not in old[1:]]
        return
    buffer = schema.BufferT()
    buffer.data = data
    entry = schema.MetadataT()
    entry.name = OFFLINE.encode()
    entry.buffer = len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*entries, entry]


def _is_table(entry: Any) -> bool:  # noqa: ANN401
    name = entry.name.decode("utf-8", "replace") if entry.name else ""
    return bool(name) and OFFLINE.startswith(name[: len(OFFLINE)])
