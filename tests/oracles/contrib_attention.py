"""Recipes: attention, states, rotations and recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .contrib import Z8, Recipe, S, f, i32, ids, u8


def attention() -> Iterator[Recipe]:
    """Attention with and without what came before: batch 2, 5 tokens, 3 heads of 4."""
    x, heads = f(2, 5, 12), {"num_heads": 3}
    yield Recipe("Attention", (f(2, 5, 7), f(7, 36), f(36)), heads)
    yield Recipe(
        "Attention",
        (f(2, 5, 7), f(7, 36), f(36), None, f(2, 2, 3, 6, 4)),
        heads,
        results=2,
        note="past",
    )
    wide = heads | {"qkv_hidden_sizes": [12, 12, 24]}
    yield Recipe("Attention", (f(2, 5, 7), f(7, 48), f(48)), wide, note="wide values")
    quant = (u8(2, 5, 7), u8(7, 36), f(36), S, S)
    yield Recipe("QAttention", (*quant, None, Z8, Z8), heads, stored=(1, 2, 3, 4, 6, 7))
    yield Recipe(
        "QAttention",
        (*quant, None, Z8, Z8, f(2, 2, 3, 6, 4)),
        heads,
        results=2,
        stored=(1, 2, 3, 4, 6, 7),
        note="past",
    )
    yield Recipe("MultiHeadAttention", (x, f(2, 7, 12), f(2, 7, 24)), heads)
    past = (f(2, 3, 6, 4), f(2, 3, 6, 4))
    yield Recipe(
        "MultiHeadAttention", (x, x, x, None, None, None, *past), heads, results=3, note="past"
    )
    step, buffer = f(2, 1, 12), f(2, 3, 8, 4)
    yield Recipe(
        "DecoderMaskedMultiHeadAttention",
        (step, step, step, None, None, buffer, buffer, i32([6])),
        heads | {"past_present_share_buffer": 1},
        results=3,
    )
    group = {"num_heads": 4, "kv_num_heads": 2}
    lens = (i32([4, 4]), i32(5))
    none = (f(2, 2, 0, 8), f(2, 2, 0, 8))
    yield Recipe(
        "GroupQueryAttention",
        (f(2, 5, 32), f(2, 5, 16), f(2, 5, 16), *none, *lens),
        group,
        results=3,
        stored=(6,),
    )
    yield Recipe(
        "GroupQueryAttention",
        (f(2, 5, 64), None, None, *none, *lens),
        group,
        results=3,
        stored=(6,),
        note="packed",
    )
    kept = (f(2, 2, 6, 8), f(2, 2, 6, 8), i32([6, 6]), i32(7))
    yield Recipe(
        "GroupQueryAttention",
        (f(2, 1, 32), f(2, 1, 16), f(2, 1, 16), *kept),
        group,
        results=3,
        stored=(6,),
        note="past",
    )
    rows, columns = i32([[0, 1, 3]]), i32([[0, 0, 1]])
    yield Recipe(
        "SparseAttention",
        (
            f(1, 32, 32),
            f(1, 32, 16),
            f(1, 32, 16),
            f(1, 2, 32, 8),
            f(1, 2, 32, 8),
            rows,
            columns,
            i32(32),
            i32([32]),
        ),
        group | {"sparse_block_size": 16},
        results=3,
        over={1: 3, 2: 4},
    )


def states() -> Iterator[Recipe]:
    """Attention that keeps a state instead of keys, and causal convolutions."""
    yield Recipe(
        "LinearAttention",
        (f(2, 5, 12), f(2, 5, 12), f(2, 5, 18), f(2, 3, 4, 6)),
        {"q_num_heads": 3, "kv_num_heads": 3, "update_rule": "linear"},
        results=2,
    )
    yield Recipe(
        "GatedDeltaNet",
        (f(2, 5, 3, 4), f(2, 5, 3, 4), f(2, 5, 3, 6), None, f(2, 5, 3), f(2, 5, 3), f(2, 3, 6, 4)),
        results=2,
    )
    yield Recipe("CausalConvWithState", (f(2, 6, 7), f(6, 1, 4), f(6), f(2, 6, 3)), results=2)
    yield Recipe(
        "VarlenCausalConvWithState",
        (f(7, 6), f(6, 1, 4), i32([0, 3, 7]), f(6), f(2, 6, 3)),
        results=2,
    )


def rotations() -> Iterator[Recipe]:
    """Positions as rotations."""
    table = (f(9, 2), f(9, 2))
    yield Recipe("RotaryEmbedding", (f(2, 3, 5, 4), ids(2, 5, dtype=np.int64), *table))
    yield Recipe("RotaryEmbedding", (f(2, 5, 12), ids(2, 5, dtype=np.int64), *table), note="flat")
    yield Recipe(
        "MRotaryEmbedding",
        (f(2, 3, 5, 4), ids(3, 2, 5, dtype=np.int64), *table),
        {"mrope_section": [1, 1, 0]},
    )


def recurrent() -> Iterator[Recipe]:
    """LSTM, quantised or with attention: 5 steps, batch 2, 4 hidden."""
    quant = (
        f(5, 2, 3),
        u8(1, 3, 16),
        u8(1, 4, 16),
        f(1, 32),
        None,
        None,
        None,
        None,
        f(1),
        u8(1),
        f(1),
        u8(1),
    )
    yield Recipe(
        "DynamicQuantizeLSTM", quant, {"hidden_size": 4}, results=3, stored=(1, 2, 8, 9, 10, 11)
    )
    attending = (
        f(5, 2, 3),
        f(1, 16, 9),
        f(1, 16, 4),
        f(1, 32),
        i32([5, 5]),
        None,
        None,
        None,
        f(1, 4, 7),
        f(1, 8, 7),
        f(1, 7),
        f(2, 11, 8),
        i32([11, 11]),
        f(1, 12, 6),
    )
    yield Recipe("AttnLSTM", attending, {"hidden_size": 4}, results=3)


def recipes() -> Iterator[Recipe]:
    """All of this file."""
    for part in (attention, states, rotations, recurrent):
        yield from part()
