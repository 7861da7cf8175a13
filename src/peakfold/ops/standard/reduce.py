"""Reductions, normalising functions along an axis, and losses.

Scratch is unknown: a kernel that reduces the innermost axis row by row needs none, one that
reduces another axis may transpose first, and a parallel one keeps partial results.
"""

from __future__ import annotations

from typing import Final

from peakfold.ops.inference import dims, dtype, integer, ints, text
from peakfold.ops.rules import (
    Types,
    axes_of,
    per_input,
    same,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec


@tells
def reduced(ctx: Context) -> Types:
    """A reduction's type: `axes` (all when absent or empty), `keepdims`."""
    shape, axes = dims(ctx), ints(ctx, "axes")
    if not axes:
        if integer(ctx, "noop_with_empty_axes", 0):
            return ((dtype(ctx), shape),)
        axes = tuple(range(len(shape)))
    gone = set(axes_of(axes, len(shape)))
    if integer(ctx, "keepdims", 1):
        return ((dtype(ctx), tuple(1 if at in gone else d for at, d in enumerate(shape))),)
    return ((dtype(ctx), tuple(d for at, d in enumerate(shape) if at not in gone)),)


@tells
def _loss(ctx: Context) -> Types:
    per_item = text(ctx, "reduction", "mean") == "none"
    return ((dtype(ctx), dims(ctx, 1) if per_item else ()), (dtype(ctx), dims(ctx)))


def _reduce(kind: str, operations: int = 1) -> OpSpec:
    return OpSpec(kind, reduced, workspace=unknown, macs=zero, other_ops=per_input(operations))


def _along_axis(kind: str, operations: int) -> OpSpec:
    return OpSpec(kind, same(), workspace=unknown, macs=zero, other_ops=per_input(operations))


# Operations per input element: what is done to each element, plus one to combine it.
ROWS: Final = (
    _reduce("reduce_l1", 2),
    _reduce("reduce_l2", 2),
    _reduce("reduce_log_sum"),
    _reduce("reduce_log_sum_exp", 2),
    _reduce("reduce_max"),
    _reduce("reduce_mean"),
    _reduce("reduce_min"),
    _reduce("reduce_prod"),
    _reduce("reduce_sum"),
    _reduce("reduce_sum_square", 2),
    # Maximum, subtraction, exponential, sum, division (or subtraction of the logarithm).
    _along_axis("softmax", 5),
    _along_axis("log_softmax", 5),
    _along_axis("hardmax", 2),
    # Square (or magnitude), sum, division.
    _along_axis("lp_normalization", 3),
    # Picking the target's score, weight and sum touch one element per item; the log-softmax
    # of the second dominates with five per score.
    OpSpec(
        "negative_log_likelihood_loss",
        _loss,
        workspace=unknown,
        macs=zero,
        other_ops=per_input(2, 1),
    ),
    OpSpec(
        "softmax_cross_entropy_loss", _loss, workspace=unknown, macs=zero, other_ops=per_input(5)
    ),
)
