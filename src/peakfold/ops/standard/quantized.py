"""Quantisation and the integer operators of the standard set."""

from __future__ import annotations

from typing import Final

from peakfold.ir.types import DTYPES
from peakfold.ops.inference import dims, dtype, given, named_dtype
from peakfold.ops.rules import FLOAT, Types, per_input, per_output, tells, unknown, zero
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.standard.convolution import bias_at, conv_engine, conv_macs, conv_rule
from peakfold.ops.standard.matmul import matmul_macs, matmul_rule

_UINT8: Final = DTYPES["uint8"]


@tells
def _quantize(ctx: Context) -> Types:
    stated = named_dtype(ctx, "output_dtype")
    element = dtype(ctx, 2) if given(ctx, 2) else stated or _UINT8
    return ((element, dims(ctx)),)


@tells
def _dequantize(ctx: Context) -> Types:
    return ((named_dtype(ctx, "output_dtype") or dtype(ctx, 1), dims(ctx)),)


@tells
def _dynamic_quantize(ctx: Context) -> Types:
    return ((_UINT8, dims(ctx)), (FLOAT, ()), (_UINT8, ()))


ROWS: Final = (
    # Division, rounding, zero point, saturation. Element k needs only element k, and a scale;
    # equal widths are rare, but then it may overwrite.
    OpSpec("quantize_linear", _quantize, inplace=(0,), workspace=zero, macs=zero,
           other_ops=per_output(4)),
    # Subtraction, product. At load time it would multiply a weight's bytes.
    OpSpec("dequantize_linear", _dequantize, inplace=(0,), workspace=zero, macs=zero,
           other_ops=per_output(2), widens=True),
    # Minimum and maximum of everything, then as quantize_linear: no element stands alone.
    OpSpec("dynamic_quantize_linear", _dynamic_quantize, workspace=unknown, macs=zero,
           other_ops=per_input(6)),
    OpSpec("qlinear_conv", conv_rule(3, result_of=7), workspace=unknown, macs=conv_macs(3),
           other_ops=bias_at(8), engine="matrix", engine_if=conv_engine(3)),
    OpSpec("qlinear_matmul", matmul_rule(0, 3, of=7), workspace=unknown,
           macs=matmul_macs(0, 3), other_ops=zero, engine="matrix"),
)  # fmt: skip
