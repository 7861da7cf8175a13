"""TFLite's operators over space: blocks to and from channels and batches, resizing, dilation.

Layout is batch, rows, columns, channels.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ir.types import Dim
from peakfold.ops.inference import CannotTell, dims, dtype, integer, ints, needed, produced, sizes
from peakfold.ops.moving import copies, scaled
from peakfold.ops.rules import Types, count, number, tells, unknown, views_or_none, whole, zero
from peakfold.ops.spec import Context, OpSpec


@tells
def _depth_to_space(ctx: Context) -> Types:
    batch, height, width, channels = dims(ctx)
    block = integer(ctx, "block_size")
    depth = number(channels)
    if block < 1 or depth % block**2:
        raise CannotTell
    return ((dtype(ctx), (batch, scaled(height, block), scaled(width, block), depth // block**2)),)


@tells
def _space_to_depth(ctx: Context) -> Types:
    batch, height, width, channels = dims(ctx)
    block = integer(ctx, "block_size")
    if block < 1 or number(height) % block or number(width) % block:
        raise CannotTell
    out = (batch, number(height) // block, number(width) // block, number(channels) * block**2)
    return ((dtype(ctx), out),)


@views_or_none
def _unit_block(ctx: Context) -> tuple[ViewFact, ...]:
    return whole(ctx) if integer(ctx, "block_size") == 1 else ()


def _blocks(ctx: Context, edge: str) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Block shape, and the amounts before and after every blocked axis."""
    block, amounts = needed(ints(ctx, "block_shape")), needed(ints(ctx, edge))
    if len(amounts) != 2 * len(block) or min(block, default=1) < 1 or min(amounts, default=0) < 0:
        raise CannotTell
    return block, list(zip(amounts[::2], amounts[1::2], strict=True))


@tells
def _space_to_batch(ctx: Context) -> Types:
    batch, *rest = dims(ctx)
    block, pads = _blocks(ctx, "paddings")
    out: list[Dim] = []
    for dim, size, (before, after) in zip(rest, block, pads, strict=False):
        padded = number(dim) + before + after
        if padded % size:
            raise CannotTell
        out.append(padded // size)
    return ((dtype(ctx), (scaled(batch, prod(block)), *out, *rest[len(block) :])),)


@tells
def _batch_to_space(ctx: Context) -> Types:
    batch, *rest = dims(ctx)
    block, crops = _blocks(ctx, "crops")
    if number(batch) % prod(block):
        raise CannotTell
    out = [
        number(dim) * size - before - after
        for dim, size, (before, after) in zip(rest, block, crops, strict=False)
    ]
    return ((dtype(ctx), (number(batch) // prod(block), *out, *rest[len(block) :])),)


@tells
def _resized(ctx: Context) -> Types:
    batch, _, _, channels = dims(ctx)
    height, width = needed(ints(ctx, "size"))
    return ((dtype(ctx), (batch, height, width, channels)),)


@count
def _bilinear_other(ctx: Context) -> int:
    # Four neighbours, weighted and summed.
    return 8 * prod(produced(ctx))


@views_or_none
def _same_size(ctx: Context) -> tuple[ViewFact, ...]:
    # Nearest of the same size is a copy whichever way centres and corners are taken.
    return whole(ctx) if sizes(ctx) == produced(ctx) else ()


@tells
def _dilated(ctx: Context) -> Types:
    steps = needed(ints(ctx, "dilations"))
    out = tuple(
        (number(d) - 1) * s + 1 if number(d) else 0 for d, s in zip(dims(ctx), steps, strict=True)
    )
    return ((dtype(ctx), out),)


ROWS: Final = (
    copies("tfl_depth_to_space", _depth_to_space, _unit_block),
    copies("tfl_space_to_depth", _space_to_depth, _unit_block),
    copies("space_to_batch_nd", _space_to_batch),
    copies("batch_to_space_nd", _batch_to_space),
    OpSpec("resize_bilinear", _resized, workspace=unknown, macs=zero, other_ops=_bilinear_other),
    copies("resize_nearest_neighbor", _resized, _same_size),
    copies("dilate", _dilated),
)
