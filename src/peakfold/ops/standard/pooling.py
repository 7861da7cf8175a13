"""Pooling, regions of interest, resizing and sampling.

Sliding pools need no scratch: an output is one accumulator. Global pools are reductions, so
theirs is unknown. Interpolation is a weighted sum of taps: a product and an addition for each,
in `other_ops`, since MACs are those of convolutions and matrix products alone. Picking the
nearest element is a copy.
"""

from __future__ import annotations

from math import floor, prod
from typing import Final

from numpy import float32

from peakfold.ir.graph import ViewFact
from peakfold.ir.types import Dim
from peakfold.ops.inference import (
    CannotTell,
    dims,
    dtype,
    integer,
    ints,
    needed,
    numbers,
    produced,
    sizes,
    text,
)
from peakfold.ops.rules import (
    INT64,
    Types,
    axes_of,
    count,
    number,
    per_input,
    tells,
    unknown,
    views_or_none,
    whole,
    zero,
)
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.standard.convolution import pads_of, per_axis, windows


@tells
def pooled(ctx: Context) -> Types:
    """A sliding pool: the same window arithmetic as a convolution, channels kept."""
    batch, channels, *spatial = dims(ctx)
    out = windows(ctx, tuple(spatial), needed(ints(ctx, "kernel_shape")))
    shape = (batch, channels, *out)
    return ((dtype(ctx), shape), (INT64, shape))


@tells
def pooled_globally(ctx: Context) -> Types:
    """A global pool: every spatial axis becomes 1."""
    batch, channels, *spatial = dims(ctx)
    return ((dtype(ctx), (batch, channels, *(1 for _ in spatial))),)


@count
def window_operations(ctx: Context) -> int:
    """One operation per element of every window (a comparison or an addition)."""
    return prod(produced(ctx)) * prod(needed(ints(ctx, "kernel_shape")))


@tells
def _max_unpool(ctx: Context) -> Types:
    shape = dims(ctx)
    stated = ints(ctx, "output_shape")
    if stated is not None:
        return ((dtype(ctx), stated),)
    rank = len(shape) - 2
    kernel, strides = needed(ints(ctx, "kernel_shape")), per_axis(ctx, "strides", rank)
    out = [
        (number(size) - 1) * stride + k - sum(pad)
        for size, stride, k, pad in zip(shape[2:], strides, kernel, pads_of(ctx, rank), strict=True)
    ]
    return ((dtype(ctx), (*shape[:2], *out)),)


@tells
def _max_roi_pool(ctx: Context) -> Types:
    out = needed(ints(ctx, "pooled_shape"))
    return ((dtype(ctx), (dims(ctx, 1)[0], dims(ctx)[1], *out)),)


@tells
def _roi_align(ctx: Context) -> Types:
    out = (integer(ctx, "output_height", 1), integer(ctx, "output_width", 1))
    return ((dtype(ctx), (dims(ctx, 1)[0], dims(ctx)[1], *out)),)


@count
def _roi_align_other(ctx: Context) -> int:
    # Four neighbours per sample, ratio^2 samples per output; without a ratio the number of
    # samples depends on the size of the region.
    ratio = integer(ctx, "sampling_ratio", 0)
    if ratio < 1:
        raise CannotTell
    return prod(produced(ctx)) * ratio**2 * 8


@tells
def _grid_sample(ctx: Context) -> Types:
    batch, channels, *_ = dims(ctx)
    _, *out, _ = dims(ctx, 1)
    return ((dtype(ctx), (batch, channels, *out)),)


@tells
def _affine_grid(ctx: Context) -> Types:
    batch, _, *spatial = needed(ints(ctx, "size"))
    return ((dtype(ctx), (batch, *spatial, len(spatial))),)


@count
def _affine_grid_macs(ctx: Context) -> int:
    # Each point is a matrix of n rows times a homogeneous vector of n + 1.
    out = produced(ctx)
    return prod(out) * (out[-1] + 1)


def _taps(ctx: Context, axes: int) -> int:
    """Input elements that one interpolated element is made of."""
    mode = text(ctx, "mode", "nearest" if ctx.op.kind != "grid_sample" else "linear")
    each = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(mode)
    if each is None or integer(ctx, "antialias", 0):
        raise CannotTell  # an anti-aliasing kernel is as wide as the scale asks
    return each**axes if each else 0


