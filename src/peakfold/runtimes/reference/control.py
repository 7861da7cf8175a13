"""If, Loop and Scan: their meaning, with the running of a body left to the caller.

The ordinary run evaluates bodies with every tensor in memory of its own, the arena run as the
bodies' own plans say, inside the workspace of the op; both follow the one account given here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakfold.errors import ModelError
from peakfold.ir import Op
from peakfold.runtimes.reference.kernels import Args

Body = Callable[[int, Sequence[Any], int], list[Any]]
"""Runs region r on values of its formal inputs, in trip t; gives the body's outputs."""

KINDS = ("if", "loop", "scan")
_MOST_TRIPS = 10_000


def run_control(op: Op, args: Args, body: Body) -> tuple[Any, ...]:
    """Results of a control-flow op.

    Args:
        op: the op.
        args: its inputs by position; what bodies capture is the business of `body`.
        body: runs a body.

    Raises:
        ModelError: a loop that does not end.

    Example:
        >>> run_control(Op("i", "if", ("c",), ("y",)), [np.array(True)], lambda r, v, t: [r])
        (0,)
    """
    if op.kind == "if":
        return tuple(body(0 if np.asarray(args[0]).item() else 1, (), 0))
    return _loop(op, args, body) if op.kind == "loop" else _scan(op, args, body)


def _loop(op: Op, args: Args, body: Body) -> tuple[Any, ...]:
    trips = None if args[0] is None else int(np.asarray(args[0]).item())
    go = True if args[1] is None else bool(np.asarray(args[1]).item())
    state = list(args[2 : len(op.inputs)])
    formal = len(state)
    rows: list[list[Any]] = [[] for _ in range(len(op.outputs) - formal)]
    for trip in range(trips) if trips is not None else count():
        if not go:
            break
        if trip >= _MOST_TRIPS:
            raise ModelError(
                f"still runs after {_MOST_TRIPS} trips", where=f"op {op.name!r} ({op.kind})"
            )
        results = body(0, [np.array(trip, np.int64), np.array(go), *state], trip)
        go = bool(np.asarray(results[0]).item())
        state = results[1 : 1 + formal]
        for row, value in zip(rows, results[1 + formal :], strict=False):
            row.append(np.array(value))
    return (*state, *(_stacked(op, row, 0) for row in rows))


def _stacked(op: Op, row: list[Any], axis: int) -> NDArray[Any]:
    if not row:
        raise ModelError(
            "makes no slice to tell the shape of a result by", where=f"op {op.name!r} ({op.kind})"
        )
    return np.stack(row, axis)


def _scan(op: Op, args: Args, body: Body) -> tuple[Any, ...]:
    scanned = op.attrs.get("num_scan_inputs")
    states = len(op.inputs) - (scanned if isinstance(scanned, int) else 0)
    state, sequences = list(args[:states]), list(args[states : len(op.inputs)])
    axes = _ints(op, "scan_input_axes", len(sequences))
    back = _ints(op, "scan_input_directions", len(sequences))
    lines = [np.moveaxis(s, axis, 0) for s, axis in zip(sequences, axes, strict=True)]
    length = lines[0].shape[0]
    rows: list[list[Any]] = [[] for _ in range(len(op.outputs) - states)]
    for trip in range(length):
        slices = [
            line[length - 1 - trip if turned else trip]
            for line, turned in zip(lines, back, strict=True)
        ]
        results = body(0, [*state, *slices], trip)
        state = results[:states]
        for row, value in zip(rows, results[states:], strict=False):
            row.append(np.array(value))
    axes_out = _ints(op, "scan_output_axes", len(rows))
    back_out = _ints(op, "scan_output_directions", len(rows))
    return (
        *state,
        *(
            _stacked(op, row[::-1] if turned else row, axis)
            for row, axis, turned in zip(rows, axes_out, back_out, strict=True)
        ),
    )


def _ints(op: Op, name: str, number: int) -> tuple[int, ...]:
    value = op.attrs.get(name)
    given = tuple(int(v) for v in value) if isinstance(value, tuple) else ()
    return given if len(given) == number else (0,) * number
