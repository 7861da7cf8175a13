"""TFLite's operators that move elements: slices, stacks, blocks of space, gathers, fills.

A piece that is one run of its operand's bytes is a view; a stack along the outermost axis has
its operands as parts.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ir.types import DTYPES, Dim, Shape
from peakfold.ops.indexing import picked, written_into
from peakfold.ops.rules import (
    Types,
    axes_of,
    axis_of,
    broadcast,
    count,
    number,
    parts_or_none,
    per_input,
    per_output,
    run_offset,
    same,
    tells,
    unknown,
    views_or_none,
    whole,
    whole_bytes,
    zero,
)
from peakfold.ops.spec import Context, MoveRule, OpSpec, ShapeRule, ViewRule
from peakfold.ops.values import (
    CannotTell,
    dims,
    dtype,
    integer,
    ints,
    needed,
    produced,
    sizes,
    wanted,
)

_INT32: Final = DTYPES["int32"]


def _spans(ctx: Context, shape: tuple[int, ...]) -> tuple[list[range], list[int | None]]:
    """A strided slice: positions per input axis, and which input axis each output axis is.

    `None` marks a new axis of length 1. Bit k of a mask speaks of entry k of the operands.
    """
    begin, end, step = (needed(ints(ctx, name)) for name in ("begin", "end", "strides"))
    if not len(begin) == len(end) == len(step) or 0 in step:
        raise CannotTell
    masks = {name: integer(ctx, f"{name}_mask", 0)
             for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
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


def _span(
    size: int, low: int, high: int, stride: int, on: dict[str, bool], offset: int
) -> range:  # fmt: skip
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
    return _box(ctx, 0, 0, shape, spans)


def _box(
    ctx: Context, output: int, source: int, shape: tuple[int, ...], spans: list[range]
) -> tuple[ViewFact, ...]:
    if any(len(span) > 1 and span.step != 1 for span in spans):
        return ()
    starts, lengths = tuple(s.start for s in spans), tuple(len(s) for s in spans)
    offset = run_offset(shape, starts, lengths)
    element = dtype(ctx, source)
    if lengths != shape:
        whole_bytes(element, prod(lengths))
    return (ViewFact(output, source, whole_bytes(element, offset)),)


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
    if any(s.start < 0 or s.stop > size for s, size in zip(spans, shape, strict=True)):
        raise CannotTell
    return _box(ctx, 0, 0, shape, spans)


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
    source, axis, lengths = _cut(ctx)
    shape = dims(ctx, source)
    return tuple((dtype(ctx, source), (*shape[:axis], n, *shape[axis + 1 :])) for n in lengths)


@views_or_none
def _split_views(ctx: Context) -> tuple[ViewFact, ...]:
    source, axis, lengths = _cut(ctx)
    shape = sizes(ctx, source)
    found: list[ViewFact] = []
    start = 0
    for at, length in enumerate(lengths):
        spans = [range(size) for size in shape]
        spans[axis] = range(start, start + length)
        start += length
        if wanted(ctx, at):
            found += _claimed(ctx, at, source, shape, spans)
    return tuple(found)


def _claimed(
    ctx: Context, at: int, source: int, shape: tuple[int, ...], spans: list[range]
) -> tuple[ViewFact, ...]:
    # A piece that is empty or off a byte boundary is no view; its neighbours still may be.
    try:
        return _box(ctx, at, source, shape, spans)
    except CannotTell:
        return ()


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
    shape = sizes(ctx)
    axis = axis_of(integer(ctx, "axis", 0), len(shape))
    found: list[ViewFact] = []
    for at in range(len(ctx.op.outputs)):
        spans = [range(size) for size in shape]
        spans[axis] = range(at, at + 1)
        if wanted(ctx, at):
            found += _claimed(ctx, at, 0, shape, spans)
    return tuple(found)


@tells
def _depth_to_space(ctx: Context) -> Types:
    batch, height, width, channels = dims(ctx)
    block = integer(ctx, "block_size")
    depth = number(channels)
    if block < 1 or depth % block**2:
        raise CannotTell
    return ((dtype(ctx), (batch, _times(height, block), _times(width, block), depth // block**2)),)


def _times(dim: Dim, factor: int) -> Dim:
    return dim if factor == 1 else number(dim) * factor


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
    return ((dtype(ctx), (_times(batch, prod(block)), *out, *rest[len(block) :])),)


@tells
def _batch_to_space(ctx: Context) -> Types:
    batch, *rest = dims(ctx)
    block, crops = _blocks(ctx, "crops")
    if number(batch) % prod(block):
        raise CannotTell
    out = [number(dim) * size - before - after
           for dim, size, (before, after) in zip(rest, block, crops, strict=False)]  # fmt: skip
    return ((dtype(ctx), (number(batch) // prod(block), *out, *rest[len(block) :])),)


@tells
def _gather(ctx: Context) -> Types:
    data, picked = dims(ctx), dims(ctx, 1)
    axis, batch = axis_of(integer(ctx, "axis", 0), len(data)), integer(ctx, "batch_dims", 0)
    batch = batch + len(picked) if batch < 0 else batch
    if not 0 <= batch <= axis:
        raise CannotTell
    return ((dtype(ctx), (*data[:axis], *picked[batch:], *data[axis + 1 :])),)


@tells
def _scatter(ctx: Context) -> Types:
    return ((dtype(ctx, 1), needed(ints(ctx, "shape"))),)


@tells
def _to_dense(ctx: Context) -> Types:
    return ((dtype(ctx, 2), needed(ints(ctx, "output_shape"))),)


@tells
def _fill(ctx: Context) -> Types:
    return ((dtype(ctx, 1), needed(ints(ctx, "dims"))),)


@tells
def _filled_like_operand(ctx: Context) -> Types:
    return ((dtype(ctx), needed(ints(ctx, "shape"))),)


@tells
def _rank(ctx: Context) -> Types:
    dims(ctx)
    return ((_INT32, ()),)


@tells
def _broadcast_args(ctx: Context) -> Types:
    (left,), (right,) = dims(ctx), dims(ctx, 1)
    return ((dtype(ctx), (max(number(left), number(right)),)),)


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
def _diagonal(ctx: Context) -> Types:
    shape = dims(ctx)
    return ((dtype(ctx), (*shape, shape[-1])),)


@tells
def _dilated(ctx: Context) -> Types:
    steps = needed(ints(ctx, "dilations"))
    out = tuple((number(d) - 1) * s + 1 if number(d) else 0
                for d, s in zip(dims(ctx), steps, strict=True))  # fmt: skip
    return ((dtype(ctx), out),)


@tells
def _segments(ctx: Context) -> Types:
    rank = len(dims(ctx, 1))
    return ((dtype(ctx), (integer(ctx, "num_segments"), *dims(ctx)[rank:])),)


@tells
def _broadcast_in(ctx: Context) -> Types:
    return ((dtype(ctx), needed(ints(ctx, "shape"))),)


@tells
def _hlo_slice(ctx: Context) -> Types:
    start, stop = needed(ints(ctx, "start_indices")), needed(ints(ctx, "limit_indices"))
    steps = needed(ints(ctx, "strides"))
    return ((dtype(ctx), tuple(len(range(a, b, s)) for a, b, s in
                               zip(start, stop, steps, strict=True))),)  # fmt: skip


@views_or_none
def _hlo_slice_view(ctx: Context) -> tuple[ViewFact, ...]:
    shape = sizes(ctx)
    start, stop = needed(ints(ctx, "start_indices")), needed(ints(ctx, "limit_indices"))
    steps = needed(ints(ctx, "strides"))
    spans = [range(a, b, s) for a, b, s in zip(start, stop, steps, strict=True)]
    if any(s.start < 0 or s.stop > size for s, size in zip(spans, shape, strict=True)):
        raise CannotTell
    return _box(ctx, 0, 0, shape, spans)


@tells
def _hlo_dynamic_slice(ctx: Context) -> Types:
    return ((dtype(ctx), needed(ints(ctx, "slice_sizes"))),)


@tells
def _hlo_pad(ctx: Context) -> Types:
    shape = dims(ctx)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    zeros = (0,) * len(shape)
    low, high, inner = (ctx.ints(name) or zeros for name in names)
    out = tuple(
        number(d) + a + b + max(number(d) - 1, 0) * i
        for d, a, b, i in zip(shape, low, high, inner, strict=True)
    )
    return ((dtype(ctx), out),)


@tells
def _permuted(ctx: Context) -> Types:
    shape = dims(ctx)
    perm = axes_of(needed(ctx.ints("permutation")), len(shape))
    return ((dtype(ctx), tuple(shape[at] for at in perm)),)


@views_or_none
def _order_kept(ctx: Context) -> tuple[ViewFact, ...]:
    shape = dims(ctx)
    perm = axes_of(needed(ctx.ints("permutation")), len(shape))
    moved = [at for at in perm if shape[at] != 1]
    kept = all(a < b for a, b in pairwise(moved))
    return whole(ctx) if kept and len(perm) == len(shape) else ()


@tells
def _broadcast_to(ctx: Context) -> Types:
    shape: Shape = needed(ints(ctx, "shape"))
    return ((dtype(ctx), broadcast(dims(ctx), shape)),)


@tells
def _looked_up(ctx: Context) -> Types:
    return ((dtype(ctx, 2), (*dims(ctx), *dims(ctx, 2)[1:])), (DTYPES["uint8"], dims(ctx)))


def _copy(
    kind: str, shape: ShapeRule | None, views: ViewRule | None = None,
    moved: MoveRule | None = None,
) -> OpSpec:  # fmt: skip
    return OpSpec(kind, shape, views=views, workspace=zero, macs=zero, other_ops=zero,
                  bytes_moved=moved, engine="copy")  # fmt: skip


def _update(kind: str) -> OpSpec:
    # A part of operand 0 is overwritten by operand 1; the rest stays where it is.
    return OpSpec(kind, same(), inplace=(0,), workspace=zero, macs=zero, other_ops=zero,
                  bytes_moved=written_into, engine="copy")  # fmt: skip


ROWS: Final = (
    _copy("strided_slice", _strided_slice, _strided_view),
    _copy("tfl_slice", _slice, _slice_view),
    _copy("tfl_split", _split, _split_views),
    _copy("split_v", _split, _split_views),
    OpSpec("pack", _pack, views=_lone, parts=_pack_parts, workspace=zero, macs=zero,
           other_ops=zero, engine="copy"),
    _copy("unpack", _unpack, _unpack_views),
    _copy("tfl_depth_to_space", _depth_to_space, _unit_block),
    _copy("tfl_space_to_depth", _space_to_depth, _unit_block),
    _copy("space_to_batch_nd", _space_to_batch),
    _copy("batch_to_space_nd", _batch_to_space),
    _copy("tfl_gather", _gather, moved=picked()),
    _copy("tfl_scatter_nd", _scatter),
    _copy("sparse_to_dense", _to_dense),
    # Stored sparse, used dense: at load time it would multiply a weight's bytes.
    OpSpec("densify", same(), workspace=zero, macs=zero, other_ops=zero, engine="copy",
           widens=True),
    _copy("fill", _fill),
    _copy("zeros_like", same()),
    OpSpec("rank", _rank, workspace=zero, macs=zero, other_ops=zero, engine="none",
           shape_only=True),
    _copy("broadcast_args", _broadcast_args),
    _copy("broadcast_to", _broadcast_to),
    _copy("reverse_v2", same()),
    OpSpec("resize_bilinear", _resized, workspace=unknown, macs=zero,
           other_ops=_bilinear_other),
    _copy("resize_nearest_neighbor", _resized, _same_size),
    _copy("matrix_diag", _diagonal),
    _update("dynamic_update_slice"),
    _copy("matrix_set_diag", same()),
    _copy("dilate", _dilated),
    *(OpSpec(kind, _segments, workspace=zero, macs=zero, other_ops=per_input())
      for kind in ("unsorted_segment_max", "unsorted_segment_min", "unsorted_segment_prod",
                   "unsorted_segment_sum")),
    # How many segments, elements or matches there are is known to the run only.
    OpSpec("segment_sum", None, workspace=zero, macs=zero, other_ops=per_input()),
    OpSpec("tfl_where", None, workspace=unknown, macs=zero, other_ops=per_input()),
    OpSpec("skip_gram", None, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("lsh_projection", None, workspace=unknown, macs=unknown, other_ops=unknown),
    OpSpec("concat_embeddings", None, workspace=zero, macs=zero, other_ops=zero, engine="copy"),
    OpSpec("embedding_lookup_sparse", None, workspace=unknown, macs=unknown, other_ops=unknown),
    _copy("hashtable_lookup", _looked_up),
    _copy("stablehlo_broadcast_in_dim", _broadcast_in),
    _copy("stablehlo_slice", _hlo_slice, _hlo_slice_view),
    _copy("stablehlo_dynamic_slice", _hlo_dynamic_slice),
    _update("stablehlo_dynamic_update_slice"),
    _copy("stablehlo_pad", _hlo_pad),
    _copy("stablehlo_transpose", _permuted, _order_kept),
    # Shapes that depend on many options: the file states them.
    _copy("stablehlo_gather", None),
    OpSpec("stablehlo_iota", None, workspace=zero, macs=zero, other_ops=per_output()),
    *(OpSpec(kind, None, workspace=unknown, macs=zero, other_ops=unknown)
      for kind in ("stablehlo_reduce", "stablehlo_reduce_window", "reduce_window",
                   "stablehlo_scatter", "stablehlo_sort")),
)  # fmt: skip
