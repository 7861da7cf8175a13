"""Recurrent layers: RNN, GRU, LSTM.

Sequences run to their full length; shorter ones in a batch are not discounted.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.types import Dim
from peakfold.ops.inference import dims, dtype, given, integer, sizes, text
from peakfold.ops.rules import Types, count, tells, unknown
from peakfold.ops.spec import Context, OpSpec

# Gates: each is one product with the input and one with the previous state.
_GATES: Final = (("rnn", 1), ("gru", 3), ("lstm", 4))
_STATE_OPERATIONS: Final = (("rnn", 0), ("gru", 4), ("lstm", 4))


def _sequence(ctx: Context) -> tuple[Dim, Dim]:
    """Steps and batch, in either layout."""
    first, second, _ = dims(ctx)
    return (second, first) if integer(ctx, "layout", 0) else (first, second)


@tells
def _recurrent(ctx: Context) -> Types:
    steps, batch = _sequence(ctx)
    directions, _, hidden = dims(ctx, 2)
    directions = 2 if text(ctx, "direction", "forward") == "bidirectional" else directions
    if integer(ctx, "layout", 0):
        every, last = (batch, steps, directions, hidden), (batch, directions, hidden)
    else:
        every, last = (steps, directions, batch, hidden), (directions, batch, hidden)
    element = dtype(ctx)
    return ((element, every), (element, last), (element, last))


def _cells(ctx: Context) -> int:
    """Cell evaluations: steps times batch times directions."""
    steps, batch, _ = sizes(ctx)
    return steps * batch * sizes(ctx, 1)[0]


@count
def _macs(ctx: Context) -> int:
    # Both weight matrices are applied whole at every cell, whatever the gate count.
    _, rows, width = sizes(ctx, 1)
    _, rows_state, hidden = sizes(ctx, 2)
    return _cells(ctx) * (rows * width + rows_state * hidden)


@count
def _other(ctx: Context) -> int:
    # Per unit: an activation and (with a bias) two additions per gate, then the arithmetic
    # of the state, then three peephole products and sums.
    gates, state = dict(_GATES)[ctx.op.kind], dict(_STATE_OPERATIONS)[ctx.op.kind]
    per_unit = gates * (3 if given(ctx, 3) else 1) + state
    if ctx.op.kind == "lstm" and given(ctx, 7):
        per_unit += 6
    return _cells(ctx) * sizes(ctx, 2)[-1] * per_unit


ROWS: Final = tuple(
    OpSpec(kind, _recurrent, workspace=unknown, macs=_macs, other_ops=_other, engine="matrix")
    for kind, _ in _GATES
)
