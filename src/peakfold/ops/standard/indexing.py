"""Ops that pick, place or rank elements by index: gather, scatter, top-k, one-hot, scans.

Picking reads anywhere, so nothing here may overwrite what it picks from; a scatter passes its
data operand through position by position, so it may. Ranking costs one comparison per element
and level of a heap of the k best; other selections cost what the kernel's algorithm costs, so
`other_ops` is unknown for them.
"""

from __future__ import annotations

from typing import Final

from peakfold.ops.inference import CannotTell, Misfit, dims, dtype, integer, text
from peakfold.ops.rules import (
    INT64,
    Types,
    axis_of,
    count,
    elements,
    moves,
    per_input,
    per_output,
    same,
    size_of,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, CountRule, MoveRule, OpSpec


@tells
def _gather(ctx: Context) -> Types:
    data, indices = dims(ctx, 0), dims(ctx, 1)
    axis = axis_of(integer(ctx, "axis", 0), len(data))
    return ((dtype(ctx), (*data[:axis], *indices, *data[axis + 1 :])),)


@tells
def _gather_elements(ctx: Context) -> Types:
    return ((dtype(ctx), dims(ctx, 1)),)


@tells
def _gather_nd(ctx: Context) -> Types:
    data, indices, batch = dims(ctx, 0), dims(ctx, 1), integer(ctx, "batch_dims", 0)
    taken = indices[-1]
    if isinstance(taken, str) or batch + taken > len(data):
        raise CannotTell
    if not 0 <= batch < min(len(data), len(indices)):
        raise Misfit(f"{batch} batch dimensions")
    return ((dtype(ctx), (*indices[:-1], *data[batch + taken :])),)


@tells
def _one_hot(ctx: Context) -> Types:
    indices, depth = dims(ctx), integer(ctx, "depth")
    axis = axis_of(integer(ctx, "axis", -1), len(indices) + 1)
    return ((dtype(ctx, 2), (*indices[:axis], depth, *indices[axis:])),)


@tells
def _top_k(ctx: Context) -> Types:
    shape, k = dims(ctx), integer(ctx, "k")
    axis = axis_of(integer(ctx, "axis", -1), len(shape))
    size = shape[axis]
    if isinstance(size, int) and k > size:
        raise CannotTell
    out = (*shape[:axis], k, *shape[axis + 1 :])
    return ((dtype(ctx), out), (INT64, out))


@tells
def _arg_reduce(ctx: Context) -> Types:
    shape = dims(ctx)
    axis = axis_of(integer(ctx, "axis", 0), len(shape))
    kept = (1,) if integer(ctx, "keepdims", 1) else ()
    return ((INT64, (*shape[:axis], *kept, *shape[axis + 1 :])),)


@count
def _updates(ctx: Context) -> int:
    # One operation per update that is combined with what it replaces; plain stores are free.
    return 0 if text(ctx, "reduction", "none") == "none" else elements(ctx, 2)


def picked(data: int = 0, indices: int = 1) -> MoveRule:
    """Bytes of a gather: the indices and what they pick, at most all of the data."""

    def rule(ctx: Context) -> tuple[int, int]:
        result = size_of(ctx.outputs[0])
        return size_of(ctx.inputs[indices]) + min(result, size_of(ctx.inputs[data])), result

    return moves(rule)


@moves
def _placed(ctx: Context) -> tuple[int, int]:
    # Indices and updates; a reduction also reads what it combines them with.
    updates = size_of(ctx.inputs[2])
    combined = updates if text(ctx, "reduction", "none") != "none" else 0
    return size_of(ctx.inputs[1]) + updates + combined, updates


@moves
def written_into(ctx: Context) -> tuple[int, int]:
    """Bytes of writing operand 1 into a part of operand 0, at a place that others state."""
    update = size_of(ctx.inputs[1])
    return update + sum(size_of(tensor) for tensor in ctx.inputs[2:]), update


@count
def _heap_comparisons(ctx: Context) -> int:
    return elements(ctx) * max(integer(ctx, "k").bit_length(), 1)


def scatter(kind: str, other: CountRule = zero, moved: MoveRule = _placed) -> OpSpec:
    """A row whose first operand stays but for the elements that others are written over."""
    return OpSpec(
        kind,
        same(),
        inplace=(0,),
        workspace=zero,
        macs=zero,
        other_ops=other,
        bytes_moved=moved,
        engine="copy",
    )


ROWS: Final = (
    *(
        OpSpec(
            kind,
            shape,
            workspace=zero,
            macs=zero,
            other_ops=zero,
            bytes_moved=picked(),
            engine="copy",
        )
        for kind, shape in (
            ("gather", _gather),
            ("gather_elements", _gather_elements),
            ("gather_nd", _gather_nd),
        )
    ),
    scatter("scatter", _updates),
    scatter("scatter_elements", _updates),
    scatter("scatter_nd", _updates),
    scatter("tensor_scatter", moved=written_into),
    OpSpec("one_hot", _one_hot, workspace=zero, macs=zero, other_ops=zero, engine="copy"),
    OpSpec("reverse_sequence", same(), workspace=zero, macs=zero, other_ops=zero, engine="copy"),
    # A triangle keeps or clears each element where it stands.
    OpSpec("trilu", same(), inplace=(0,), workspace=zero, macs=zero, other_ops=zero, engine="copy"),
    # A running sum can be kept in a register; parallel kernels split it and need partial sums.
    OpSpec("cum_sum", same(), workspace=unknown, macs=zero, other_ops=per_output()),
    OpSpec("cum_prod", same(), workspace=unknown, macs=zero, other_ops=per_output()),
    OpSpec("top_k", _top_k, workspace=unknown, macs=zero, other_ops=_heap_comparisons),
    OpSpec("arg_max", _arg_reduce, workspace=unknown, macs=zero, other_ops=per_input()),
    OpSpec("arg_min", _arg_reduce, workspace=unknown, macs=zero, other_ops=per_input()),
    # How many elements come out is known to the run only: no shape rule.
    OpSpec("non_zero", None, workspace=unknown, macs=zero, other_ops=per_input()),
    OpSpec("unique", None, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("non_max_suppression", None, workspace=unknown, macs=zero, other_ops=unknown),
)
