"""How often a WHILE runs its body, where the file alone tells.

Converters write a recurrent layer as a loop that counts: the condition compares a counter with
a constant, and the body adds a constant to it. Everything else ends in "not known".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from peakfold.frontends.tflite.file import StoredOp, StoredSubgraph, TfliteFile

Start = Callable[[int], int | None]
"""First value of a carried position, when it is known before the run."""


def trip_count(
    file: TfliteFile, condition: StoredSubgraph, body: StoredSubgraph, start: Start
) -> int | None:
    """Trips of a loop that counts up to a constant; `None` when it is not of this form.

    Args:
        file: the model.
        condition: the subgraph that says whether to go on.
        body: the subgraph that is repeated; gives a new value for each carried position.
        start: first values.
    """
    if len(condition.outputs) != 1 or len(body.outputs) != len(condition.inputs):
        return None
    return _until(file, condition, condition.outputs[0], body, start, 8)


def _until(
    file: TfliteFile,
    condition: StoredSubgraph,
    result: int,
    body: StoredSubgraph,
    start: Start,
    depth: int,
) -> int | None:
    op = _maker(condition, result)
    if op is None or depth == 0:
        return None
    if op.builtin == "LOGICAL_AND" and len(op.inputs) == 2:
        # Both have to hold, so the earlier end counts.
        sides = [_until(file, condition, at, body, start, depth - 1) for at in op.inputs]
        known = [side for side in sides if side is not None]
        return min(known) if len(known) == 2 else None
    if op.builtin != "LESS" or len(op.inputs) != 2 or op.inputs[0] not in condition.inputs:
        return None
    position = condition.inputs.index(op.inputs[0])
    first, step = start(position), _step(file, body, position)
    limit = _limit(file, condition, op.inputs[1], body, start)
    if first is None or step is None or limit is None:
        return None
    return max(-(-(limit - first) // step), 0)


def _limit(
    file: TfliteFile, condition: StoredSubgraph, at: int, body: StoredSubgraph, start: Start
) -> int | None:
    """A constant of the condition, or a carried value that the body hands on unchanged."""
    if at in condition.inputs:
        position = condition.inputs.index(at)
        kept = body.outputs[position] == body.inputs[position]
        return start(position) if kept else None
    return constant(file, condition, at)


def _step(file: TfliteFile, body: StoredSubgraph, position: int) -> int | None:
    """What the body adds to a carried counter, when that is a positive constant."""
    op = _maker(body, body.outputs[position])
    counter = body.inputs[position]
    if op is None or op.builtin != "ADD" or counter not in op.inputs or len(op.inputs) != 2:
        return None
    other = op.inputs[1 - op.inputs.index(counter)]
    step = constant(file, body, other)
    return step if step is not None and step > 0 else None


def _maker(graph: StoredSubgraph, tensor: int) -> StoredOp | None:
    return next((op for op in graph.ops if tensor in op.outputs), None)


def constant(file: TfliteFile, graph: StoredSubgraph, at: int) -> int | None:
    """The value of a stored whole number."""
    if at < 0:
        return None
    tensor = graph.tensors[at]
    data = file.stored(tensor) if file.buffers else memoryview(b"")
    if tensor.dtype.name not in ("int32", "int64") or len(data) != (tensor.dtype.bits or 0) // 8:
        return None
    return int(np.frombuffer(data, np.dtype(tensor.dtype.name).newbyteorder("<"))[0])
