"""Operators of ONNX Runtime whose data has another layout than the standard one.

Channels last: ``Nhwc*``, and ``QLinear*`` by their attribute ``channels_last``. Channels in
blocks, padded to a multiple of 8 or 16: the domain com.microsoft.nchwc, which a session writes
for the processor it runs on. There a shape still reads (batch, channels, rows, columns), and what
is counted is what the kernels compute: the padding, too.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.types import Shape
from peakfold.ops.contrib.layers import fused_conv_other
from peakfold.ops.inference import dims, dtype, integer, ints, needed, produced, text
from peakfold.ops.rules import Types, count, number, per_input, tells, unknown, zero
from peakfold.ops.spec import Context, OpSpec, ShapeRule
from peakfold.ops.standard.convolution import (
    arranged,
    bias_at,
    channels_first,
    conv_engine,
    conv_macs,
    conv_rule,
    windows,
)
from peakfold.ops.standard.pooling import pooled, pooled_globally, window_operations


def _pool(last: int) -> ShapeRule:
    def rule(ctx: Context) -> Types:
        at_end = last or integer(ctx, "channels_last", 0)
        batch, channels, *spatial = channels_first(dims(ctx), at_end)
        out = windows(ctx, tuple(spatial), needed(ints(ctx, "kernel_shape")))
        return ((dtype(ctx), arranged((batch, channels, *out), at_end)),)

    return tells(rule)


@tells
def _qlinear_global_pool(ctx: Context) -> Types:
    at_end = integer(ctx, "channels_last", 0)
    batch, channels, *spatial = channels_first(dims(ctx), at_end)
    return ((dtype(ctx), arranged((batch, channels, *(1 for _ in spatial)), at_end)),)


@tells
def _reorder_input(ctx: Context) -> Types:
    # The block is the processor's: a front end reads it off the weights (`nchwc_block`).
    shape = channels_first(dims(ctx), integer(ctx, "channels_last", 0))
    block = integer(ctx, "nchwc_block")
    padded = -(-number(shape[1]) // block) * block
    return ((dtype(ctx), (shape[0], padded, *shape[2:])),)


@tells
def _reorder_output(ctx: Context) -> Types:
    batch, _, *spatial = dims(ctx)
    shape: Shape = (batch, integer(ctx, "channels"), *spatial)
    return ((dtype(ctx), arranged(shape, integer(ctx, "channels_last", 0))),)


@tells
def _upsample(ctx: Context) -> Types:
    scales = needed(ints(ctx, "scales"))
    shape = zip(dims(ctx), scales, strict=True)
    return ((dtype(ctx), tuple(d if by == 1 else number(d) * by for d, by in shape)),)


@count
def _upsample_other(ctx: Context) -> int:
    # A weighted sum of two samples an axis that grows: a product and an addition for each.
    if text(ctx, "mode", "nearest") == "nearest":
        return 0
    grown = sum(by != 1 for by in needed(ints(ctx, "scales")))
    return 2 * prod(produced(ctx)) * (1 << grown)


ROWS: Final = (
    OpSpec("nhwc_conv", conv_rule(1, last=1), workspace=unknown, macs=conv_macs(1),
           other_ops=bias_at(2), engine="matrix", engine_if=conv_engine(1)),
    OpSpec("nhwc_fused_conv", conv_rule(1, last=1), workspace=unknown, macs=conv_macs(1),
           other_ops=fused_conv_other, engine="matrix", engine_if=conv_engine(1)),
    OpSpec("nhwc_max_pool", _pool(1), workspace=unknown, macs=zero, other_ops=window_operations),
    OpSpec("qlinear_average_pool", _pool(0), workspace=unknown, macs=zero,
           other_ops=window_operations),
    OpSpec("qlinear_global_average_pool", _qlinear_global_pool, workspace=unknown, macs=zero,
           other_ops=per_input()),
    OpSpec("nchwc_conv", conv_rule(1), workspace=unknown, macs=conv_macs(1),
           other_ops=fused_conv_other, engine="matrix", engine_if=conv_engine(1)),
    *(
        OpSpec(kind, pooled, workspace=unknown, macs=zero, other_ops=window_operations)
        for kind in ("nchwc_average_pool", "nchwc_max_pool")
    ),
    *(
        OpSpec(kind, pooled_globally, workspace=unknown, macs=zero, other_ops=per_input())
        for kind in ("nchwc_global_average_pool", "nchwc_global_max_pool")
    ),
    OpSpec("nchwc_reorder_input", _reorder_input, workspace=zero, macs=zero, other_ops=zero,
           engine="copy"),
    OpSpec("nchwc_reorder_output", _reorder_output, workspace=zero, macs=zero, other_ops=zero,
           engine="copy"),
    OpSpec("nchwc_upsample", _upsample, workspace=zero, macs=zero, other_ops=_upsample_other,
           engine="copy"),
)  # fmt: skip
