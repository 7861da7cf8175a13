"""Common com.microsoft operators: fused and quantised layers.

Signatures follow ONNX Runtime's contrib operator documentation. Attention variants are in
`contrib_attention`.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.types import DTYPES, Shape
from peakfold.ops.inference import CannotTell, dims, dtype, given, integer, produced, sizes
from peakfold.ops.rules import (
    BOOL,
    FLOAT,
    INT64,
    Types,
    axis_of,
    broadcast,
    count,
    elements,
    moves,
    number,
    per_input,
    per_output,
    same,
    size_of,
    tells,
    unknown,
    whole,
    zero,
)
from peakfold.ops.spec import Context, CountRule, OpSpec
from peakfold.ops.standard.convolution import bias_at, conv_engine, conv_macs, conv_rule
from peakfold.ops.standard.matmul import gemm_shape, matmul_macs, matmul_rule, matmul_shape
from peakfold.ops.standard.reduce import reduced


@count
def fused_conv_other(ctx: Context) -> int:
    """Bias, the added tensor and the activation, each one operation per output element."""
    extras = given(ctx, 2) + given(ctx, 3) + ("activation" in ctx.op.attrs)
    return extras * prod(produced(ctx))


@tells
def _gemm(ctx: Context) -> Types:
    rows, columns, _ = gemm_shape(ctx)
    return ((dtype(ctx), (rows, columns)),)


@tells
def _qgemm(ctx: Context) -> Types:
    rows, columns, _ = gemm_shape(ctx, 0, 3)
    # Without an output scale the result stays in floating point, as the input scale is.
    element = dtype(ctx, 8) if given(ctx, 8) else dtype(ctx, 1)
    return ((element, (rows, columns)),)


def _gemm_macs(left: int, right: int) -> CountRule:
    return count(lambda ctx: prod(number(dim) for dim in gemm_shape(ctx, left, right)))


def _swapped(ctx: Context, at: int, side: str) -> Shape:
    """An operand as it is multiplied: its first axis behind the batch, then rows and columns."""
    shape = dims(ctx, at)
    if integer(ctx, f"transBatch{side}", 0) and len(shape) > 1:
        shape = (*shape[1:-1], shape[0], shape[-1])
    flag = integer(ctx, f"trans{side}", 0) and len(shape) > 1
    return (*shape[:-2], shape[-1], shape[-2]) if flag else shape


def _fused_matmul_shapes(ctx: Context) -> tuple[Shape, Shape]:
    return _swapped(ctx, 0, "A"), _swapped(ctx, 1, "B")


@tells
def _fused_matmul(ctx: Context) -> Types:
    return ((dtype(ctx), matmul_shape(*_fused_matmul_shapes(ctx))),)


@count
def _fused_matmul_macs(ctx: Context) -> int:
    left, right = _fused_matmul_shapes(ctx)
    return prod(number(d) for d in matmul_shape(left, right)) * number(left[-1])


@tells
def _matmul_nbits(ctx: Context) -> Types:
    shape, inner = dims(ctx), integer(ctx, "K")
    if isinstance(shape[-1], int) and shape[-1] != inner:
        raise CannotTell
    return ((dtype(ctx), (*shape[:-1], integer(ctx, "N"))),)


@count
def _matmul_nbits_macs(ctx: Context) -> int:
    # Every row of A, K long, meets N columns of packed weights.
    return elements(ctx) * integer(ctx, "N")


@count
def _unpacking_other(ctx: Context) -> int:
    # Each stored weight loses its zero point and is scaled; then the bias.
    weights = integer(ctx, "K") * integer(ctx, "N")
    return 2 * weights + (prod(produced(ctx)) if given(ctx, 5) else 0)


def _expert_weights(ctx: Context) -> tuple[int, ...]:
    """Operands that hold one matrix per expert."""
    return (2, 5, 8) if ctx.op.kind == "qmoe" else (2, 4, 6)


@count
def _experts_macs(ctx: Context) -> int:
    # Every row of the input goes through k experts; sub-byte weights are packed in bytes.
    rows = sizes(ctx, 1)[0] * integer(ctx, "k", 1)
    packed = 8 // integer(ctx, "expert_weight_bits", 4) if ctx.op.kind == "qmoe" else 1
    matrices = (sizes(ctx, at) for at in _expert_weights(ctx) if given(ctx, at))
    return rows * packed * sum(prod(shape[1:]) for shape in matrices)


@moves
def _experts_moved(ctx: Context) -> tuple[int, int]:
    # At most k experts a row are read, and no more than there are.
    rows, experts = sizes(ctx, 1)
    used = min(experts, rows * integer(ctx, "k", 1))
    stored = sum(size_of(tensor) for tensor in ctx.inputs[2:])
    read = size_of(ctx.inputs[0]) + size_of(ctx.inputs[1]) + stored * used // experts
    return read, size_of(ctx.outputs[0])


@tells
def _skip_norm(ctx: Context) -> Types:
    # Mean and deviation are training outputs that runtimes leave out; the sum is the last.
    known = (dtype(ctx), dims(ctx))
    return (known, None, None, known)


@tells
def _simplified_norm(ctx: Context) -> Types:
    shape = dims(ctx)
    axis = axis_of(integer(ctx, "axis", -1), len(shape))
    kept = (*shape[:axis], *(1 for _ in shape[axis:]))
    return ((dtype(ctx, 1), shape), (FLOAT, kept))


@tells
def _embed_norm(ctx: Context) -> Types:
    batch, steps = dims(ctx)
    table = 2
    shape = (batch, steps, dims(ctx, table)[-1])
    return ((dtype(ctx, table), shape), (DTYPES["int32"], (batch,)), (dtype(ctx, table), shape))


@tells
def _bias_split_gelu(ctx: Context) -> Types:
    *rest, last = dims(ctx)
    return ((dtype(ctx), (*rest, number(last) // 2)),)


@tells
def _qlinear_binary(ctx: Context) -> Types:
    return ((dtype(ctx), broadcast(dims(ctx, 0), dims(ctx, 3))),)


@tells
def _qlinear_where(ctx: Context) -> Types:
    return ((dtype(ctx, 1), broadcast(dims(ctx, 0), dims(ctx, 1), dims(ctx, 4))),)


@tells
def _qlinear_concat(ctx: Context) -> Types:
    # Operands: scale and zero point of the result, then (tensor, scale, zero point) each.
    shapes = [dims(ctx, at) for at in range(2, len(ctx.inputs), 3)]
    axis = axis_of(integer(ctx, "axis"), len(shapes[0]))
    joined = sum(number(shape[axis]) for shape in shapes)
    return ((dtype(ctx, 2), (*shapes[0][:axis], joined, *shapes[0][axis + 1 :])),)


@tells
def _quantized_lstm(ctx: Context) -> Types:
    steps, batch, _ = dims(ctx)
    directions, hidden, _ = dims(ctx, 2)
    last = (directions, batch, hidden)
    return (
        (dtype(ctx), (steps, directions, batch, hidden)),
        (dtype(ctx), last),
        (dtype(ctx), last),
    )


@count
def _quantized_lstm_macs(ctx: Context) -> int:
    steps, batch, width = (number(d) for d in dims(ctx))
    directions, hidden, rows = (number(d) for d in dims(ctx, 2))
    return steps * batch * directions * rows * (width + hidden)


@tells
def _bias_dropout(ctx: Context) -> Types:
    return ((dtype(ctx), dims(ctx)), (BOOL, dims(ctx)))


@tells
def _unique(ctx: Context) -> Types:
    return (None, (INT64, dims(ctx)), None)


@tells
def _expand_dims(ctx: Context) -> Types:
    shape = dims(ctx)
    axis = axis_of(integer(ctx, "axis"), len(shape) + 1)
    return ((dtype(ctx), (*shape[:axis], 1, *shape[axis:])),)


ROWS: Final = (
    OpSpec("fused_conv", conv_rule(1), workspace=unknown, macs=conv_macs(1),
           other_ops=fused_conv_other, engine="matrix", engine_if=conv_engine(1)),
    OpSpec("fused_gemm", _gemm, workspace=unknown, macs=_gemm_macs(0, 1),
           other_ops=per_output(2), engine="matrix"),
    OpSpec("qgemm", _qgemm, workspace=unknown, macs=_gemm_macs(0, 3), other_ops=bias_at(6),
           engine="matrix"),
    *(
        OpSpec(kind, _fused_matmul, workspace=unknown, macs=_fused_matmul_macs, other_ops=zero,
               engine="matrix")
        for kind in ("fused_matmul", "transpose_matmul")
    ),
    *(
        OpSpec(kind, _matmul_nbits, workspace=unknown, macs=_matmul_nbits_macs,
               other_ops=_unpacking_other, engine="matrix")
        for kind in ("matmul_nbits", "matmul_bnb4")
    ),
    OpSpec("matmul_integer_to_float", matmul_rule(0, 1, of=2), workspace=unknown,
           macs=matmul_macs(0, 1), other_ops=per_output(2), engine="matrix"),
    OpSpec("dynamic_quantize_matmul", matmul_rule(0, 1), workspace=unknown,
           macs=matmul_macs(0, 1), other_ops=per_output(2), engine="matrix"),
    # Element-wise, with one more operand or a bias along the last axis.
    *(
        OpSpec(kind, same(), inplace=inplace, workspace=zero, macs=zero,
               other_ops=per_output(operations))
        for kind, inplace, operations in (
            ("bias_add", (0, 2), 2),
            ("bias_gelu", (0,), 2),
            ("fast_gelu", (0,), 2),
        )
    ),
    OpSpec("bias_dropout", _bias_dropout, inplace=(0, 2), workspace=zero, macs=zero,
           other_ops=per_output(2), pure=False),
    OpSpec("bias_split_gelu", _bias_split_gelu, workspace=zero, macs=zero,
           other_ops=per_output(3)),
    OpSpec("bias_softmax", same(), workspace=unknown, macs=zero, other_ops=per_input(6)),
    # The sum with the skip tensor, then a normalisation (see `normalization`).
    OpSpec("skip_layer_normalization", _skip_norm, workspace=unknown, macs=zero,
           other_ops=per_input(8)),
    OpSpec("skip_simplified_layer_normalization", _skip_norm, workspace=unknown, macs=zero,
           other_ops=per_input(5)),
    OpSpec("simplified_layer_normalization", _simplified_norm, workspace=unknown, macs=zero,
           other_ops=per_input(4)),
    OpSpec("embed_layer_normalization", _embed_norm, workspace=unknown, macs=zero,
           other_ops=per_output(9)),
    OpSpec("group_norm", same(), workspace=unknown, macs=zero, other_ops=per_input(7)),
    # Dequantise two operands, combine, requantise: four operations per element.
    *(
        OpSpec(kind, _qlinear_binary, inplace=(0, 3), workspace=zero, macs=zero,
               other_ops=per_output(4))
        for kind in ("qlinear_add", "qlinear_mul")
    ),
    *(
        OpSpec(kind, same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output(3))
        for kind in ("qlinear_leaky_relu", "qlinear_sigmoid")
    ),
    OpSpec("qlinear_where", _qlinear_where, inplace=(1, 4), workspace=zero, macs=zero,
           other_ops=per_output(3)),
    OpSpec("qlinear_softmax", same(), workspace=unknown, macs=zero, other_ops=per_input(7)),
    OpSpec("qlinear_reduce_mean", reduced, workspace=unknown, macs=zero, other_ops=per_input()),
    # Each operand has a scale of its own, so its bytes change on the way: no parts.
    OpSpec("qlinear_concat", _qlinear_concat, workspace=zero, macs=zero,
           other_ops=per_output(3)),
    OpSpec("dynamic_quantize_lstm", _quantized_lstm, workspace=unknown,
           macs=_quantized_lstm_macs, other_ops=unknown, engine="matrix"),
    OpSpec("inverse", same(), workspace=unknown, macs=unknown, other_ops=unknown),
    *(
        OpSpec(kind, same(), workspace=unknown, macs=_experts_macs, other_ops=unknown,
               bytes_moved=_experts_moved, engine="matrix")
        for kind in ("moe", "qmoe")
    ),
    OpSpec("ms_unique", _unique, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("expand_dims", _expand_dims, views=whole, workspace=zero, macs=zero, other_ops=zero,
           engine="none"),
)  # fmt: skip
