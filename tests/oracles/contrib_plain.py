"""Recipes: element-wise operators, products, windows, quantised layers, indexing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .contrib import Z8, ZS8, Recipe, S, f, h, i32, i64, ids, s8, u8
from .running import Sparse


def elementwise() -> Iterator[Recipe]:
    """Same shape, or nearly."""
    x = f(2, 3, 5, 7)
    for op in ("Gelu", "QuickGelu", "ScaledSiLU", "SampleOp"):
        yield Recipe(op, (x,))
    yield Recipe("ScaledSiLU", (x, np.array(2, np.float32)), note="scale")
    yield Recipe("BiasGelu", (x, f(7)))
    yield Recipe("FastGelu", (x, f(7)))
    yield Recipe("GatedAdd", (f(2, 5, 12), f(2, 5, 12), f(2, 5, 1)))
    yield Recipe("ExpandDims", (x, i32(1)), stored=(1,))
    yield Recipe("ExpandDims", (x, i32(-1)), stored=(1,), note="last")
    yield Recipe("Trilu", (f(2, 5, 7), i64(1)), stored=(1,))
    yield Recipe("MurmurHash3", (ids(2, 3, 5),))
    yield Recipe("Inverse", (f(2, 3, 5, 5) + 5 * np.eye(5, dtype=np.float32),))
    yield Recipe("QuantizeLinear", (x, S, Z8))
    yield Recipe("QuantizeLinear", (x, f(3) + 1, u8(3)), {"axis": 1}, note="per channel")
    yield Recipe("DequantizeLinear", (u8(2, 3, 5), S, Z8))
    yield Recipe("DequantizeLinear", (u8(2, 3, 5), f(3), u8(3)), {"axis": 1}, note="per channel")
    for op in ("QLinearLeakyRelu", "QLinearSigmoid"):
        yield Recipe(op, (u8(2, 3, 5), S, Z8, S, Z8), stored=(1, 2, 3, 4))
    for op in ("QLinearAdd", "QLinearMul"):
        yield Recipe(op, (u8(2, 1, 5), S, Z8, u8(3, 1), S, Z8, S, Z8))
    yield Recipe(
        "QLinearSoftmax",
        (u8(2, 3, 5), S, Z8, S, Z8),
        {"axis": -1, "opset": 13},
        stored=(1, 2, 3, 4),
    )
    where = (np.ones((2, 1, 5), bool), u8(3, 1), S, Z8, u8(2, 3, 5), S, Z8, S, Z8)
    yield Recipe("QLinearWhere", where, stored=(2, 3, 5, 6, 7, 8))


def products() -> Iterator[Recipe]:
    """Matrix products of all kinds."""
    for flags in range(8):
        a, b, batch = flags & 1, flags >> 1 & 1, flags >> 2
        left = (2, 5, 3) if not a else (2, 3, 5)
        right = (2, 3, 7) if not b else (2, 7, 3)
        if batch:  # the batch lies before the last axis
            left = (left[1], left[0], left[2])
        attrs = {"transA": a, "transB": b, "transBatchA": batch}
        yield Recipe("FusedMatMul", (f(*left), f(*right)), attrs, note=f"{a}{b}{batch}")
    yield Recipe("FusedMatMul", (f(3, 2, 4, 5), f(2, 4, 5, 7)), {"transBatchA": 1}, note="4d")
    yield Recipe("FusedMatMul", (f(2, 4, 3, 5), f(5, 2, 4, 7)), {"transBatchB": 1}, note="batch b")
    yield Recipe("FusedMatMul", (f(5), f(5, 7)), note="vector")
    yield Recipe("TransposeMatMul", (f(2, 3, 5), f(2, 3, 7)), {"transA": 1})
    yield Recipe(
        "FusedGemm", (f(3, 5), f(7, 3), f(7)), {"transA": 1, "transB": 1, "activation": "Relu"}
    )
    yield Recipe("QGemm", (s8(3, 5), S, ZS8, s8(5, 7), S, ZS8, ids(7), S, ZS8))
    yield Recipe("QGemm", (s8(3, 5), S, ZS8, s8(7, 5), S, ZS8), {"transB": 1}, note="float")
    yield Recipe("DynamicQuantizeMatMul", (f(2, 3, 5), u8(5, 7), S, Z8))
    yield Recipe("MatMulIntegerToFloat", (u8(2, 3, 5), u8(5, 7), S, S, Z8, Z8))
    yield Recipe("MatMulInteger16", (ids(2, 3, 5, dtype=np.int16), ids(5, 7, dtype=np.int16)))
    packed = {"K": 48, "N": 7, "block_size": 16, "bits": 4}
    yield Recipe("MatMulNBits", (f(2, 3, 48), u8(7, 3, 8), f(7, 3)), packed, stored=(1, 2))
    yield Recipe(
        "MatMulNBits",
        (f(5, 48), u8(7, 3, 8), f(7, 3), u8(7, 2), None, f(7)),
        packed,
        stored=(1, 2, 3, 5),
        note="bias",
    )
    bnb = {"K": 48, "N": 8, "block_size": 16, "quant_type": 0}
    yield Recipe("MatMulBnb4", (f(2, 3, 48), u8(192), f(24)), bnb, stored=(1, 2))
    yield Recipe(
        "MatMulFpQ4", (f(3, 64), u8(2 * 7 * 20), i64([64, 7])), {"blk_quant_type": 0}, stored=(1, 2)
    )
    yield Recipe("CDist", (f(3, 5), f(7, 5)))
    sparse = Sparse((3, 5), f(4), np.array([[0, 1], [0, 4], [1, 2], [2, 2]], np.int64))
    yield Recipe("SparseToDenseMatMul", (sparse, f(5, 7)))


def windows() -> Iterator[Recipe]:
    """Convolutions and pools."""
    x, w = f(2, 3, 9, 13), f(4, 3, 3, 2)
    odd = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 0, 1]}
    yield Recipe("FusedConv", (x, w, f(4)), odd | {"activation": "Relu"})
    q = (u8(2, 3, 9, 13), S, Z8, u8(4, 3, 3, 2), S, Z8, S, Z8, ids(4))
    rest = tuple(range(1, 9))
    yield Recipe("QLinearConv", q, odd, stored=rest)
    last = (u8(2, 9, 13, 3), *q[1:])
    yield Recipe("QLinearConv", last, odd | {"channels_last": 1}, stored=rest, note="last")
    yield Recipe(
        "ConvTransposeWithDynamicPads",
        (x, f(3, 4, 3, 2), i64([0, 1, 1, 0]), f(4)),
        {"strides": [2, 3]},
        stored=(2,),
    )
    yield Recipe("QLinearAveragePool", (u8(2, 3, 9, 13), S, Z8, S, Z8), odd, stored=(1, 2, 3, 4))
    yield Recipe(
        "QLinearAveragePool",
        (u8(2, 9, 13, 3), S, Z8, S, Z8),
        odd | {"channels_last": 1, "ceil_mode": 1},
        stored=(1, 2, 3, 4),
        note="last",
    )
    yield Recipe("QLinearGlobalAveragePool", (u8(2, 3, 9, 13), S, Z8, S, Z8), stored=(1, 2, 3, 4))
    yield Recipe(
        "QLinearGlobalAveragePool",
        (u8(2, 9, 13, 3), S, Z8, S, Z8),
        {"channels_last": 1},
        stored=(1, 2, 3, 4),
        note="last",
    )
    yield Recipe("NhwcMaxPool", (s8(2, 9, 13, 3),), odd)
    yield Recipe("NhwcMaxPool", (s8(2, 9, 13, 3),), odd | {"ceil_mode": 1}, note="ceil")
    yield Recipe("MaxpoolWithMask", (x, np.ones((2, 3, 9, 13), np.int32)), odd)
    yield Recipe("CropAndResize", (x, f(4, 4), i32([0, 1, 1, 0]), i32([5, 7])), stored=(3,))
    yield Recipe("GridSample", (x, f(2, 5, 7, 2)))
    yield Recipe(
        "WordConvEmbedding",
        (ids(7, 11, below=9), f(5, 1, 3, 4), f(5), f(9, 4)),
        {"conv_window_size": 3, "embedding_size": 5, "char_embedding_size": 4},
    )


def moving() -> Iterator[Recipe]:
    """Indexing, padding, joining, strings."""
    x = f(2, 3, 5, 7)
    yield Recipe("GatherND", (x, ids(4, 2, below=2, dtype=np.int64)))
    yield Recipe(
        "GatherBlockQuantized",
        (u8(6, 16), ids(2, 3), f(6, 2)),
        {"bits": 4, "block_size": 16, "quantize_axis": 1},
        stored=(0, 2),
    )
    yield Recipe(
        "GatherBlockQuantized",
        (u8(6, 32), ids(2, 3), f(6, 2)),
        {"bits": 8, "block_size": 16, "quantize_axis": 1},
        stored=(0, 2),
        note="8 bits",
    )
    yield Recipe("GatherPacked", (u8(6, 64), ids(2, 3)), {"packed_type": 1, "K": 32}, stored=(0,))
    yield Recipe("Pad", (f(2, 3, 5), i64([0, 1, 2, 1, 0, 3]), f(1)), stored=(1,))
    yield Recipe("Range", (i64(3), i64(11), i64(2)), stored=(0, 1, 2))
    yield Recipe("UnfoldTensor", (x,), {"dim": 2, "size": 3, "step": 2})
    yield Recipe("Unique", (np.array([1, 2, 1, 3, 2], np.float32),), results=3)
    joined = (S, Z8, u8(2, 3, 5), S, Z8, u8(2, 4, 5), S, Z8)
    yield Recipe("QLinearConcat", joined, {"axis": 1}, stored=(0, 1, 3, 4, 6, 7))
    words = np.array([["a b", "c d e"], ["f", "g h"]], object)
    yield Recipe(
        "Tokenizer", (words,), {"mark": 0, "mincharnum": 1, "pad_value": "#", "separators": [" "]}
    )
    yield Recipe("DynamicTimeWarping", (f(5, 7),))
    yield Recipe(
        "BifurcationDetector",
        (ids(7, dtype=np.int64), ids(5, dtype=np.int64), i64(0), ids(8, dtype=np.int64)),
        results=2,
    )
    yield Recipe("NGramRepeatBlock", (ids(2, 6, dtype=np.int64), f(2, 11)), {"ngram_size": 2})
    hashed = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0}
    sizes = (ids(2, 5), ids(3) + 1, ids(4) + 11)
    yield Recipe("NGramHashMapping", sizes, hashed, results=2)
    packed = (ids(7), sizes[1], sizes[2], i32([0, 3, 7]))
    yield Recipe("VarlenNGramHashMapping", packed, hashed, results=2)


def normal() -> Iterator[Recipe]:
    """Normalisations, embeddings, gates and experts."""
    x = f(2, 5, 12)
    yield Recipe("SkipLayerNormalization", (x, x, f(12), f(12), f(12)), results=4, absent=(1, 2))
    yield Recipe("SkipLayerNormalization", (x, f(1, 5, 12), f(12)), note="broadcast")
    yield Recipe("SkipSimplifiedLayerNormalization", (x, x, f(12)), results=4, absent=(1, 2))
    yield Recipe("BranchwiseRMSNorm", (f(2, 5, 12), f(12)), {"num_branches": 3})
    yield Recipe("GatedRMSNorm", (x, f(12), x))
    table = (ids(2, 5, below=9), ids(2, 5, below=2), f(9, 12), f(6, 12), f(2, 12), f(12), f(12))
    yield Recipe("EmbedLayerNormalization", (*table, ids(2, 5)), results=3)
    yield Recipe(
        "EmbedLayerNormalization",
        (table[0], None, table[2], table[3], None, *table[5:]),
        results=2,
        note="plain",
    )
    weights = (u8(9, 12), u8(6, 12), u8(2, 12), u8(12), u8(12))
    scales, zeros = [S] * 5, [Z8] * 5
    yield Recipe(
        "QEmbedLayerNormalization",
        (*table[:2], *weights, ids(2, 5), *scales, *zeros),
        results=2,
        stored=tuple(range(2, 7)) + tuple(range(8, 18)),
    )
    yield Recipe(
        "EngramGate", (f(2, 5, 3, 12), f(2, 5, 3, 12), x, f(3, 12), f(3, 12), f(3, 12)), results=2
    )
    yield Recipe("HyperConnectionPreMix", (f(2, 5, 36), f(2, 5, 3)), {"num_branches": 3})
    yield Recipe(
        "HyperConnectionPostMix",
        (f(2, 5, 36), f(2, 5, 12), f(2, 5, 3), f(2, 5, 3, 3)),
        {"num_branches": 3},
    )
    yield Recipe("LinearAttentionGate", (f(2, 5, 3), f(3), f(3), f(2, 5, 3)), results=2)
    yield Recipe("MoEGroupRouter", (f(5, 8), f(8)), {"top_k": 2, "n_group": 4, "topk_group": 2})
    yield Recipe(
        "MoE",
        (x, f(10, 4), f(4, 20, 12), f(4, 20), f(4, 12, 20), f(4, 12)),
        {"k": 2, "activation_type": "relu"},
    )
    moe = (h(10, 32), h(10, 4), u8(4, 64, 16), h(4, 64), None, u8(4, 32, 32), h(4, 32))
    yield Recipe(
        "QMoE",
        moe,
        {"k": 2, "activation_type": "relu", "expert_weight_bits": 4},
        stored=(2, 3, 5, 6),
    )


def recipes() -> Iterator[Recipe]:
    """All of this file."""
    for part in (elementwise, products, windows, moving, normal):
        yield from part()
