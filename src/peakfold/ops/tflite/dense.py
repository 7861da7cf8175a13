"""TFLite's matrix products and recurrent layers."""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.types import Shape
from peakfold.ops.inference import CannotTell, dims, dtype, given, integer, produced, sizes
from peakfold.ops.rules import Types, count, number, quotient, same, tells, unknown, zero
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.standard.indexing import picked
from peakfold.ops.standard.matmul import matmul_shape
from peakfold.ops.tflite.rules import activation, fused


@tells
def _fully_connected(ctx: Context) -> Types:
    units, width = dims(ctx, 1)
    shape = dims(ctx)
    if integer(ctx, "keep_num_dims", 0):
        return ((dtype(ctx), (*shape[:-1], units)),)
    return ((dtype(ctx), (quotient(shape, (width,)), units)),)


@count
def _fully_connected_macs(ctx: Context) -> int:
    return prod(produced(ctx)) * sizes(ctx, 1)[-1]


def _adjoint(ctx: Context, position: int, name: str) -> Shape:
    shape = dims(ctx, position)
    if len(shape) < 2:
        raise CannotTell
    return (*shape[:-2], shape[-1], shape[-2]) if integer(ctx, name, 0) else shape


@tells
def _batch_matmul(ctx: Context) -> Types:
    return ((dtype(ctx), matmul_shape(_adjoint(ctx, 0, "adj_x"), _adjoint(ctx, 1, "adj_y"))),)


@count
def _batch_matmul_macs(ctx: Context) -> int:
    return prod(produced(ctx)) * number(_adjoint(ctx, 0, "adj_x")[-1])


