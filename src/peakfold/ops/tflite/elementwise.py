"""TFLite's element-wise operators that ONNX has no equal of, quantisation among them.

Element k of the result needs element k of the operands, so a result of the same element width
may take an operand's place; a requantisation from int8 to int8 does, a dequantisation to float
never meets the width.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ir.types import DTYPES
from peakfold.ops.inference import CannotTell, dims, dtype, named_dtype, operand
from peakfold.ops.moving import whole_bytes
from peakfold.ops.rules import (
    BOOL,
    Types,
    broadcast,
    per_output,
    same,
    same_as,
    tells,
    unknown,
    views_or_none,
    whole,
    zero,
)
from peakfold.ops.spec import Context, CountRule, OpSpec, ShapeRule


@tells
def _pairs(ctx: Context) -> Types:
    return ((dtype(ctx), broadcast(dims(ctx, 0), dims(ctx, 1))),)


@tells
def _compared(ctx: Context) -> Types:
    return ((BOOL, broadcast(dims(ctx, 0), dims(ctx, 1))),)


@tells
def _clamped(ctx: Context) -> Types:
    return ((dtype(ctx, 1), dims(ctx, 1)),)


@tells
def _retyped(ctx: Context) -> Types:
    """The shape stays; the element type is the one that the front end found in the file."""
    to = named_dtype(ctx, "to")
    if to is None:
        raise CannotTell
    return ((to, dims(ctx)),)


@tells
def _bits(ctx: Context) -> Types:
    """A wider element swallows the last axis, a narrower one adds an axis."""
    shape, to = dims(ctx), named_dtype(ctx, "to")
    before, after = dtype(ctx).bits, None if to is None else to.bits
    if to is None or before is None or after is None:
        raise CannotTell
    if before == after:
        return ((to, shape),)
    if before > after and before % after == 0:
        return ((to, (*shape, before // after)),)
    if after % before or not shape or shape[-1] != after // before:
        raise CannotTell
    return ((to, shape[:-1]),)


@views_or_none
def _all_bits(ctx: Context) -> tuple[ViewFact, ...]:
    source = operand(ctx, 0)
    if source.elements is not None:
        whole_bytes(source.dtype, source.elements)
    return whole(ctx)


def _one(kind: str, operations: int = 1) -> OpSpec:
    return OpSpec(
        kind, same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output(operations)
    )


def _two(kind: str, shape: ShapeRule = _pairs, operations: int = 1) -> OpSpec:
    return OpSpec(
        kind, shape, inplace=(0, 1), workspace=zero, macs=zero, other_ops=per_output(operations)
    )


def _narrowing(kind: str, other_ops: CountRule) -> OpSpec:
    # Complex in, real out: half the width, so never in place.
    return OpSpec(
        kind, same_as(0, DTYPES["float32"]), workspace=zero, macs=zero, other_ops=other_ops
    )


ROWS: Final = (
    _one("cbrt"),
    # Two bounds, a scale and its inverse, a rounding.
    _one("fake_quant", 5),
    _one("relu6", 2),
    _one("relu_0_to_1", 2),
    _one("relu_n1_to_1", 2),
    # A root and a reciprocal.
    _one("rsqrt", 2),
    _one("square"),
    _two("atan2"),
    # A quotient and its floor.
    _two("floor_div", operations=2),
    # A difference and its square.
    _two("squared_difference", operations=2),
    _two("not_equal", _compared),
    _two("stablehlo_compare", _compared),
    # The bounds are operands 0 and 2.
    OpSpec("stablehlo_clamp", _clamped, inplace=(1,), workspace=zero, macs=zero,
           other_ops=per_output(2)),
    # The old form may choose whole rows by a vector; the result has the shape of what is chosen.
    OpSpec("tfl_select", tells(lambda ctx: ((dtype(ctx, 1), dims(ctx, 1)),)), inplace=(1, 2),
           workspace=zero, macs=zero, other_ops=per_output()),
    # Division, rounding, zero point, saturation; from int8 to int8 it requantises.
    OpSpec("quantize", _retyped, inplace=(0,), workspace=zero, macs=zero,
           other_ops=per_output(4)),
    # Subtraction, product (for float16 a conversion). At load time it would multiply a
    # weight's bytes.
    OpSpec("dequantize", same_as(0, DTYPES["float32"]), workspace=zero, macs=zero,
           other_ops=per_output(2), widens=True),
    # How many comparisons find the bucket depends on the search.
    OpSpec("bucketize", same_as(0, DTYPES["int32"]), inplace=(0,), workspace=zero, macs=zero,
           other_ops=unknown),
    _narrowing("real", zero),
    _narrowing("imag", zero),
    # Two squares, a sum and a root.
    _narrowing("complex_abs", per_output(4)),
    OpSpec("tfl_bitcast", _bits, views=_all_bits, workspace=zero, macs=zero, other_ops=zero,
           engine="none"),
)  # fmt: skip
