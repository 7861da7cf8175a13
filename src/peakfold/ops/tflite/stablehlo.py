"""StableHLO's operators in a TFLite file that are not those of other kinds under new names."""

from __future__ import annotations

from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ops.inference import dims, dtype, ints, needed, sizes
from peakfold.ops.moving import box_view, copies, inside, order_kept
from peakfold.ops.rules import (
    Types,
    axes_of,
    number,
    per_output,
    tells,
    unknown,
    views_or_none,
    zero,
)
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.standard.indexing import scatter, written_into


@tells
def _broadcast_in(ctx: Context) -> Types:
    return ((dtype(ctx), needed(ints(ctx, "shape"))),)


def _spans(ctx: Context) -> list[range]:
    """Positions that a slice takes from each axis."""
    names = ("start_indices", "limit_indices", "strides")
    start, stop, step = (needed(ints(ctx, name)) for name in names)
    return [range(a, b, s) for a, b, s in zip(start, stop, step, strict=True)]


@tells
def _slice(ctx: Context) -> Types:
    return ((dtype(ctx), tuple(len(span) for span in _spans(ctx))),)


@views_or_none
def _slice_view(ctx: Context) -> tuple[ViewFact, ...]:
    shape, spans = sizes(ctx), _spans(ctx)
    inside(shape, spans)
    return box_view(dtype(ctx), shape, spans)


@tells
def _dynamic_slice(ctx: Context) -> Types:
    return ((dtype(ctx), needed(ints(ctx, "slice_sizes"))),)


@tells
def _pad(ctx: Context) -> Types:
    shape = dims(ctx)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    zeros = (0,) * len(shape)
    low, high, inner = (ctx.ints(name) or zeros for name in names)
    out = tuple(
        number(d) + a + b + max(number(d) - 1, 0) * i
        for d, a, b, i in zip(shape, low, high, inner, strict=True)
    )
    return ((dtype(ctx), out),)


def _permutation(ctx: Context) -> tuple[int, ...]:
    return axes_of(needed(ctx.ints("permutation")), len(dims(ctx)))


@tells
def _transpose(ctx: Context) -> Types:
    shape = dims(ctx)
    return ((dtype(ctx), tuple(shape[at] for at in _permutation(ctx))),)


@views_or_none
def _transpose_view(ctx: Context) -> tuple[ViewFact, ...]:
    return order_kept(ctx, _permutation(ctx))


ROWS: Final = (
    copies("stablehlo_broadcast_in_dim", _broadcast_in),
    copies("stablehlo_slice", _slice, _slice_view),
    copies("stablehlo_dynamic_slice", _dynamic_slice),
    scatter("stablehlo_dynamic_update_slice", moved=written_into),
    copies("stablehlo_pad", _pad),
    copies("stablehlo_transpose", _transpose, _transpose_view),
    # Shapes that depend on many options: the file states them.
    copies("stablehlo_gather", None),
    OpSpec("stablehlo_iota", None, workspace=zero, macs=zero, other_ops=per_output()),
    *(
        OpSpec(kind, None, workspace=unknown, macs=zero, other_ops=unknown)
        for kind in (
            "stablehlo_reduce",
            "stablehlo_reduce_window",
            "reduce_window",
            "stablehlo_scatter",
            "stablehlo_sort",
        )
    ),
)
