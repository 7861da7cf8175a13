"""Attention operators of com.microsoft: several operand layouts behind one product count.

Signatures follow ONNX Runtime's contrib operator documentation. Masked positions are not
discounted, and scratch is unknown (see `attention`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from peakfold.ir.types import Dim
from peakfold.ops.inference import CannotTell, dims, dtype, given, integer, ints, sizes
from peakfold.ops.rules import (
    STOPS,
    Types,
    count,
    masks,
    number,
    per_input,
    same,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec, OutputType
from peakfold.ops.standard.attention import masked_pairs, per_score


class _Fused(NamedTuple):
    batch: Dim
    steps: Dim
    width: Dim
    past: int
    q_hidden: int
    k_hidden: int
    v_hidden: int


def _fused_sizes(ctx: Context, past_at: int) -> _Fused:
    """Sizes of an attention that projects its input by one weight for Q, K and V."""
    batch, steps, width = dims(ctx)
    stated = ints(ctx, "qkv_hidden_sizes")
    third, left = divmod(number(dims(ctx, 1)[1]), 3)
    if stated is None and left:
        raise CannotTell
    q, k, v = stated or (third, third, third)
    past = number(dims(ctx, past_at)[3]) if given(ctx, past_at) else 0
    return _Fused(batch, steps, width, past, q, k, v)


def _fused_types(ctx: Context, past_at: int, element_at: int) -> Types:
    s = _fused_sizes(ctx, past_at)
    element, heads = dtype(ctx, element_at), integer(ctx, "num_heads")
    result = (element, (s.batch, s.steps, s.v_hidden))
    if len(ctx.op.outputs) < 2:
        return (result,)
    length = number(s.steps) + s.past
    return (result, (element, (2, s.batch, heads, length, s.v_hidden // heads)))


def _fused_macs(ctx: Context, past_at: int) -> int:
    # The projection, the scores, and their product with the values.
    s = _fused_sizes(ctx, past_at)
    batch, steps, width = number(s.batch), number(s.steps), number(s.width)
    projection = batch * steps * width * (s.q_hidden + s.k_hidden + s.v_hidden)
    return projection + batch * steps * (steps + s.past) * (s.q_hidden + s.v_hidden)


def _fused_other(ctx: Context, past_at: int, mask_at: int, added_at: int) -> int:
    # The bias of the projection, rotations (3 per element), and what each score costs.
    s = _fused_sizes(ctx, past_at)
    rows, heads = number(s.batch) * number(s.steps), integer(ctx, "num_heads")
    bias = (s.q_hidden + s.k_hidden + s.v_hidden) if given(ctx, 2) else 0
    rotated = 3 * (s.q_hidden + s.k_hidden) if integer(ctx, "do_rotary", 0) else 0
    scores = rows * heads * (number(s.steps) + s.past)
    return rows * (bias + rotated) + scores * per_score(ctx, mask_at, added_at)


def _fused_masked(ctx: Context, past_at: int, mask_at: int, added_at: int) -> tuple[int, int]:
    if not integer(ctx, "unidirectional", 0):
        return 0, 0
    s = _fused_sizes(ctx, past_at)
    steps = number(s.steps)
    pairs = number(s.batch) * masked_pairs(steps, steps + s.past, s.past)
    scores = pairs * integer(ctx, "num_heads")
    return pairs * (s.q_hidden + s.v_hidden), scores * per_score(ctx, mask_at, added_at)


class _Multi(NamedTuple):
    batch: Dim
    steps: Dim
    kv_len: Dim
    hidden: int
    v_hidden: int


def _multi_sizes(ctx: Context) -> _Multi:
    """Sizes of a multi-head attention, whose Q, K, V may come packed."""
    heads, query = integer(ctx, "num_heads"), dims(ctx)
    if len(query) == 5:  # Q, K and V packed: (batch, steps, heads, 3, width)
        hidden = heads * number(query[4])
        return _Multi(query[0], query[1], query[1], hidden, hidden)
    batch, steps, hidden_dim = query
    hidden = number(hidden_dim)
    key = dims(ctx, 1)
    if len(key) == 5:  # K and V packed: (batch, length, heads, 2, width)
        return _Multi(batch, steps, key[1], hidden, heads * number(key[4]))
    value = dims(ctx, 2)
    past = number(dims(ctx, 6)[2]) if given(ctx, 6) else 0
    if len(key) == 4:  # projected before: (batch, heads, length, width)
        return _Multi(batch, steps, number(key[2]) + past, hidden, heads * number(value[3]))
    kv_len = key[1] if not past else number(key[1]) + past
    return _Multi(batch, steps, kv_len, hidden, number(value[2]))


@tells
def _multi_head(ctx: Context) -> Types:
    s, heads = _multi_sizes(ctx), integer(ctx, "num_heads")
    element = dtype(ctx)
    key = (s.batch, heads, s.kv_len, s.hidden // heads)
    value = (s.batch, heads, s.kv_len, s.v_hidden // heads)
    return ((element, (s.batch, s.steps, s.v_hidden)), (element, key), (element, value))


@count
def _multi_head_macs(ctx: Context) -> int:
    s = _multi_sizes(ctx)
    return number(s.batch) * number(s.steps) * number(s.kv_len) * (s.hidden + s.v_hidden)


@count
def _multi_head_other(ctx: Context) -> int:
    s = _multi_sizes(ctx)
    rows = number(s.batch) * number(s.steps)
    bias = sum(sizes(ctx, 3)) * rows if given(ctx, 3) else 0
    scores = rows * number(s.kv_len) * integer(ctx, "num_heads")
    return bias + scores * per_score(ctx, 4, 5)


@masks
def _multi_head_masked(ctx: Context) -> tuple[int, int]:
    if not integer(ctx, "unidirectional", 0):
        return 0, 0
    s = _multi_sizes(ctx)
    steps, keys = number(s.steps), number(s.kv_len)
    past = number(dims(ctx, 6)[2]) if given(ctx, 6) else 0
    pairs = number(s.batch) * masked_pairs(steps, keys, past)
    scores = pairs * integer(ctx, "num_heads")
    return pairs * (s.hidden + s.v_hidden), scores * per_score(ctx, 4, 5)


def _query_width(ctx: Context) -> int:
    """Hidden size of the queries; Q, K and V may come packed along the last axis."""
    hidden, heads = number(dims(ctx)[2]), integer(ctx, "num_heads")
    if given(ctx, 1):
        return hidden
    each, left = divmod(hidden, heads + 2 * integer(ctx, "kv_num_heads"))
    if left:
        raise CannotTell
    return heads * each


@tells
def _grouped(ctx: Context) -> Types:
    # The caches are as long as all that was said, or as the past's buffer where that is longer.
    batch, steps, _ = dims(ctx)
    result = (dtype(ctx), (batch, steps, _query_width(ctx)))
    try:
        return (result, *(_cache(ctx, at) for at in (3, 4)))
    except STOPS:
        return (result, None, None)


def _cache(ctx: Context, past_at: int) -> OutputType:
    total, groups = integer(ctx, "total_sequence_length"), integer(ctx, "kv_num_heads")
    if given(ctx, past_at):
        batch, heads, length, width = dims(ctx, past_at)
        return dtype(ctx, past_at), (batch, heads, max(total, number(length)), width)
    return dtype(ctx), (dims(ctx)[0], groups, total, _query_width(ctx) // integer(ctx, "num_heads"))


@count
def _grouped_macs(ctx: Context) -> int:
    batch, steps, _ = (number(dim) for dim in dims(ctx))
    return batch * steps * integer(ctx, "total_sequence_length") * 2 * _query_width(ctx)


@count
def _grouped_other(ctx: Context) -> int:
    # Rotations of queries and new keys, and what each score costs.
    batch, steps, _ = (number(dim) for dim in dims(ctx))
    width, heads = _query_width(ctx), integer(ctx, "num_heads")
    keys = width // heads * integer(ctx, "kv_num_heads")
    rotated = 3 * batch * steps * (width + keys) if integer(ctx, "do_rotary", 0) else 0
    scores = batch * heads * steps * integer(ctx, "total_sequence_length")
    return rotated + scores * per_score(ctx)


@masks
def _grouped_masked(ctx: Context) -> tuple[int, int]:
    # Always causal: it is the decoder's attention.
    batch, steps, _ = (number(dim) for dim in dims(ctx))
    total = integer(ctx, "total_sequence_length")
    pairs = batch * masked_pairs(steps, total, total - steps)
    scores = pairs * integer(ctx, "num_heads")
    return pairs * 2 * _query_width(ctx), scores * per_score(ctx)


ROWS: Final = (
    OpSpec("ms_attention", tells(lambda ctx: _fused_types(ctx, 4, 0)), workspace=unknown,
           macs=count(lambda ctx: _fused_macs(ctx, 4)),
           other_ops=count(lambda ctx: _fused_other(ctx, 4, 3, 5)),
           masked=masks(lambda ctx: _fused_masked(ctx, 4, 3, 5)), engine="matrix"),
    OpSpec("qattention", tells(lambda ctx: _fused_types(ctx, 8, 3)), workspace=unknown,
           macs=count(lambda ctx: _fused_macs(ctx, 8)),
           other_ops=count(lambda ctx: _fused_other(ctx, 8, 5, 9)),
           masked=masks(lambda ctx: _fused_masked(ctx, 8, 5, 9)), engine="matrix"),
    OpSpec("multi_head_attention", _multi_head, workspace=unknown, macs=_multi_head_macs,
           other_ops=_multi_head_other, masked=_multi_head_masked, engine="matrix"),
    OpSpec("group_query_attention", _grouped, workspace=unknown, macs=_grouped_macs,
           other_ops=_grouped_other, masked=_grouped_masked, engine="matrix"),
    OpSpec("ms_rotary_embedding", same(), workspace=unknown, macs=zero, other_ops=per_input(3)),
)  # fmt: skip
