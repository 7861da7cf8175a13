"""TFLite's operators that cut and stack: slices, splits, pack and unpack.

A piece that is one run of its operand's bytes is a view; a stack along the outermost axis has
its operands as parts.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ops.inference import CannotTell, dims, dtype, integer, ints, needed, produced, sizes
from peakfold.ops.moving import box_view, copies, cut_types, cut_views, inside, whole_bytes
from peakfold.ops.rules import (
    Types,
    axis_of,
    number,
    parts_or_none,
    tells,
    views_or_none,
    whole,
)
from peakfold.ops.spec import Context


def _spans(ctx: Context, shape: tuple[int, ...]) -> tuple[list[range], list[int | None]]:
    """A strided slice: positions per input axis, and which input axis each output axis is.

    `None` marks a new axis of length 1. Bit k of a mask speaks of entry k of the operands.
    """
    begin, end, step = (needed(ints(ctx, name)) for name in ("begin", "end", "strides"))
    if not len(begin) == len(end) == len(step) or 0 in step:
        raise CannotTell
    masks = {
        name: integer(ctx, f"{name}_mask", 0)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    spans: list[range] = []
    kept: list[int | None] = []
    news = sum(masks["new_axis"] >> at & 1 for at in range(len(begin)))
    dots = sum(masks["ellipsis"] >> at & 1 for at in range(len(begin)))
    filler = len(shape) - (len(begin) - news - dots)
    if filler < 0 or dots > 1:
        raise CannotTell
    for at, (low, high, stride) in enumerate(zip(begin, end, step, strict=True)):
        on = {name: bool(mask >> at & 1) for name, mask in masks.items()}
        if on["ellipsis"]:
            for _ in range(filler):
                kept.append(len(spans))
                spans.append(range(shape[len(spans)]))
        elif on["new_axis"]:
            kept.append(None)
        else:
            span = _span(shape[len(spans)], low, high, stride, on, integer(ctx, "offset", 0))
            if not on["shrink_axis"]:
                kept.append(len(spans))
            spans.append(span)
    for size in shape[len(spans) :]:
        kept.append(len(spans))
        spans.append(range(size))
    return spans, kept


def _span(size: int, low: int, high: int, stride: int, on: dict[str, bool], offset: int) -> range:
    """Positions taken from an axis, as the interpreters' kernels clamp and mask them.

    A masked begin starts at the edge even where the axis is dropped; an end may be counted
    from the begin (`offset`).
    """
    least, most = (0, size) if stride > 0 else (-1, size - 1)
    start = min(max(low + size if low < 0 else low, least), most)
    if on["begin"]:
        start = 0 if stride > 0 else size - 1
    if on["shrink_axis"]:
        if not 0 <= start < size:
            raise CannotTell
        return range(start, start + 1)
    stop = high + start if offset else high + size if high < 0 else high
    stop = min(max(stop, least), most)
    if on["end"]:
        stop = size if stride > 0 else -1
    return range(start, stop, stride)


@tells
def _strided_slice(ctx: Context) -> Types:
    spans, kept = _spans(ctx, sizes(ctx))
    return ((dtype(ctx), tuple(1 if axis is None else len(spans[axis]) for axis in kept)),)


@views_or_none
def _strided_view(ctx: Context) -> tuple[ViewFact, ...]:
    shape = sizes(ctx)
    spans, _ = _spans(ctx, shape)
    return box_view(dtype(ctx), shape, spans)


@tells
def _slice(ctx: Context) -> Types:
    begin, size = needed(ints(ctx, "begin")), needed(ints(ctx, "size"))
    out = tuple(
        length if length >= 0 else number(dim) - low
        for dim, low, length in zip(dims(ctx), begin, size, strict=True)
    )
    return ((dtype(ctx), out),)


@views_or_none
def _slice_view(ctx: Context) -> tuple[ViewFact, ...]:
    shape, begin, out = sizes(ctx), needed(ints(ctx, "begin")), produced(ctx)
    spans = [range(low, low + length) for low, length in zip(begin, out, strict=True)]
    inside(shape, spans)
    return box_view(dtype(ctx), shape, spans)


def _cut(ctx: Context) -> tuple[int, int, list[int]]:
    """A split: operand, axis, and lengths of its pieces."""
    count_of = len(ctx.op.outputs)
    if ctx.op.kind == "tfl_split":
        shape = dims(ctx, 1)
        axis = axis_of(integer(ctx, "axis"), len(shape))
        size = number(shape[axis])
        if count_of == 0 or size % count_of:
            raise CannotTell
        return 1, axis, [size // count_of] * count_of
    shape = dims(ctx)
    axis = axis_of(integer(ctx, "axis"), len(shape))
    lengths = list(needed(ints(ctx, "split")))
    if lengths.count(-1) == 1:
        rest = number(shape[axis]) - sum(n for n in lengths if n >= 0)
        lengths[lengths.index(-1)] = rest
    if len(lengths) != count_of or min(lengths) < 0 or sum(lengths) != number(shape[axis]):
        raise CannotTell
    return 0, axis, lengths


@tells
def _split(ctx: Context) -> Types:
    return cut_types(ctx, *_cut(ctx))


@views_or_none
def _split_views(ctx: Context) -> tuple[ViewFact, ...]:
    return cut_views(ctx, *_cut(ctx))


@tells
def _pack(ctx: Context) -> Types:
    shape = dims(ctx)
    if any(len(dims(ctx, at)) != len(shape) for at in range(len(ctx.inputs))):
        raise CannotTell
    axis = axis_of(integer(ctx, "axis", 0), len(shape) + 1)
    return ((dtype(ctx), (*shape[:axis], len(ctx.inputs), *shape[axis:])),)


@parts_or_none
def _pack_parts(ctx: Context) -> tuple[ViewFact, ...]:
    shape = sizes(ctx)
    axis = axis_of(integer(ctx, "axis", 0), len(shape) + 1)
    if len(ctx.inputs) > 1 and prod(shape[:axis]) != 1:
        return ()
    each = prod(shape)
    return tuple(
        ViewFact(0, at, whole_bytes(dtype(ctx), at * each)) for at in range(len(ctx.inputs))
    )


@views_or_none
def _lone(ctx: Context) -> tuple[ViewFact, ...]:
    return whole(ctx) if len(ctx.inputs) == 1 else ()


@tells
def _unpack(ctx: Context) -> Types:
    shape = dims(ctx)
    axis = axis_of(integer(ctx, "axis", 0), len(shape))
    if number(shape[axis]) != len(ctx.op.outputs):
        raise CannotTell
    return ((dtype(ctx), (*shape[:axis], *shape[axis + 1 :])),) * len(ctx.op.outputs)


@views_or_none
def _unpack_views(ctx: Context) -> tuple[ViewFact, ...]:
    axis = axis_of(integer(ctx, "axis", 0), len(dims(ctx)))
    return cut_views(ctx, 0, axis, [1] * len(ctx.op.outputs))


ROWS: Final = (
    copies("strided_slice", _strided_slice, _strided_view),
    copies("tfl_slice", _slice, _slice_view),
    copies("tfl_split", _split, _split_views),
    copies("split_v", _split, _split_views),
    copies("pack", _pack, _lone, parts=_pack_parts),
    copies("unpack", _unpack, _unpack_views),
)
