"""A .tflite file written anew: operators moved, constants folded, offsets carried along.

Everything the edits do not touch is kept as the schema reads it: names, quantisation, signatures,
metadata, custom options, constants. Every edit gives a new model; the given bytes stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakfold.errors import ModelError, RunFailed
from peakfold.runtimes.tflite.patches import Growth, grow
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
from peakfold.runtimes.tflite.single_op import evaluate

Where = tuple[int, int]
"""(subgraph, index) of a tensor or operator."""
_VERSION = 1
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Edit:
    """What to change.

    Attributes:
        order: per subgraph that changes, its operators in their new order; those left out are
            computed once, now, and their results become constants.
        offsets: of tensors in the arena; others are left to the interpreter. `None` keeps the
            table the file may have; an empty mapping removes it.
        added: bands of rows that take the place of operators of the main graph; in `order` their
            operators follow the file's.
    """

    order: Mapping[int, Sequence[int]] = field(default_factory=dict)
    offsets: Mapping[Where, int] | None = None
    added: Growth = field(default_factory=Growth)


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
    return rewrite_all(data, [edit], where)[0]


def rewrite_all(data: bytes, edits: Sequence[Edit], where: str = "model") -> list[bytes]:
    """A file after each of several edits that fold the same operators.

    Raises:
        ModelError: it is no .tflite file, or holds what cannot be carried over.
        RunFailed: an operator to be folded cannot be computed here.
    """
    model = parse_model(data, where)
    _take_in_outer_data(model, data, where)
    counts = [len(graph.operators or ()) for graph in model.subgraphs]
    for number, order in edits[0].order.items():
        kept = {*order, *(edits[0].added.replaced if number == 0 else ())}
        fold(model, number, [at for at in range(counts[number]) if at not in kept])
    return [_edited(model, edit) for edit in edits]


def _edited(folded: Model, edit: Edit) -> bytes:
    """The file of one edit; the model is left as it was, apart from its table of offsets."""
    model = copy.copy(folded)
    model.buffers, model.subgraphs = list(folded.buffers), list(map(copy.copy, folded.subgraphs))
    for number, graph in enumerate(model.subgraphs):
        graph.tensors, graph.operators = list(graph.tensors or ()), list(graph.operators or ())
        if number == 0:
            grow(model, edit.added)
        order = edit.order.get(number, range(len(graph.operators)))
        graph.operators = [graph.operators[at] for at in order]
    if edit.offsets is not None:
        set_offsets(model, edit.offsets)
    return pack_model(model)


def fold(model: Model, subgraph: int, operators: Sequence[int]) -> None:
    """Turn the results of operators into constants.

    Args:
        model: changed in place.
        subgraph: where they stand.
        operators: in an order that makes every operand before it is read.

    Raises:
        RunFailed: one of them cannot be computed.
    """
    others = []
    for at in operators:
        value = _simple_value(model, subgraph, at)
        if value is None:
            others.append(at)
        else:
            _store(model, subgraph, at, (value,))
    if not others:
        return
    try:
        for at, values in zip(others, evaluate(model, subgraph, others), strict=True):
            _store(model, subgraph, at, values)
    except RunFailed as error:
        graph = model.subgraphs[subgraph]
        names = dict.fromkeys(operator_name(model, graph.operators[at]) for at in others)
        raise RunFailed(
            f"constants cannot be computed here ({', '.join(names)}): {error.what}",
            hint="plan with --no-fold",
        ) from None


def _store(model: Model, subgraph: int, at: int, values: Sequence[NDArray[Any]]) -> None:
    graph = model.subgraphs[subgraph]
    for index, value in zip(indices(graph.operators[at].outputs), values, strict=True):
        buffer = classes().BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), dtype=np.uint8)
        graph.tensors[index].buffer = len(model.buffers)
        model.buffers.append(buffer)


def _simple_value(model: Model, subgraph: int, at: int) -> NDArray[Any] | None:
    """The result of an operator that is computed here; `None` = by its own kernel."""
    graph = model.subgraphs[subgraph]
    op = graph.operators[at]
    name = operator_name(model, op)
    if not indices(op.inputs):
        return None
    if name == "DEQUANTIZE":
        source = graph.tensors[op.inputs[0]]
        if type_names()[source.type] == "FLOAT16":  # TFLM's kernel refuses halves
            return _halves(model, source).astype(np.float32)
    if name == "SHAPE":
        wide = np.int64 if type_names()[graph.tensors[op.outputs[0]].type] == "INT64" else np.int32
        return np.asarray(indices(graph.tensors[op.inputs[0]].shape), dtype=wide)
    return None


def _halves(model: Model, tensor: Any) -> NDArray[np.float16]:
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


def set_offsets(model: Model, offsets: Mapping[Where, int]) -> None:
    """Put a table of offsets into a model, in place of any it has; none at all only removes it.

    The table is little-endian int32: version, number of subgraphs, number of tensors, then an
    offset per tensor of all subgraphs, -1 leaving it to the interpreter (TFLM,
    docs/memory_management.md). It looks for a variable of any subgraph in the table's first rows,
    by its index in that subgraph, and gives it no memory where an offset stands there: it would
    crash while it starts. So that row is left to the interpreter, whatever tensor it is of.

    Raises:
        ModelError: an offset of 2 GiB or more.
    """
    entries = list(model.metadata or ())
    old = [entry for entry in entries if _is_table(entry)]
    if not offsets:
        model.metadata = [entry for entry in entries if not _is_table(entry)] or None
        return
    counts = [len(graph.tensors or ()) for graph in model.subgraphs]
    base = np.concatenate([[0], np.cumsum(counts)])
    words = np.full(3 + int(base[-1]), -1, dtype="<i4")
    words[:3] = (_VERSION, len(counts), int(base[-1]))
    if max(offsets.values()) > _MOST:
        raise ModelError("an offset does not fit the 32 bits that a file has for it")
    for (subgraph, index), offset in offsets.items():
        words[3 + base[subgraph] + index] = offset
    for graph in model.subgraphs[1:]:
        for at, tensor in enumerate(graph.tensors or ()):
            if tensor.isVariable:
                words[3 + at] = -1
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


def _is_table(entry: Any) -> bool:
    name = entry.name.decode("utf-8", "replace") if entry.name else ""
    return bool(name) and OFFLINE.startswith(name[: len(OFFLINE)])
