"""Ops that rename positions: reshape family, transpose, repetition.

Those that keep every byte where it is are views of their input. The rest are copies: no
scratch, no arithmetic, charged to the copy engine.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ir.types import DTYPES, Dim, Shape, element_count
from peakfold.ops.inference import CannotTell, Misfit, dims, dtype, integer, ints, needed, operand
from peakfold.ops.moving import copies, order_kept, scaled
from peakfold.ops.rules import (
    BOOL,
    INT64,
    Types,
    axes_of,
    axis_of,
    broadcast,
    count,
    elements,
    number,
    product,
    quotient,
    same,
    tells,
    views_or_none,
    whole,
    zero,
)
from peakfold.ops.spec import Context, OpSpec, ShapeRule


@tells
def _reshape(ctx: Context) -> Types:
    source = dims(ctx)
    target = needed(ints(ctx, "shape"))
    keep_zero = integer(ctx, "allowzero", 0)
    out: list[Dim] = [
        source[at] if size == 0 and not keep_zero else size for at, size in enumerate(target)
    ]
    if -1 in out:
        at = out.index(-1)
        out[at] = quotient(source, out[:at] + out[at + 1 :])
    if element_count(source) is not None and element_count(tuple(out)) != element_count(source):
        raise Misfit(f"{element_count(source)} elements for {element_count(tuple(out))}")
    return ((dtype(ctx), tuple(out)),)


@tells
def _flatten(ctx: Context) -> Types:
    shape, axis = dims(ctx), integer(ctx, "axis", 1)
    axis = axis if axis == len(shape) else axis_of(axis, len(shape))
    return ((dtype(ctx), (product(shape[:axis]), product(shape[axis:]))),)


@tells
def _squeeze(ctx: Context) -> Types:
    shape, axes = dims(ctx), ints(ctx, "axes")
    if axes is None:
        drop = {at for at, dim in enumerate(shape) if number(dim) == 1}
    else:
        drop = set(axes_of(axes, len(shape)))
        if any(isinstance(shape[at], int) and shape[at] != 1 for at in drop):
            raise CannotTell
    return ((dtype(ctx), tuple(dim for at, dim in enumerate(shape) if at not in drop)),)


@tells
def _unsqueeze(ctx: Context) -> Types:
    shape, axes = dims(ctx), needed(ints(ctx, "axes"))
    rank = len(shape) + len(axes)
    put, rest = set(axes_of(axes, rank)), iter(shape)
    return ((dtype(ctx), tuple(1 if at in put else next(rest) for at in range(rank))),)


def _permutation(ctx: Context) -> tuple[int, ...]:
    rank = len(dims(ctx))
    perm = ints(ctx, "perm")
    perm = tuple(reversed(range(rank))) if perm is None else axes_of(perm, rank)
    if len(perm) != rank:
        raise CannotTell
    return perm


@tells
def _transpose(ctx: Context) -> Types:
    shape = dims(ctx)
    return ((dtype(ctx), tuple(shape[at] for at in _permutation(ctx))),)


@views_or_none
def _moves_unit_axes(ctx: Context) -> tuple[ViewFact, ...]:
    return order_kept(ctx, _permutation(ctx))


@tells
def _expand(ctx: Context) -> Types:
    return ((dtype(ctx), broadcast(dims(ctx), needed(ints(ctx, "shape")))),)


@tells
def _tile(ctx: Context) -> Types:
    shape, repeats = dims(ctx), needed(ints(ctx, "repeats"))
    return ((dtype(ctx), tuple(scaled(d, r) for d, r in zip(shape, repeats, strict=True))),)


@views_or_none
def _nothing_repeated(ctx: Context) -> tuple[ViewFact, ...]:
    # Without repetition the element count stays, and row-major order with it.
    source, result = operand(ctx, 0), ctx.outputs[0]
    if result is None or source.shape is None or result.shape is None:
        return ()
    equal = source.shape == result.shape
    counted = source.elements is not None and source.elements == result.elements
    return whole(ctx) if equal or counted else ()


@views_or_none
def _dropout_view(ctx: Context) -> tuple[ViewFact, ...]:
    return () if integer(ctx, "training_mode", 0) else whole(ctx)


@count
def _dropout_other(ctx: Context) -> int:
    # In training the mask is multiplied in, and what is kept is scaled.
    return 2 * elements(ctx) if integer(ctx, "training_mode", 0) else 0


@tells
def _dropout(ctx: Context) -> Types:
    shape = dims(ctx)
    # Before version 10 the mask had X's type; the front end says so in `mask_dtype`.
    mask = DTYPES.get(str(ctx.attr("mask_dtype")), BOOL)
    return ((dtype(ctx), shape), (mask, shape))


@tells
def _depth_to_space(ctx: Context) -> Types:
    shape, block = dims(ctx), integer(ctx, "blocksize")
    batch, channels, height, width = shape
    depth = number(channels)
    if depth % block**2:
        raise CannotTell
    out: Shape = (batch, depth // block**2, scaled(height, block), scaled(width, block))
    return ((dtype(ctx), out),)


@tells
def _space_to_depth(ctx: Context) -> Types:
    batch, channels, height, width = dims(ctx)
    block = integer(ctx, "blocksize")
    if number(height) % block or number(width) % block:
        raise CannotTell
    spatial = (number(height) // block, number(width) // block)
    return ((dtype(ctx), (batch, number(channels) * block**2, *spatial)),)


@views_or_none
def _unit_block(ctx: Context) -> tuple[ViewFact, ...]:
    return whole(ctx) if integer(ctx, "blocksize") == 1 else ()


@tells
def _shape_of(ctx: Context) -> Types:
    rank = len(dims(ctx))
    start, stop = integer(ctx, "start", 0), integer(ctx, "end", rank)
    return ((INT64, (len(range(rank)[start:stop]),)),)


@tells
def _size_of(ctx: Context) -> Types:
    operand(ctx, 0)
    return ((INT64, ()),)


def _view(kind: str, shape: ShapeRule) -> OpSpec:
    return OpSpec(
        kind, shape, views=whole, workspace=zero, macs=zero, other_ops=zero, engine="none"
    )


ROWS: Final = (
    _view("reshape", _reshape),
    _view("flatten", _flatten),
    _view("squeeze", _squeeze),
    _view("unsqueeze", _unsqueeze),
    copies("transpose", _transpose, _moves_unit_axes),
    copies("expand", _expand, _nothing_repeated),
    copies("tile", _tile, _nothing_repeated),
    copies("depth_to_space", _depth_to_space, _unit_block),
    copies("space_to_depth", _space_to_depth, _unit_block),
    OpSpec("identity", same(), inplace=(0,), views=whole, workspace=zero, macs=zero,
           other_ops=zero, engine="none"),
    # Not pure: in training mode the mask is random.
    OpSpec("dropout", _dropout, inplace=(0,), views=_dropout_view, workspace=zero, macs=zero,
           other_ops=_dropout_other, engine="vector", pure=False),
    OpSpec("shape", _shape_of, workspace=zero, macs=zero, other_ops=zero, engine="none",
           shape_only=True),
    OpSpec("size", _size_of, workspace=zero, macs=zero, other_ops=zero, engine="none",
           shape_only=True),
)  # fmt: skip
