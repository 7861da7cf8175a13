"""com.microsoft operators beyond layers: gates, norms, indexing, hashes, windows.

Signatures follow ONNX Runtime's contrib operator documentation, sizes what its kernels make.
Work is counted where the operator's definition says what it is; the rest stays unknown.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.types import DTYPES, Shape
from peakfold.ops.inference import CannotTell, dims, dtype, given, integer, ints, needed, sizes
from peakfold.ops.rules import (
    INT64,
    Types,
    axis_of,
    count,
    elements,
    number,
    per_output,
    same,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.standard.convolution import conv_engine, conv_transpose, conv_transpose_macs
from peakfold.ops.standard.matmul import matmul_macs, matmul_rule
from peakfold.ops.standard.pooling import pooled, window_operations

INT32: Final = DTYPES["int32"]


@tells
def _of_scores(ctx: Context) -> Types:
    return ((dtype(ctx, 1), dims(ctx, 1)),)


@tells
def _hashed(ctx: Context) -> Types:
    positive = integer(ctx, "positive", 1)
    return ((DTYPES["uint32"] if positive else INT32, dims(ctx)),)


@tells
def _distances(ctx: Context) -> Types:
    return ((dtype(ctx), (dims(ctx, 0)[0], dims(ctx, 1)[0])),)


@count
def _distance_other(ctx: Context) -> int:
    # A difference, its square and the sum, for each pair of rows.
    return 3 * elements(ctx) * sizes(ctx, 1)[0]


@tells
def _blocks(ctx: Context) -> Types:
    _, columns = needed(ints(ctx, "b_shape"))
    return ((dtype(ctx), (*dims(ctx)[:-1], columns)),)


@tells
def _cropped(ctx: Context) -> Types:
    rows, columns = needed(ints(ctx, "crop_size"))
    return ((dtype(ctx), (dims(ctx, 1)[0], dims(ctx)[1], rows, columns)),)


@tells
def _word_embedding(ctx: Context) -> Types:
    return ((dtype(ctx, 1), (dims(ctx)[0], dims(ctx, 1)[0])),)


@tells
def _gathered_blocks(ctx: Context) -> Types:
    # Bytes hold several values of fewer bits, along the last axis.
    data = list(dims(ctx))
    if dtype(ctx).name == "uint8":
        data[-1] = number(data[-1]) * (8 // integer(ctx, "bits", 4))
    axis = axis_of(integer(ctx, "gather_axis", 0), len(data))
    return ((dtype(ctx, 2), (*data[:axis], *dims(ctx, 1), *data[axis + 1 :])),)


@tells
def _gathered_rows(ctx: Context) -> Types:
    found = integer(ctx, "output_dtype", 16)
    element = {1: "float32", 10: "float16", 16: "bfloat16"}.get(found)
    if element is None:
        raise CannotTell
    return ((DTYPES[element], (*dims(ctx, 1), integer(ctx, "K"))),)


@tells
def _unfolded(ctx: Context) -> Types:
    shape, size = dims(ctx), integer(ctx, "size")
    axis = axis_of(integer(ctx, "dim", -1), len(shape))
    windows = (number(shape[axis]) - size) // integer(ctx, "step", 1) + 1
    return ((dtype(ctx), (*shape[:axis], windows, *shape[axis + 1 :], size)),)


@tells
def _forked(_ctx: Context) -> Types:
    return (None, (INT64, ()))  # how many tokens agree decides the first


@tells
def _ngrams(ctx: Context) -> Types:
    # Every n-gram of two and more tokens has as many heads; the last tokens are kept.
    before = integer(ctx, "max_ngram_size") - 1
    heads = before * integer(ctx, "n_head_per_ngram")
    shape = dims(ctx)
    if ctx.op.kind == "ngram_hash_mapping":
        return ((dtype(ctx), (*shape, heads)), (dtype(ctx), (shape[0], before)))
    kept: Shape = (number(dims(ctx, 3)[0]) - 1, before)
    return ((dtype(ctx), (*shape, heads)), (dtype(ctx), kept), (INT32, kept))


@tells
def _embedded_bytes(ctx: Context) -> Types:
    batch, steps = dims(ctx)
    return ((dtype(ctx, 8), (batch, steps, dims(ctx, 2)[-1])), (INT32, (batch,)))


@tells
def _twice(ctx: Context) -> Types:
    return ((dtype(ctx), dims(ctx)),) * 2


@tells
def _first_and_fourth(ctx: Context) -> Types:
    second = (dtype(ctx, 3), dims(ctx, 3)) if given(ctx, 3) else None
    return ((dtype(ctx), dims(ctx)), second)


@tells
def _mixed_streams(ctx: Context) -> Types:
    # Streams lie side by side in the last axis where their number is stated.
    shape, branches = dims(ctx), integer(ctx, "num_branches", 0)
    if branches:
        return ((dtype(ctx), (*shape[:-1], number(shape[-1]) // branches)),)
    return ((dtype(ctx), (*shape[:-2], shape[-1])),)


@tells
def _routed(ctx: Context) -> Types:
    return ((dtype(ctx), dims(ctx)),) * 3


ROWS: Final = (
    *(
        OpSpec(kind, same(), workspace=unknown, macs=zero, other_ops=unknown)
        for kind in ("branchwise_rms_norm", "gated_rms_norm", "hyper_connection_post_mix",
                     "sample_op")
    ),
    OpSpec("scaled_silu", same(), workspace=zero, macs=zero, other_ops=per_output(3)),
    OpSpec("gated_add", same(), workspace=unknown, macs=zero, other_ops=per_output(2)),
    OpSpec("hyper_connection_pre_mix", _mixed_streams, workspace=unknown, macs=zero,
           other_ops=unknown),
    OpSpec("engram_gate", _twice, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("linear_attention_gate", _first_and_fourth, workspace=unknown, macs=zero,
           other_ops=unknown),
    OpSpec("moe_group_router", _routed, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("qembed_layer_normalization", _embedded_bytes, workspace=unknown, macs=zero,
           other_ops=per_output(9)),
    OpSpec("ngram_repeat_block", _of_scores, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("murmur_hash3", _hashed, workspace=zero, macs=zero, other_ops=unknown),
    *(
        OpSpec(kind, _ngrams, workspace=unknown, macs=zero, other_ops=unknown)
        for kind in ("ngram_hash_mapping", "varlen_ngram_hash_mapping")
    ),
    OpSpec("bifurcation_detector", _forked, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("dynamic_time_warping", None, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("tokenizer", None, workspace=unknown, macs=zero, other_ops=zero),
    OpSpec("cdist", _distances, workspace=unknown, macs=zero, other_ops=_distance_other),
    OpSpec("matmul_integer16", matmul_rule(0, 1, INT32), workspace=unknown,
           macs=matmul_macs(0, 1), other_ops=zero, engine="matrix"),
    OpSpec("matmul_fp_q4", _blocks, workspace=unknown,
           macs=count(lambda ctx: elements(ctx) * needed(ints(ctx, "b_shape"))[1]),
           other_ops=unknown, engine="matrix"),
    OpSpec("sparse_to_dense_matmul", None, workspace=unknown, macs=unknown, other_ops=unknown),
    OpSpec("conv_transpose_with_dynamic_pads", conv_transpose, workspace=unknown,
           macs=conv_transpose_macs, other_ops=unknown, engine="matrix", engine_if=conv_engine(1)),
    OpSpec("maxpool_with_mask", pooled, workspace=unknown, macs=zero, other_ops=window_operations),
    OpSpec("crop_and_resize", _cropped, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("word_conv_embedding", _word_embedding, workspace=unknown, macs=unknown,
           other_ops=unknown),
    OpSpec("gather_block_quantized", _gathered_blocks, workspace=unknown, macs=zero,
           other_ops=per_output(2)),
    OpSpec("gather_packed", _gathered_rows, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("unfold_tensor", _unfolded, workspace=zero, macs=zero, other_ops=zero, engine="copy"),
)  # fmt: skip
