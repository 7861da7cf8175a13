"""A file that shows what it computes on the way: every result copied out when it is made.

Outputs of a classifier are often the same for every input and prove little. Here each result is
copied, by an operator put behind the one that made it, to memory that nothing else uses. A value
that a wrong plan destroys before it is read shows in the results made from it.
"""

from __future__ import annotations

import copy
from typing import Any

from peakfold.errors import ModelError
from peakfold.runtimes.tflite.allocator import ALIGN, predict
from peakfold.runtimes.tflite.rewrite import set_offsets
from peakfold.runtimes.tflite.schema import (
    Model,
    classes,
    dims,
    has_data,
    indices,
    offline_offsets,
    pack_model,
    parse_model,
    tensor_bytes,
    type_names,
)
from peakfold.runtimes.tflite.scratch import known_scratch
from peakfold.units import round_up

_COPIED = {"FLOAT32", "INT8", "UINT8", "INT16", "INT32", "INT64", "BOOL"}


def watched(data: bytes) -> tuple[bytes, tuple[int, ...]]:
    """A file with every result of its main graph among its outputs.

    Args:
        data: a file, with or without offsets; those it has stay.

    Returns:
        The new file, and the tensors whose copies follow its own outputs, in their order.

    Raises:
        ModelError: the file is broken.
    """
    model = parse_model(data)
    graph = model.subgraphs[0]
    table = offline_offsets(model)
    offsets = _by_place(model, table) if table is not None else {}
    free = predict(model, known_scratch(model)).head
    code = _reshape(model)
    seen: list[int] = []
    copies: list[int] = []
    operators: list[Any] = []
    for op in graph.operators or ():
        operators.append(op)
        for tensor in indices(op.outputs):
            if not _copied(model, tensor):
                continue
            place = len(graph.tensors)
            graph.tensors.append(_twin(graph.tensors[tensor]))
            operators.append(_copy_operator(code, tensor, place, dims(graph.tensors[tensor])))
            seen.append(tensor)
            copies.append(place)
            if table is not None:
                offsets[0, place] = free
                free += round_up(tensor_bytes(graph.tensors[tensor]) or 0, ALIGN)
    graph.operators = operators
    graph.outputs = [*indices(graph.outputs), *copies]
    if table is not None:
        set_offsets(model, offsets)
    return pack_model(model), tuple(seen)


def _copied(model: Model, tensor: int) -> bool:
    found = model.subgraphs[0].tensors[tensor]
    kind = type_names().get(int(found.type))
    return kind in _COPIED and not has_data(model, found) and bool(tensor_bytes(found))


def _twin(tensor: Any) -> Any:
    twin = copy.copy(tensor)
    twin.buffer = 0
    twin.name = (tensor.name or b"") + b":watched"
    return twin


def _copy_operator(code: int, source: int, place: int, shape: tuple[int, ...]) -> Any:
    schema = classes()
    op = schema.OperatorT()
    op.opcodeIndex = code
    op.inputs, op.outputs = [source], [place]
    op.builtinOptionsType = schema.BuiltinOptions.ReshapeOptions
    op.builtinOptions = schema.ReshapeOptionsT()
    op.builtinOptions.newShape = list(shape)
    return op


def _reshape(model: Model) -> int:
    """Index of the code of an operator that copies bytes of any type."""
    schema = classes()
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RESHAPE
    code.version = 1
    model.operatorCodes = [*model.operatorCodes, code]
    return len(model.operatorCodes) - 1


def _by_place(model: Model, table: tuple[int, ...]) -> dict[tuple[int, int], int]:
    places = [
        (number, at)
        for number, graph in enumerate(model.subgraphs)
        for at in range(len(graph.tensors or ()))
    ]
    if len(places) != len(table):
        raise ModelError(f"the file places {len(table)} tensors, and has {len(places)}")
    return {place: offset for place, offset in zip(places, table, strict=True) if offset >= 0}
