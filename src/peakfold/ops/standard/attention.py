"""Attention of the standard operator set: scaled dot product, linear, rotary positions.

Scratch is unknown: a plain kernel keeps all scores, a fused one a tile of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from peakfold.ir.types import Dim
from peakfold.ops.inference import CannotTell, dims, dtype, given, integer, text
from peakfold.ops.rules import Types, count, masks, number, per_input, same, tells, unknown, zero
from peakfold.ops.spec import Context, OpSpec


class Heads(NamedTuple):
    """Sizes of one attention call."""

    batch: Dim
    q_heads: Dim
    kv_heads: Dim
    q_len: Dim
    kv_len: Dim
    """Keys attended to, cached ones included."""
    width: Dim
    v_width: Dim


def _split(size: Dim, heads: int) -> int:
    if heads < 1 or number(size) % heads:
        raise CannotTell
    return number(size) // heads


def heads_of(ctx: Context) -> Heads:
    """Sizes from 4-D operands, or from 3-D ones and the head counts."""
    q, k, v = dims(ctx, 0), dims(ctx, 1), dims(ctx, 2)
    if len(q) == 4:
        (batch, q_heads, q_len, width), (_, kv_heads, kv_len, _), v_width = q, k, v[3]
    else:
        q_heads, kv_heads = integer(ctx, "q_num_heads"), integer(ctx, "kv_num_heads")
        (batch, q_len, hidden), (_, kv_len, _) = q, k
        width, v_width = _split(hidden, q_heads), _split(v[2], kv_heads)
    if given(ctx, 4):
        past = dims(ctx, 4)[2]
        kv_len = number(kv_len) + number(past)
    return Heads(batch, q_heads, kv_heads, q_len, kv_len, width, v_width)


@tells
def _attention(ctx: Context) -> Types:
    h = heads_of(ctx)
    element, value = dtype(ctx), dtype(ctx, 2)
    if len(dims(ctx)) == 4:
        result: tuple[Dim, ...] = (h.batch, h.q_heads, h.q_len, h.v_width)
    else:
        result = (h.batch, h.q_len, number(h.q_heads) * number(h.v_width))
    return (
        (element, result),
        (element, (h.batch, h.kv_heads, h.kv_len, h.width)),
        (value, (h.batch, h.kv_heads, h.kv_len, h.v_width)),
        (element, (h.batch, h.q_heads, h.q_len, h.kv_len)),
    )


def _scores(h: Heads) -> int:
    return number(h.batch) * number(h.q_heads) * number(h.q_len) * number(h.kv_len)


@count
def _attention_macs(ctx: Context) -> int:
    # Scores, then their product with the values; masked positions are not discounted.
    h = heads_of(ctx)
    return _scores(h) * (number(h.width) + number(h.v_width))


@count
def _attention_other(ctx: Context) -> int:
    return _scores(heads_of(ctx)) * per_score(ctx, 3)


def per_score(ctx: Context, *masks_at: int) -> int:
    """Operations on a score: softmax as in `reduce` (5), the scale, an addition per mask."""
    return 6 + sum(given(ctx, at) for at in masks_at)


def masked_pairs(queries: int, keys: int, past: int) -> int:
    """Pairs of query and key that a causal mask hides, `past` keys being older than query 0.

    Query i sees keys 0 to past + i.

    Example:
        >>> masked_pairs(4, 4, 0), masked_pairs(1, 9, 8), masked_pairs(2, 9, 7)
        (6, 0, 1)
    """
    behind = max(keys - past, 0)  # keys that query 0 would reach if there were no mask
    rows = min(queries, behind)
    return rows * (behind - 1) - rows * (rows - 1) // 2


@masks
def _attention_masked(ctx: Context) -> tuple[int, int]:
    if not integer(ctx, "is_causal", 0):
        return 0, 0
    h = heads_of(ctx)
    past = number(dims(ctx, 4)[2]) if given(ctx, 4) else 0
    pairs = masked_pairs(number(h.q_len), number(h.kv_len), past)
    hidden = number(h.batch) * number(h.q_heads) * pairs
    return hidden * (number(h.width) + number(h.v_width)), hidden * per_score(ctx, 3)


class _Linear(NamedTuple):
    batch: Dim
    steps: Dim
    q_heads: int
    kv_heads: int
    width: int
    v_width: int


def _linear_sizes(ctx: Context) -> _Linear:
    (batch, steps, hidden), v = dims(ctx), dims(ctx, 2)
    q_heads, kv_heads = integer(ctx, "q_num_heads"), integer(ctx, "kv_num_heads")
    width, v_width = _split(hidden, q_heads), _split(v[2], kv_heads)
    return _Linear(batch, steps, q_heads, kv_heads, width, v_width)


@tells
def _linear_attention(ctx: Context) -> Types:
    s = _linear_sizes(ctx)
    state = dtype(ctx, 3) if given(ctx, 3) else dtype(ctx)
    carried = (s.batch, s.kv_heads, s.width, s.v_width)
    return ((dtype(ctx), (s.batch, s.steps, s.q_heads * s.v_width)), (state, carried))


@count
def _linear_attention_macs(ctx: Context) -> int:
    # The recurrence as specified, step by step: the outer product added to the state, the
    # query's product with it, and for the delta rules the key's product with it.
    s = _linear_sizes(ctx)
    delta = text(ctx, "update_rule", "gated_delta") in ("delta", "gated_delta")
    products = s.kv_heads * (2 if delta else 1) + s.q_heads
    return number(s.batch) * number(s.steps) * products * s.width * s.v_width


ROWS: Final = (
    OpSpec("attention", _attention, workspace=unknown, macs=_attention_macs,
           other_ops=_attention_other, masked=_attention_masked, engine="matrix"),
    OpSpec("linear_attention", _linear_attention, workspace=unknown,
           macs=_linear_attention_macs, other_ops=unknown, engine="matrix"),
    # The score and probability functions are subgraphs: only the two products are counted.
    OpSpec("flex_attention", _attention, workspace=unknown, macs=_attention_macs,
           other_ops=unknown, engine="matrix"),
    # Two products and one sum per rotated element; a partial rotation costs less.
    OpSpec("rotary_embedding", same(), workspace=unknown, macs=zero,
           other_ops=per_input(3)),
)  # fmt: skip
