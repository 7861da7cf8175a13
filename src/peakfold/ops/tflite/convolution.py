"""TFLite's convolutions and pools: batch, rows, columns, channels.

Scratch is unknown: reference kernels need none for a convolution, others unroll or transform.
Padding is counted as if it were data, as in the MobileNet and ResNet papers. Pools sum in an
accumulator and need no scratch.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ops.inference import dims, dtype, integer, ints, needed, produced, sizes
from peakfold.ops.rules import Types, count, elements, number, tells, unknown, zero
from peakfold.ops.spec import Context, CountRule, Engine, OpSpec, ShapeRule
from peakfold.ops.tflite.rules import activation, fused, slid


@tells
def _conv(ctx: Context) -> Types:
    batch, *spatial, _ = dims(ctx)
    filters, *taps, _ = dims(ctx, 1)
    out = slid(ctx, tuple(spatial), tuple(map(number, taps)))
    return ((dtype(ctx), (batch, *out, filters)),)


@count
def _conv_macs(ctx: Context) -> int:
    # Filters are [out, rows, columns, in / groups]: every output element meets one filter.
    return prod(produced(ctx)) * prod(sizes(ctx, 1)[1:])


@tells
def _depthwise(ctx: Context) -> Types:
    batch, *spatial, _ = dims(ctx)
    _, *taps, channels = dims(ctx, 1)
    out = slid(ctx, tuple(spatial), tuple(map(number, taps)))
    return ((dtype(ctx), (batch, *out, channels)),)


@count
def _depthwise_macs(ctx: Context) -> int:
    # The filter is [1, rows, columns, in * multiplier]: one plane per output channel.
    return prod(produced(ctx)) * prod(sizes(ctx, 1)[1:-1])


@tells
def _conv_3d(ctx: Context) -> Types:
    batch, *spatial, _ = dims(ctx)
    *taps, _, channels = dims(ctx, 1)
    out = slid(ctx, tuple(spatial), tuple(map(number, taps)))
    return ((dtype(ctx), (batch, *out, channels)),)


@count
def _conv_3d_macs(ctx: Context) -> int:
    # Filters are [depth, rows, columns, in / groups, out].
    return prod(produced(ctx)) * prod(sizes(ctx, 1)[:-1])


@tells
def _stated_size(ctx: Context) -> Types:
    """A transposed convolution is told its output's shape by operand 0."""
    return ((dtype(ctx, 2), needed(ints(ctx, "output_shape"))),)


def _transpose_macs(channels_in: int) -> CountRule:
    """Every input element meets every weight of its channel.

    Args:
        channels_in: the filter's axis of input channels.
    """

    def rule(ctx: Context) -> int:
        weights = list(sizes(ctx, 1))
        del weights[channels_in]
        return elements(ctx, 2) * prod(weights)

    return count(rule)


@count
def _bias_transpose_macs(ctx: Context) -> int:
    return elements(ctx) * prod(sizes(ctx, 1)[:-1])


@tells
def _pool(ctx: Context) -> Types:
    batch, *spatial, channels = dims(ctx)
    taps = (integer(ctx, "filter_height"), integer(ctx, "filter_width"))
    return ((dtype(ctx), (batch, *slid(ctx, tuple(spatial), taps), channels)),)


def _pooling(each: int, once: int) -> CountRule:
    """Operations of a pool: `each` per element under the window, `once` per result."""

    def rule(ctx: Context) -> int:
        taps = integer(ctx, "filter_height") * integer(ctx, "filter_width")
        return prod(produced(ctx)) * (each * taps + once + activation(ctx))

    return count(rule)


def _convolution(
    kind: str, shape: ShapeRule | None, macs: CountRule, bias: int, engine: Engine = "matrix"
) -> OpSpec:
    return OpSpec(
        kind, shape, workspace=unknown, macs=macs, other_ops=fused(bias=bias), engine=engine
    )


def _pool_row(kind: str, each: int, once: int) -> OpSpec:
    return OpSpec(kind, _pool, workspace=zero, macs=zero, other_ops=_pooling(each, once))


ROWS: Final = (
    _convolution("conv_2d", _conv, _conv_macs, 2),
    # One channel a filter: nothing for a matrix engine to contract.
    _convolution("depthwise_conv_2d", _depthwise, _depthwise_macs, 2, "vector"),
    _convolution("conv_3d", _conv_3d, _conv_3d_macs, 2),
    # Filters are [out, rows, columns, in] and [depth, rows, columns, out, in].
    _convolution("transpose_conv", _stated_size, _transpose_macs(-1), 3),
    _convolution("conv_3d_transpose", _stated_size, _transpose_macs(-1), 3),
    # MediaPipe's operator keeps its strides in custom options, which are not read.
    _convolution("convolution_2d_transpose_bias", None, _bias_transpose_macs, 2),
    # A sum and a division; a comparison; squares, a sum, a division and a root.
    _pool_row("average_pool_2d", 1, 1),
    _pool_row("max_pool_2d", 1, 0),
    _pool_row("l2_pool_2d", 2, 2),
)
