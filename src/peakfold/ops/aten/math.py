"""Element-wise functions, reductions, windows and spectra that ATen has and ONNX has not.

Nothing here multiplies and accumulates on a matrix engine: all operations are `other_ops`, by
the conventions of `rules`. Interpolation is a weighted sum per output, counted as a
multiplication and an addition per tap.
"""

from __future__ import annotations

from math import ceil, gcd, log2, prod
from typing import Final

from peakfold.ops.inference import CannotTell, given, ints, needed, operand, produced, sizes, text
from peakfold.ops.rules import (
    count,
    elements,
    moves,
    per_input,
    per_output,
    same,
    size_of,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec

UNARY: Final = ("exp2", "expm1", "log1p", "log2", "log_sigmoid", "trunc")


@count
def _pool_other(ctx: Context) -> int:
    # One comparison or addition per element of every window; one number stands for all axes.
    kernel = needed(ints(ctx, "kernel_size"))
    axes = len(kernel) if len(kernel) > 1 else _pooled_axes(ctx)
    return prod(produced(ctx)) * prod(kernel if len(kernel) == axes else kernel * axes)


def _pooled_axes(ctx: Context) -> int:
    axes = text(ctx, "axes", "2")
    if axes not in ("1", "2", "3"):
        raise CannotTell
    return int(axes)


@count
def _adaptive_other(ctx: Context) -> int:
    # Window k of n outputs over m inputs is [floor(k m / n), ceil((k + 1) m / n)): together they
    # cover m, and one more at each of the n - 1 borders that is no whole number.
    axes, shape, out = _pooled_axes(ctx), sizes(ctx), produced(ctx)
    covered = 1
    for size, parts in zip(shape[-axes:], out[-axes:], strict=True):
        covered *= size + parts - gcd(size, parts) if parts else 0
    return covered * prod(shape[:-axes])


_TAPS: Final = (("nearest", 0), ("linear", 2), ("bilinear", 4), ("trilinear", 8), ("bicubic", 16))


@count
def _interpolate_other(ctx: Context) -> int:
    mode = text(ctx, "mode", "")
    taps = next((n for name, n in _TAPS if name == mode), None)
    if taps is None:
        raise CannotTell  # an anti-aliasing kernel is as wide as the scale asks
    return prod(produced(ctx)) * 2 * taps


@count
def _transform_other(ctx: Context) -> int:
    # 5 n log2 n per complex transform of n points (the convention of FFT benchmarks), half of
    # it for a real one; `points` is the length of each transformed axis.
    points = [n for n in needed(ints(ctx, "points")) if n > 1]
    size = max(elements(ctx), prod(produced(ctx)))
    whole = sum(ceil(5 * size * log2(n)) for n in points)
    return whole // 2 if text(ctx, "field", "complex") == "real" else whole


@count
def _bag_other(ctx: Context) -> int:
    # A bag adds one row per index.
    return elements(ctx, 1) * sizes(ctx)[-1] * (1 + given(ctx, 3))


def _rows_bytes(ctx: Context) -> int:
    """Bytes of the picked rows of a packed table, which comes after the indices."""
    table = operand(ctx, len(ctx.inputs) - 1)
    width = sizes(ctx, len(ctx.inputs) - 1)[-1]
    return (table.dtype.nbytes(elements(ctx) * width) or 0) + size_of(ctx.inputs[0])


@moves
def _packed_moves(ctx: Context) -> tuple[int, int]:
    return _rows_bytes(ctx), size_of(ctx.outputs[0])


@count
def _packed_bag_other(ctx: Context) -> int:
    # Every picked row is scaled, shifted and added.
    return 3 * elements(ctx) * sizes(ctx, len(ctx.inputs) - 1)[-1]


@count
def _distance_other(ctx: Context) -> int:
    # Difference, power and sum per coordinate of every pair.
    return 3 * prod(produced(ctx)) * sizes(ctx)[-1]


def _function(kind: str, operations: int = 1) -> OpSpec:
    return OpSpec(kind, workspace=unknown, macs=zero, other_ops=per_output(operations))


def _unary(kind: str) -> OpSpec:
    return OpSpec(kind, same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output())


ROWS: Final = (
    *(_unary(kind) for kind in UNARY),
    # Any function of corresponding elements that has no kind of its own.
    _function("elementwise"),
    _function("elementwise2", 2),
    _function("elementwise3", 3),
    # The mask picks the fill value or the element where it stands.
    OpSpec("masked_fill", same(), inplace=(0,), workspace=zero, macs=zero,
           other_ops=per_output()),
    # Reductions whose result is no ONNX reduction; the operations are per input element.
    OpSpec("reduction", workspace=unknown, macs=zero, other_ops=per_input()),
    OpSpec("moments", workspace=unknown, macs=zero, other_ops=per_input(4)),
    OpSpec("scan_elements", workspace=unknown, macs=zero, other_ops=per_output()),
    OpSpec("ranking", workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("window_pool", workspace=zero, macs=zero, other_ops=_pool_other),
    OpSpec("adaptive_pool", workspace=zero, macs=zero, other_ops=_adaptive_other),
    OpSpec("interpolate", workspace=unknown, macs=zero, other_ops=_interpolate_other),
    OpSpec("sample_grid", workspace=unknown, macs=zero, other_ops=per_output(8)),
    OpSpec("fft", workspace=unknown, macs=zero, other_ops=_transform_other),
    OpSpec("embedding_bag", workspace=unknown, macs=zero, other_ops=_bag_other),
    # Rows of a packed table: each element is scaled and shifted.
    OpSpec("packed_gather", workspace=unknown, macs=zero, other_ops=per_output(2),
           bytes_moved=_packed_moves),
    OpSpec("packed_bag", workspace=unknown, macs=zero, other_ops=_packed_bag_other,
           bytes_moved=_packed_moves),
    OpSpec("pairwise_distance", workspace=unknown, macs=zero, other_ops=_distance_other),
    # Square, sum, division by the norm, and the gain.
    OpSpec("weight_norm", workspace=unknown, macs=zero, other_ops=per_input(4)),
    OpSpec("norm_backward", workspace=unknown, macs=zero, other_ops=per_input(8)),
    # A mask and a product per element; not pure, since the mask is random.
    OpSpec("random_dropout", workspace=zero, macs=zero, other_ops=per_output(2), pure=False),
    OpSpec("random_fill", workspace=zero, macs=zero, other_ops=unknown, pure=False),
)  # fmt: skip
