"""Normalisations, with the operations per element that `other_ops` charges.

Those that need statistics of their input over an axis may not overwrite it element by element,
and their scratch is unknown. Batch normalisation outside training only scales and shifts.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.types import DType
from peakfold.ops.inference import dims, dtype, integer, named_dtype, wanted
from peakfold.ops.rules import (
    FLOAT,
    Types,
    axis_of,
    count,
    elements,
    per_input,
    same,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec


def _in_inference(ctx: Context) -> tuple[int, ...]:
    # Before version 14 training was told by asking for the statistics outputs.
    asked = any(wanted(ctx, at) for at in range(1, 5))
    return () if asked or ctx.int_attr("training_mode", 0) else (0,)


@count
def _batch_norm_other(ctx: Context) -> int:
    # One scale and one shift per element, into which stored statistics fold. In training the
    # statistics are the batch's own, as in a layer normalisation.
    told = ctx.op.attrs.get("training_mode")
    training = bool(told) if told is not None else not _in_inference(ctx)
    return elements(ctx) * (7 if training else 2)


@tells
def _batch_norm(ctx: Context) -> Types:
    result = (dtype(ctx), dims(ctx))
    if len(ctx.op.outputs) == 1:
        return (result,)
    statistics = (dtype(ctx, 3), dims(ctx, 3))
    return (result, *(statistics,) * (len(ctx.op.outputs) - 1))


@tells
def _layer_norm(ctx: Context) -> Types:
    shape = dims(ctx)
    axis = axis_of(integer(ctx, "axis", -1), len(shape))
    kept = (*shape[:axis], *(1 for _ in shape[axis:]))
    stash: DType = named_dtype(ctx, "stash_type") or FLOAT
    return ((dtype(ctx), shape), (stash, kept), (stash, kept))


def norm_row(kind: str, operations: int) -> OpSpec:
    """A normalisation that keeps its input's type."""
    return OpSpec(kind, same(), workspace=unknown, macs=zero, other_ops=per_input(operations))


ROWS: Final = (
    OpSpec("batch_normalization", _batch_norm, inplace_if=_in_inference,
           workspace=zero, macs=zero, other_ops=_batch_norm_other),
    # Mean, subtraction, square, its mean, division, scale, shift.
    OpSpec("layer_normalization", _layer_norm, workspace=unknown, macs=zero,
           other_ops=per_input(7)),
    norm_row("instance_normalization", 7),
    norm_row("group_normalization", 7),
    # No scale and shift.
    norm_row("mean_variance_normalization", 5),
    # Square, its mean, division, scale.
    OpSpec("rms_normalization", tells(lambda ctx: ((dtype(ctx, 1), dims(ctx)),)),
           workspace=unknown, macs=zero, other_ops=per_input(4)),
    # Square, running sum over neighbouring channels (add and drop one), power, division.
    norm_row("lrn", 5),
)  # fmt: skip
