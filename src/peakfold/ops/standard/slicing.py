"""Ops that cut and join tensors: slice, split, pad, concat.

A piece is a view when its bytes are one run inside the whole; a joined tensor has parts when
every operand is one run inside the result. Offsets are bytes.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ir.types import Dim
from peakfold.ops.inference import (
    CannotTell,
    Misfit,
    dims,
    dtype,
    integer,
    ints,
    needed,
    operand,
    sizes,
)
from peakfold.ops.moving import box_view, copies, cut_types, cut_views, whole_bytes
from peakfold.ops.rules import (
    Types,
    axes_of,
    axis_of,
    number,
    parts_or_none,
    tells,
    unknown,
    views_or_none,
    whole,
    zero,
)
from peakfold.ops.spec import Context, OpSpec

# Exporters write "until the end" as the largest number of the index type.
_TO_THE_END: Final = 2**31 - 1


def _ranges(ctx: Context, rank: int) -> dict[int, tuple[int, int, int]]:
    """Start, end and step of every sliced axis, as written."""
    starts, ends = needed(ints(ctx, "starts")), needed(ints(ctx, "ends"))
    axes = ints(ctx, "axes")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = ints(ctx, "steps") or (1,) * len(starts)
    where = axes_of(axes, rank)
    return {a: (s, e, t) for a, s, e, t in zip(where, starts, ends, steps, strict=True)}


def _span(size: int, start: int, end: int, step: int) -> range:
    """Positions taken from an axis: Python's slice semantics, which ONNX shares but for one case.

    A backward slice that starts before the front is one element by the specification's clamp
    and none by its reference implementation, so nothing is claimed about it.
    """
    if step < 0 and start < -size:
        raise CannotTell
    return range(size)[start:end:step]


@tells
def _slice(ctx: Context) -> Types:
    shape = list(dims(ctx))
    for axis, (start, end, step) in _ranges(ctx, len(shape)).items():
        dim = shape[axis]
        if isinstance(dim, str):
            if (start, step) != (0, 1) or end < _TO_THE_END:
                raise CannotTell
            continue
        shape[axis] = len(_span(dim, start, end, step))
    return ((dtype(ctx), tuple(shape)),)


@views_or_none
def _slice_view(ctx: Context) -> tuple[ViewFact, ...]:
    shape = sizes(ctx)
    spans = [range(size) for size in shape]
    for axis, written in _ranges(ctx, len(shape)).items():
        spans[axis] = _span(shape[axis], *written)
    return box_view(dtype(ctx), shape, spans)


def _pieces(ctx: Context, size: int) -> tuple[int, ...]:
    """Lengths of a split's outputs: as stated, else equal with a shorter last one."""
    stated = ints(ctx, "split")
    if stated is not None:
        if sum(stated) != size or min(stated, default=0) < 0:
            raise CannotTell
        return stated
    parts = integer(ctx, "num_outputs", len(ctx.op.outputs))
    if parts != len(ctx.op.outputs):
        raise Misfit(f"{parts} pieces for {len(ctx.op.outputs)} results")
    each = -(-size // parts)
    return tuple(max(min(each, size - at * each), 0) for at in range(parts))


def _cut(ctx: Context) -> tuple[int, tuple[int, ...]]:
    """A split: axis, and lengths of its pieces."""
    shape = dims(ctx)
    axis = axis_of(integer(ctx, "axis", 0), len(shape))
    return axis, _pieces(ctx, number(shape[axis]))


@tells
def _split(ctx: Context) -> Types:
    return cut_types(ctx, 0, *_cut(ctx))


@views_or_none
def _split_views(ctx: Context) -> tuple[ViewFact, ...]:
    return cut_views(ctx, 0, *_cut(ctx))


def _padding(ctx: Context, rank: int) -> list[tuple[int, int]]:
    """Elements put before and after every axis (negative: cut)."""
    pads = ints(ctx, "pads")
    pads = needed(ints(ctx, "paddings") if pads is None else pads)
    axes = ints(ctx, "axes")
    where = tuple(range(rank)) if axes is None else axes_of(axes, rank)
    if len(pads) != 2 * len(where):
        raise CannotTell
    found = [(0, 0)] * rank
    for at, axis in enumerate(where):
        found[axis] = (pads[at], pads[at + len(where)])
    return found


@tells
def _pad(ctx: Context) -> Types:
    shape = dims(ctx)
    out: list[Dim] = []
    for dim, (before, after) in zip(shape, _padding(ctx, len(shape)), strict=True):
        out.append(dim if before == after == 0 else number(dim) + before + after)
    return ((dtype(ctx), tuple(out)),)


@views_or_none
def _pad_view(ctx: Context) -> tuple[ViewFact, ...]:
    if all(pair == (0, 0) for pair in _padding(ctx, len(dims(ctx)))):
        return whole(ctx)
    shape = sizes(ctx)
    pads = _padding(ctx, len(shape))
    if any(before > 0 or after > 0 for before, after in pads):
        return ()
    spans = [range(-b, size + a) for size, (b, a) in zip(shape, pads, strict=True)]
    return box_view(dtype(ctx), shape, spans)


@tells
def _center_crop_pad(ctx: Context) -> Types:
    shape, target = list(dims(ctx)), needed(ints(ctx, "shape"))
    axes = ints(ctx, "axes")
    where = tuple(range(len(shape))) if axes is None else axes_of(axes, len(shape))
    for axis, size in zip(where, target, strict=True):
        shape[axis] = size
    return ((dtype(ctx), tuple(shape)),)


def joined(ctx: Context, positions: range, axis: int) -> Types:
    """Type of operands joined along `axis`; a lone operand may have a symbol there.

    Raises:
        Misfit: ranks or dimensions off the axis differ.
        CannotTell: two symbols would have to be added.
    """
    shapes = [dims(ctx, at) for at in positions]
    first = shapes[0]
    axis = axis_of(axis, len(first))
    out: list[Dim] = []
    for at, column in enumerate(zip(*shapes, strict=True)):
        if at == axis:
            out.append(column[0] if len(column) == 1 else sum(number(dim) for dim in column))
            continue
        named = set(column)
        if len({dim for dim in named if isinstance(dim, int)}) > 1:
            raise Misfit(f"they differ in dimension {at}, off the axis")
        # Operands agree off the axis, so one number settles what symbols beside it must be.
        out.append(next((dim for dim in column if isinstance(dim, int)), column[0]))
    if any(len(shape) != len(first) for shape in shapes):
        raise Misfit("their ranks differ")
    return ((dtype(ctx, positions[0]), tuple(out)),)


@tells
def _concat(ctx: Context) -> Types:
    return joined(ctx, range(len(ctx.inputs)), integer(ctx, "axis", 1))


@views_or_none
def _lone_part(ctx: Context) -> tuple[ViewFact, ...]:
    operand(ctx, 0)
    return whole(ctx) if len(ctx.inputs) == 1 else ()


@parts_or_none
def _concat_parts(ctx: Context) -> tuple[ViewFact, ...]:
    shapes = [sizes(ctx, at) for at in range(len(ctx.inputs))]
    axis = axis_of(integer(ctx, "axis", 1), len(shapes[0]))
    filled = sum(prod(shape) > 0 for shape in shapes)
    if filled > 1 and any(size != 1 for size in shapes[0][:axis]):
        return ()
    element, before = dtype(ctx), 0
    found: list[ViewFact] = []
    for at, shape in enumerate(shapes):
        count = prod(shape)
        if count:
            # Only the last operand may end inside a byte: the next one could not start there.
            found.append(ViewFact(0, at, whole_bytes(element, before)))
        before += count
    return tuple(found)


ROWS: Final = (
    copies("slice", _slice, _slice_view),
    copies("split", _split, _split_views),
    copies("pad", _pad, _pad_view),
    copies("center_crop_pad", _center_crop_pad),
    copies("concat", _concat, _lone_part, parts=_concat_parts),
    # How many slices survive is known to the run only.
    OpSpec("compress", None, workspace=unknown, macs=zero, other_ops=zero, engine="copy"),
)