@tells
def _svdf(ctx: Context) -> Types:
    filters = number(dims(ctx, 1)[0])
    rank = integer(ctx, "rank")
    if rank < 1 or filters % rank:
        raise CannotTell
    return ((dtype(ctx), (dims(ctx)[0], filters // rank)),)


@count
def _svdf_macs(ctx: Context) -> int:
    # Each filter is one product with the input, then one with its own past.
    filters, width = sizes(ctx, 1)
    return sizes(ctx)[0] * filters * (width + sizes(ctx, 2)[1])


@count
def _svdf_other(ctx: Context) -> int:
    # Filters of a unit are added up; then bias and activation.
    filters = sizes(ctx, 1)[0]
    units = prod(produced(ctx))
    return sizes(ctx)[0] * filters - units + units * (given(ctx, 3) + activation(ctx))


def _cells(ctx: Context) -> int:
    shape = sizes(ctx)
    return prod(shape[:-1])


def _sum_of(ctx: Context, positions: range | tuple[int, ...]) -> int:
    return sum(prod(sizes(ctx, at)) for at in positions if given(ctx, at))


@tells
def _rnn(ctx: Context) -> Types:
    return ((dtype(ctx), (*dims(ctx)[:-1], dims(ctx, 1)[0])),)


@count
def _rnn_macs(ctx: Context) -> int:
    return _cells(ctx) * _sum_of(ctx, (1, 2))


@count
def _rnn_other(ctx: Context) -> int:
    # The two products are added, then bias and activation.
    return prod(produced(ctx)) * (1 + given(ctx, 3) + activation(ctx))


# Operands of the full cell: input weights 1-4, recurrent 5-8, peepholes 9-11, biases 12-15,
# projection 16-17, states 18-19, layer normalisation 20-23. The first of each four is absent
# where the input gate is coupled to the forget gate.
@tells
def _lstm(ctx: Context) -> Types:
    if len(ctx.inputs) < 18:  # the basic kernel: one weight for all gates, state handed on
        if len(ctx.inputs) != 5:
            raise CannotTell
        state, gates = dims(ctx, 4), dims(ctx, 2)
        element = dtype(ctx)
        columns = number(dims(ctx, 0)[-1]) + number(dims(ctx, 1)[-1])
        scratch = (dims(ctx)[0], columns), (dims(ctx)[0], gates[0])
        return (
            (element, state),
            (dtype(ctx, 4), state),
            (element, scratch[0]),
            (element, scratch[1]),
        )
    width = dims(ctx, 6)[1]
    return ((dtype(ctx), (*dims(ctx)[:-1], width)),)


@count
def _lstm_macs(ctx: Context) -> int:
    if len(ctx.inputs) < 18:
        return sizes(ctx)[0] * _sum_of(ctx, (2,))
    return _cells(ctx) * _sum_of(ctx, (*range(1, 9), 16))


def _lstm_work(ctx: Context, shift: int) -> int:
    """Scalar operations of one cell whose operand 1 is at ``1 + shift``.

    Per unit: an activation for each gate and one for the state; sums of the two products, of a
    bias and of a peephole with its product; normalisation of a gate (mean, difference, square,
    mean, quotient, scale); three products and one sum for the new state.
    """
    units = sizes(ctx, 2 + shift)[0]
    gates = 3 + given(ctx, 1 + shift)
    per_unit = gates * 2 + 1 + 4
    per_unit += sum(given(ctx, at + shift) for at in range(12, 16))
    per_unit += 2 * sum(given(ctx, at + shift) for at in range(9, 12))
    per_unit += 6 * (sum(given(ctx, at) for at in range(20, 24)) if not shift else 0)
    projected = prod(sizes(ctx, 17 + shift)) if given(ctx, 17 + shift) else 0
    return units * per_unit + projected


@count
def _lstm_other(ctx: Context) -> int:
    if len(ctx.inputs) < 18:
        units = sizes(ctx, 4)[-1]
        return sizes(ctx)[0] * units * (4 * 2 + 1 + 4)
    return _cells(ctx) * _lstm_work(ctx, 0)


@tells
def _bidirectional_rnn(ctx: Context) -> Types:
    shape = dims(ctx)[:-1]
    forward, backward = dims(ctx, 1)[0], dims(ctx, 5)[0]
    if integer(ctx, "merge_outputs", 0):
        return ((dtype(ctx), (*shape, number(forward) + number(backward))),)
    return ((dtype(ctx), (*shape, forward)), (dtype(ctx), (*shape, backward)))


@count
def _bidirectional_rnn_macs(ctx: Context) -> int:
    # Forward weights, backward weights, then those of an auxiliary input.
    return _cells(ctx) * _sum_of(ctx, (1, 2, 5, 6, 10, 11))


@count
def _bidirectional_rnn_other(ctx: Context) -> int:
    units = sizes(ctx, 1)[0] + sizes(ctx, 5)[0]
    sums = 1 + given(ctx, 9)
    return _cells(ctx) * units * (sums + 1 + activation(ctx))


@tells
def _bidirectional_lstm(ctx: Context) -> Types:
    shape = dims(ctx)[:-1]
    forward, backward = dims(ctx, 6)[1], dims(ctx, 23)[1]
    if integer(ctx, "merge_outputs", 0):
        return ((dtype(ctx), (*shape, number(forward) + number(backward))),)
    return ((dtype(ctx), (*shape, forward)), (dtype(ctx), (*shape, backward)))


@count
def _bidirectional_lstm_macs(ctx: Context) -> int:
    # The second direction's operands follow the first's 17; projections are last in each.
    weights = (*range(1, 9), 16, *range(18, 26), 33, *range(40, 48))
    return _cells(ctx) * _sum_of(ctx, weights)


@count
def _bidirectional_lstm_other(ctx: Context) -> int:
    return _cells(ctx) * (_one_direction(ctx, 0) + _one_direction(ctx, 17))


def _one_direction(ctx: Context, shift: int) -> int:
    units = sizes(ctx, 2 + shift)[0]
    gates = 3 + given(ctx, 1 + shift)
    auxiliary = gates if given(ctx, 39) else 0
    per_unit = gates * 2 + 1 + 4 + auxiliary
    per_unit += sum(given(ctx, at + shift) for at in range(12, 16))
    per_unit += 2 * sum(given(ctx, at + shift) for at in range(9, 12))
    projected = prod(sizes(ctx, 17 + shift)) if given(ctx, 17 + shift) else 0
    return units * per_unit + projected


@tells
def _embedding(ctx: Context) -> Types:
    return ((dtype(ctx, 1), (*dims(ctx), *dims(ctx, 1)[1:])),)


@tells
def _dot_general(ctx: Context) -> Types:
    left, right = dims(ctx), dims(ctx, 1)
    batch, other = _named(ctx, "lhs_batching"), _named(ctx, "rhs_batching")
    inner, across = _named(ctx, "lhs_contracting"), _named(ctx, "rhs_contracting")
    rows = tuple(d for at, d in enumerate(left) if at not in {*batch, *inner})
    columns = tuple(d for at, d in enumerate(right) if at not in {*other, *across})
    return ((dtype(ctx), (*(left[at] for at in batch), *rows, *columns)),)


def _named(ctx: Context, which: str) -> tuple[int, ...]:
    return ctx.ints(f"{which}_dimensions") or ()


@count
def _dot_general_macs(ctx: Context) -> int:
    left = sizes(ctx)
    return prod(produced(ctx)) * prod(left[at] for at in _named(ctx, "lhs_contracting"))


@count
def _hlo_convolution_macs(ctx: Context) -> int:
    # One multiply-accumulate per output element and weight of its filter.
    weights = list(sizes(ctx, 1))
    del weights[integer(ctx, "kernel_output_feature_dimension", 0)]
    return prod(produced(ctx)) * prod(weights)


@count
def _l2_other(ctx: Context) -> int:
    # Square, sum, division, then the activation.
    return prod(sizes(ctx)) * (3 + activation(ctx))


ROWS: Final = (
    OpSpec("fully_connected", _fully_connected, workspace=unknown, macs=_fully_connected_macs,
           other_ops=fused(bias=2), engine="matrix"),
    OpSpec("batch_matmul", _batch_matmul, workspace=unknown, macs=_batch_matmul_macs,
           other_ops=zero, engine="matrix"),
    OpSpec("svdf", _svdf, workspace=unknown, macs=_svdf_macs, other_ops=_svdf_other,
           engine="matrix"),
    *(OpSpec(kind, _rnn, workspace=unknown, macs=_rnn_macs, other_ops=_rnn_other,
             engine="matrix") for kind in ("tfl_rnn", "unidirectional_sequence_rnn")),
    *(OpSpec(kind, _lstm, workspace=unknown, macs=_lstm_macs, other_ops=_lstm_other,
             engine="matrix") for kind in ("tfl_lstm", "unidirectional_sequence_lstm")),
    OpSpec("bidirectional_sequence_rnn", _bidirectional_rnn, workspace=unknown,
           macs=_bidirectional_rnn_macs, other_ops=_bidirectional_rnn_other, engine="matrix"),
    OpSpec("bidirectional_sequence_lstm", _bidirectional_lstm, workspace=unknown,
           macs=_bidirectional_lstm_macs, other_ops=_bidirectional_lstm_other, engine="matrix"),
    OpSpec("l2_normalization", same(), workspace=unknown, macs=zero, other_ops=_l2_other),
    OpSpec("embedding_lookup", _embedding, workspace=zero, macs=zero, other_ops=zero,
           bytes_moved=picked(1, 0), engine="copy"),
    OpSpec("stablehlo_dot_general", _dot_general, workspace=unknown, macs=_dot_general_macs,
           other_ops=zero, engine="matrix"),
    # Its output's shape depends on eight options; the file states it.
    OpSpec("stablehlo_convolution", None, workspace=unknown, macs=_hlo_convolution_macs,
           other_ops=zero, engine="matrix"),
)  # fmt: skip