@count
def _grid_sample_other(ctx: Context) -> int:
    return 2 * prod(produced(ctx)) * _taps(ctx, len(sizes(ctx)) - 2)


@count
def _resize_other(ctx: Context) -> int:
    resized = sum(a != b for a, b in zip(sizes(ctx), produced(ctx), strict=True))
    return 2 * prod(produced(ctx)) * _taps(ctx, resized) if resized else 0


def _scales(ctx: Context) -> tuple[float, ...] | None:
    scales = numbers(ctx, "scales")
    if not scales and ctx.op.kind == "resize" and len(ctx.inputs) == 2:
        scales = numbers(ctx, "roi")  # version 10: the second operand is `scales`
    return scales or None


@tells
def _resize(ctx: Context) -> Types:
    shape = list(dims(ctx))
    asked = ints(ctx, "axes")
    axes = tuple(range(len(shape))) if not asked else axes_of(asked, len(shape))
    target = ints(ctx, "sizes")
    if target:
        if text(ctx, "keep_aspect_ratio_policy", "stretch") != "stretch":
            target = _fitted(ctx, [number(shape[axis]) for axis in axes], target)
        for axis, size in zip(axes, target, strict=True):
            shape[axis] = size
        return ((dtype(ctx), tuple(shape)),)
    scales = _scales(ctx)
    if scales is None:
        raise CannotTell
    for axis, scale in zip(axes, scales, strict=True):
        shape[axis] = _times(shape[axis], scale)
    return ((dtype(ctx), tuple(shape)),)


def _times(dim: Dim, scale: float) -> Dim:
    # Runtimes multiply in single precision: 10 * 0.7 is 7 there, and 6.99... in double.
    return dim if scale == 1 else floor(float32(number(dim)) * float32(scale))


def _fitted(ctx: Context, have: list[int], want: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes under one common scale: as large as fits in `want`, or as small as covers it."""
    ratios = [float32(w) / float32(h) for w, h in zip(want, have, strict=True)]
    smaller = text(ctx, "keep_aspect_ratio_policy", "") == "not_larger"
    scale = min(ratios) if smaller else max(ratios)
    return tuple(floor(float(scale * float32(h)) + 0.5) for h in have)


@views_or_none
def _not_resized(ctx: Context) -> tuple[ViewFact, ...]:
    # Every scale is exactly 1, so each sample falls on an element; a crop moves the samples.
    if text(ctx, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return ()
    target, scales = ints(ctx, "sizes"), _scales(ctx)
    if target:
        shape, asked = sizes(ctx), ints(ctx, "axes")
        axes = range(len(shape)) if not asked else axes_of(asked, len(shape))
        stays = tuple(shape[axis] for axis in axes) == target
        return whole(ctx) if stays else ()
    return whole(ctx) if scales and all(scale == 1 for scale in scales) else ()


ROWS: Final = (
    *(
        OpSpec(kind, pooled, workspace=zero, macs=zero, other_ops=window_operations)
        for kind in ("average_pool", "lp_pool", "max_pool")
    ),
    *(
        OpSpec(kind, pooled_globally, workspace=unknown, macs=zero, other_ops=per_input())
        for kind in ("global_average_pool", "global_lp_pool", "global_max_pool")
    ),
    OpSpec("max_unpool", _max_unpool, workspace=zero, macs=zero, other_ops=zero, engine="copy"),
    OpSpec("max_roi_pool", _max_roi_pool, workspace=zero, macs=zero, other_ops=unknown),
    OpSpec("roi_align", _roi_align, workspace=unknown, macs=zero, other_ops=_roi_align_other),
    OpSpec("grid_sample", _grid_sample, workspace=unknown, macs=zero, other_ops=_grid_sample_other),
    OpSpec("affine_grid", _affine_grid, workspace=unknown, macs=_affine_grid_macs, other_ops=zero),
    OpSpec(
        "resize", _resize, views=_not_resized, workspace=unknown, macs=zero, other_ops=_resize_other
    ),
    OpSpec(
        "upsample",
        _resize,
        views=_not_resized,
        workspace=unknown,
        macs=zero,
        other_ops=_resize_other,
    ),
)
