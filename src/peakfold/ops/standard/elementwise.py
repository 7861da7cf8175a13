"""Element-wise ops: output element k depends on element k of each operand (after broadcast).

They need no scratch, cost one operation per output element (`rules.per_output`), and may write
over any operand that the planner finds to have the output's shape and width.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.graph import ViewFact
from peakfold.ops.inference import CannotTell, dims, dtype, given, named_dtype, operand, produced
from peakfold.ops.rules import (
    BOOL,
    Types,
    broadcast,
    count,
    per_output,
    same,
    tells,
    views_or_none,
    whole,
    zero,
)
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.tflite.rules import fused


@tells
def _broadcast(ctx: Context) -> Types:
    shapes = [dims(ctx, at) for at in range(len(ctx.inputs)) if given(ctx, at)]
    return ((dtype(ctx), broadcast(*shapes)),)


@tells
def _compare(ctx: Context) -> Types:
    return ((BOOL, broadcast(dims(ctx, 0), dims(ctx, 1))),)


@tells
def _test(ctx: Context) -> Types:
    return ((BOOL, dims(ctx)),)


@tells
def _where(ctx: Context) -> Types:
    return ((dtype(ctx, 1), broadcast(dims(ctx, 0), dims(ctx, 1), dims(ctx, 2))),)


@tells
def _cast(ctx: Context) -> Types:
    to = named_dtype(ctx, "to")
    if to is None:
        raise CannotTell
    return ((to, dims(ctx)),)


@tells
def _cast_like(ctx: Context) -> Types:
    return ((dtype(ctx, 1), dims(ctx)),)


@tells
def _bit_cast(ctx: Context) -> Types:
    to = named_dtype(ctx, "to")
    if to is None or to.bits != dtype(ctx).bits:
        raise CannotTell
    return ((to, dims(ctx)),)


@views_or_none
def _same_type(ctx: Context) -> tuple[ViewFact, ...]:
    # Equal types make a cast a re-reading; a saturating or rounding mode changes nothing then.
    to = dtype(ctx, 1) if ctx.op.kind == "cast_like" else named_dtype(ctx, "to")
    return whole(ctx) if to is not None and to == dtype(ctx) else ()


@views_or_none
def _same_bits(ctx: Context) -> tuple[ViewFact, ...]:
    # The specification fixes little-endian bytes, so a bit cast re-reads the same storage.
    to = named_dtype(ctx, "to")
    same_width = to is not None and to.bits is not None and to.bits == dtype(ctx).bits
    return whole(ctx) if same_width else ()


@views_or_none
def _lone_operand(ctx: Context) -> tuple[ViewFact, ...]:
    operand(ctx, 0)
    return whole(ctx) if len(ctx.inputs) == 1 else ()


@count
def _operands_less_one(ctx: Context) -> int:
    present = sum(given(ctx, at) for at in range(len(ctx.inputs)))
    return max(present - 1, 0) * prod(produced(ctx))


@count
def _mean_operations(ctx: Context) -> int:
    # n - 1 additions and one division.
    present = sum(given(ctx, at) for at in range(len(ctx.inputs)))
    return (present if present > 1 else 0) * prod(produced(ctx))


def _unary(kind: str) -> OpSpec:
    return OpSpec(kind, same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output())


def _binary(kind: str) -> OpSpec:
    return OpSpec(
        kind, _broadcast, inplace=(0, 1), workspace=zero, macs=zero, other_ops=per_output()
    )


def _arithmetic(kind: str) -> OpSpec:
    # TFLite may fuse an activation into these; ONNX never states one.
    return OpSpec(kind, _broadcast, inplace=(0, 1), workspace=zero, macs=zero, other_ops=fused(1))


def _comparison(kind: str) -> OpSpec:
    return OpSpec(kind, _compare, inplace=(0, 1), workspace=zero, macs=zero, other_ops=per_output())


def _predicate(kind: str) -> OpSpec:
    return OpSpec(kind, _test, inplace=(0,), workspace=zero, macs=zero, other_ops=per_output())


def _variadic(kind: str) -> OpSpec:
    return OpSpec(
        kind,
        _broadcast,
        inplace=(-1,),
        views=_lone_operand,
        workspace=zero,
        macs=zero,
        other_ops=_operands_less_one,
    )


UNARY: Final = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "celu",
    "cos", "cosh", "elu", "erf", "exp", "floor", "gelu", "hard_sigmoid",
    "hard_swish", "leaky_relu", "log", "mish", "neg", "not", "quick_gelu", "reciprocal", "relu",
    "round", "selu", "shrink", "sigmoid", "sign", "sin", "sinh", "softplus", "softsign",
    "sqrt", "swish", "tan", "tanh", "thresholded_relu",
)  # fmt: skip

ROWS: Final = (
    *(_unary(kind) for kind in UNARY),
    *(_binary(kind) for kind in (
        "and", "bit_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "mod", "or", "pow", "xor",
    )),
    *(_arithmetic(kind) for kind in ("add", "div", "mul", "sub")),
    *(_comparison(kind) for kind in (
        "equal", "greater", "greater_or_equal", "less", "less_or_equal",
    )),
    *(_predicate(kind) for kind in ("is_inf", "is_nan")),
    *(_variadic(kind) for kind in ("max", "min", "sum")),
    OpSpec("mean", _broadcast, inplace=(-1,), views=_lone_operand, workspace=zero, macs=zero,
           other_ops=_mean_operations),
    # The bounds of a clip are scalars, so only the data operand can lend its storage.
    OpSpec("clip", same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output(2)),
    # The slope broadcasts towards X, which therefore has the output's shape.
    OpSpec("prelu", same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output()),
    # Swish of the gate, times the value: two operations.
    OpSpec("swiglu", same(), inplace=(0, 1), workspace=zero, macs=zero,
           other_ops=per_output(2)),
    OpSpec("where", _where, inplace=(1, 2), workspace=zero, macs=zero, other_ops=per_output()),
    OpSpec("cast", _cast, inplace=(0,), views=_same_type, workspace=zero, macs=zero,
           other_ops=per_output(), widens=True),
    OpSpec("cast_like", _cast_like, inplace=(0,), views=_same_type, workspace=zero, macs=zero,
           other_ops=per_output(), widens=True),
    OpSpec("bit_cast", _bit_cast, inplace=(0,), views=_same_bits, workspace=zero, macs=zero,
           other_ops=zero, engine="none"),
)  # fmt: skip
