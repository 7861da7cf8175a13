"""MACs of ONNX models of a few nodes against closed forms.

The cases are those on which public counters were measured, by their names in that table, and
their relatives: a figure no counter got right everywhere.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from onnx import TensorProto, helper

from peakfold.reports.text.cost import cost_text
from tests.analysis.onnx_cases import MS, body, count, info, macs, values, zeros

FLOAT, INT8, UINT8 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8
INT64, HALF = TensorProto.INT64, TensorProto.FLOAT16


def conv(shape, weight, expected_op="Conv", opset=17, bias=False, kind=FLOAT, **attrs):
    stored = [zeros("w", weight, kind)]
    if bias:
        channels = weight[0] if expected_op == "Conv" else weight[1] * attrs.get("group", 1)
        stored.append(zeros("b", (channels,), kind))
    inputs = "x w b" if bias else "x w"
    return count([(expected_op, inputs, "y", attrs)], {"x": (shape, kind)}, stored, opset=opset)


CONVS = {
    # name: input, weight, attributes, right MACs
    "conv2d_s2": ((1, 8, 56, 56), (16, 8, 3, 3), {"strides": [2, 2], "pads": [1] * 4}, 903168),
    "conv2d_batch8": ((8, 8, 56, 56), (16, 8, 3, 3), {"strides": [2, 2], "pads": [1] * 4}, 7225344),
    "conv2d_group4": ((1, 8, 56, 56), (16, 2, 3, 3),
                      {"strides": [2, 2], "pads": [1] * 4, "group": 4}, 225792),
    "conv2d_depthwise": ((1, 8, 56, 56), (8, 1, 3, 3),
                         {"strides": [2, 2], "pads": [1] * 4, "group": 8}, 56448),
    "conv2d_dilated_same": ((1, 8, 20, 20), (8, 8, 5, 5),
                            {"dilations": [2, 2], "auto_pad": "SAME_UPPER"}, 640000),
    "conv1d": ((1, 16, 100), (32, 16, 3), {"pads": [1, 1]}, 153600),
    "conv3d": ((1, 4, 8, 8, 16), (8, 4, 3, 3, 3), {"pads": [1] * 6}, 884736),
    "conv auto_pad SAME_UPPER s2 5x5": ((1, 3, 11, 11), (12, 3, 5, 5),
                                        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
                                        36 * 12 * 3 * 25),
    "depthwise multiplier 2": ((1, 4, 6, 6), (8, 1, 3, 3), {"group": 4}, 16 * 8 * 9),
    "asymmetric pads and strides": ((2, 3, 9, 7), (5, 3, 2, 3),
                                    {"pads": [1, 0, 0, 2], "strides": [3, 2]},
                                    2 * 5 * (3 * 4) * 3 * 6),
}  # fmt: skip


@pytest.mark.req("R70", "R65")
@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name):
    shape, weight, attrs, expected = CONVS[name]
    found = conv(shape, weight, **attrs)
    assert found.total().figures.macs == expected
    assert found.total().figures.params == prod(weight)
    depthwise = weight[1] == 1
    assert found.ops[0].engine == ("vector" if depthwise else "matrix")


@pytest.mark.req("R78")
def test_a_bias_is_an_operation_and_no_multiply_accumulate():
    found = conv((1, 8, 56, 56), (16, 8, 3, 3), bias=True, strides=[2, 2], pads=[1] * 4)
    f = found.total().figures
    assert (f.macs, f.other_ops) == (903168, 16 * 28 * 28)
    assert f.flops == (2 * 9 * 8 + 1) * 16 * 28 * 28


TRANSPOSED = {
    "convT2d_s2": ((1, 16, 16, 16), (16, 8, 4, 4), {"strides": [2, 2], "pads": [1] * 4}, 524288),
    "convT2d_group4": (
        (1, 16, 16, 16),
        (16, 2, 4, 4),
        {"strides": [2, 2], "pads": [1] * 4, "group": 4},
        131072,
    ),
    "ConvTranspose group 4 s2": ((1, 8, 4, 4), (8, 2, 2, 4), {"group": 4, "strides": [2, 2]}, 2048),
    "output padding": (
        (2, 4, 8, 8),
        (4, 1, 3, 3),
        {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1], "group": 4},
        4608,
    ),
    "3-D": ((1, 2, 3, 4, 5), (2, 6, 2, 2, 2), {"strides": [2, 2, 2]}, 60 * 2 * 6 * 8),
}


@pytest.mark.req("R70", "R65")
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_count_by_their_input(name):
    shape, weight, attrs, expected = TRANSPOSED[name]
    assert conv(shape, weight, "ConvTranspose", **attrs).total().figures.macs == expected


MATMULS = {
    "linear_2d": ((4, 64), (64, 128), 32768),
    "linear_3d": ((2, 10, 64), (64, 128), 163840),
    "matmul_op_2d": ((6, 7), (7, 8), 336),
    "matmul_broadcast": ((2, 1, 4, 8), (3, 8, 5), 960),
    "dot_1d": ((64,), (64,), 64),
    "mat-vec": ((6, 7), (7,), 42),
    "vec-mat": ((7,), (7, 8), 56),
    "vec by a batch": ((7,), (3, 7, 8), 168),
    "batch by vec": ((3, 6, 7), (7,), 126),
    "bmm": ((5, 6, 7), (5, 7, 8), 1680),
    "one row": ((1, 4096), (4096, 1000), 4096000),
    "nothing": ((0, 7), (7, 8), 0),
}


@pytest.mark.req("R65")
@pytest.mark.parametrize("name", MATMULS)
def test_matrix_products(name):
    left, right, expected = MATMULS[name]
    assert macs([("MatMul", "a b", "y")], {"a": left, "b": right}) == expected


@pytest.mark.req("R65")
def test_gemm_in_both_orientations_and_with_a_bias():
    plain = [("Gemm", "a b", "y")]
    assert macs(plain, {"a": (8, 16), "b": (16, 64)}) == 8192
    swapped = [("Gemm", "a b", "y", {"transA": 1, "transB": 1})]
    assert macs(swapped, {"a": (16, 8), "b": (64, 16)}) == 8192
    biased = count(
        [("Gemm", "a w c", "y", {"transB": 1})],
        {"a": (4, 64)},
        [zeros("w", (128, 64)), zeros("c", (128,))],
    )
    f = biased.total().figures
    assert (f.macs, f.other_ops, f.params) == (32768, 4 * 128, 64 * 128 + 128)
    added = [("MatMul", "a b", "m"), ("Add", "m c", "y")]  # baddbmm
    f = count(added, {"a": (5, 6, 7), "b": (5, 7, 8), "c": (5, 6, 8)}).total().figures
    assert (f.macs, f.other_ops) == (1680, 240)


@pytest.mark.req("R65")
@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 16, 8), (2, 3, 20, 8)], 15360),
        ("bhqk,bhkd->bhqd", [(2, 3, 16, 20), (2, 3, 20, 8)], 15360),
        ("...ij,...jk->...ik", [(4, 1, 5, 6), (3, 6, 7)], 4 * 3 * 5 * 6 * 7),
        ("i,i->", [(64,), (64,)], 64),
        ("i,j->ij", [(6,), (7,)], 42),
        ("bij,bjk", [(2, 3, 4), (2, 4, 5)], 120),
        ("ii->i", [(5, 5)], 0),
    ],
)
def test_einsum(equation, shapes, expected):
    inputs = {f"i{at}": shape for at, shape in enumerate(shapes)}
    nodes = [("Einsum", " ".join(inputs), "y", {"equation": equation})]
    assert macs(nodes, inputs) == expected


def attention(q_heads, kv_heads, steps, width, keys=None, opset=23, causal="full", **attrs):
    keys = keys or steps
    inputs = {
        "q": (2, q_heads, steps, width),
        "k": (2, kv_heads, keys, width),
        "v": (2, kv_heads, keys, width),
    }
    return count([("Attention", "q k v", "y", attrs)], inputs, opset=opset, causal=causal)


@pytest.mark.req("R65")
def test_attention_of_opset_23():
    # sdpa of the table: 2 batches, 3 heads, 16 queries, 20 keys, 8 wide
    assert attention(3, 3, 16, 8, keys=20).total().figures.macs == 30720
    # 4 query heads share 2 key heads: as many products as with 4
    grouped = attention(4, 2, 16, 8).total().figures
    assert grouped.macs == 2 * 16384
    whole = attention(4, 4, 16, 8).total().figures
    assert grouped.macs == whole.macs
    # but half the keys and values are read
    assert whole.read - grouped.read == 2 * (2 * 2 * 16 * 8) * 4


@pytest.mark.req("R65")
def test_causal_attention_in_full_and_without_what_the_mask_hides():
    nodes = [("Attention", "q k v", "y", {"is_causal": 1})]
    inputs = dict.fromkeys("qkv", (1, 4, 32, 8))
    full = count(nodes, inputs, opset=23).total().figures
    half = count(nodes, inputs, opset=23, causal="half").total().figures
    assert full.macs == 65536
    seen = sum(i + 1 for i in range(32))
    assert half.macs == 2 * 4 * seen * 8
    assert half.other_ops == 4 * seen * 6
    # One new query with 31 cached keys sees all of them: nothing is hidden.
    cached = {
        "q": (1, 4, 1, 8),
        "k": (1, 4, 1, 8),
        "v": (1, 4, 1, 8),
        "pk": (1, 4, 31, 8),
        "pv": (1, 4, 31, 8),
    }
    nodes = [("Attention", "q k v _ pk pv", "y nk nv", {"is_causal": 1})]
    more = {"opset": 23, "outputs": ("y", "nk", "nv")}
    decode = [count(nodes, cached, causal=c, **more).total().figures.macs for c in ("full", "half")]
    assert decode == [2 * 4 * 32 * 8] * 2
    plain = [("Attention", "q k v", "y")]
    unmasked = count(plain, inputs, opset=23, causal="half").total().figures
    assert unmasked.macs == full.macs  # not causal: nothing to leave out


@pytest.mark.req("R65")
def test_a_report_says_whether_anything_was_left_out():
    inputs = dict.fromkeys("qkv", (1, 4, 32, 8))
    causal, plain = [("Attention", "q k v", "y", {"is_causal": 1})], [("Attention", "q k v", "y")]
    halved = count(causal, inputs, opset=23, causal="half")
    assert halved.halved == 1
    assert "masked positions of 1 op are left out" in cost_text(halved, "")
    whole = count(plain, inputs, opset=23, causal="half")
    assert whole.halved == 0
    assert "nothing is left out" in cost_text(whole, "")
    assert "left out" not in cost_text(count(causal, inputs, opset=23), "")


def mha(batch, steps, width, ffn=0):
    """Projections, scores, values and, for an encoder layer, two more products."""
    rows = (batch, steps, width)
    stored = [zeros(n, (width, width)) for n in ("wq", "wk", "wv", "wo")]
    nodes = [("MatMul", f"x w{n}", n) for n in "qkv"]
    nodes += [
        ("Transpose", "k", "kt", {"perm": [0, 2, 1]}),
        ("MatMul", "q kt", "s"),
        ("Softmax", "s", "p"),
        ("MatMul", "p v", "c"),
        ("MatMul", "c wo", "o"),
    ]
    if ffn:
        stored += [zeros("w1", (width, ffn)), zeros("w2", (ffn, width))]
        nodes += [("MatMul", "o w1", "h"), ("Relu", "h", "r"), ("MatMul", "r w2", "y")]
    else:
        nodes += [("Identity", "o", "y")]
    return macs(nodes, {"x": rows}, stored)


@pytest.mark.req("R65")
def test_attention_written_out():
    assert mha(2, 10, 64) == 353280  # MHA_eval_nograd, MHA_heads8
    assert mha(2, 10, 64, ffn=128) == 680960  # TransEncLayer_eval


def recurrent(op, gates, layers, steps=20, batch=3, direction="forward", layout=0):
    ways = 2 if direction == "bidirectional" else 1
    nodes, stored, last, width = [], [], "x", layers[0]
    for at, hidden in enumerate(layers[1:]):
        stored += [
            zeros(f"w{at}", (ways, gates * hidden, width)),
            zeros(f"r{at}", (ways, gates * hidden, hidden)),
            zeros(f"b{at}", (ways, 2 * gates * hidden)),
        ]
        attrs = {"hidden_size": hidden, "direction": direction, "layout": layout}
        nodes.append((op, f"{last} w{at} r{at} b{at}", f"all{at}", attrs))
        nodes.append(("Squeeze", f"all{at} axis", f"s{at}"))
        last, width = f"s{at}", hidden
    nodes = nodes[:-1] if ways == 2 or layout else nodes
    result = nodes[-1][2]
    stored.append(values("axis", [1], np.int64))
    shape = (batch, steps, layers[0]) if layout else (steps, batch, layers[0])
    return count(nodes, {"x": shape}, stored, outputs=(result,))


@pytest.mark.req("R65")
def test_recurrent_layers_run_for_every_step():
    assert recurrent("LSTM", 4, (32, 64, 64)).total().figures.macs == 3440640  # LSTM_2l
    assert recurrent("GRU", 3, (32, 64)).total().figures.macs == 1105920  # GRU_seqfirst
    assert recurrent("RNN", 1, (32, 64)).total().figures.macs == 60 * 64 * 96
    both = recurrent("LSTM", 4, (32, 64), direction="bidirectional")
    assert both.total().figures.macs == 2 * 60 * 4 * 64 * 96
    assert both.total().figures.params == 2 * 4 * (64 * 96 + 2 * 64)
    batch_first = recurrent("GRU", 3, (32, 64), layout=1).ops[0].figures
    assert batch_first.macs == 1105920


@pytest.mark.req("R65", "R66")
def test_shared_and_tied_weights():
    shared = [("MatMul", "x w", "a"), ("MatMul", "a w", "b"), ("MatMul", "b w", "y")]
    f = count(shared, {"x": (4, 64)}, [zeros("w", (64, 64))]).total().figures
    assert (f.macs, f.params) == (49152, 4096)  # shared_linear_x3
    tied = [("Gather", "t ids", "h"), ("Transpose", "t", "tt"), ("MatMul", "h tt", "y")]
    f = count(tied, {"ids": ((5,), INT64)}, [zeros("t", (100, 16))]).total().figures
    assert (f.macs, f.params) == (8000, 1600)  # tied_weights


@pytest.mark.req("R65", "R67")
def test_an_embedding_has_no_macs_and_reads_its_rows():
    f = (
        count([("Gather", "t ids", "y")], {"ids": ((2, 5), INT64)}, [zeros("t", (100, 16))])
        .total()
        .figures
    )
    assert (f.macs, f.other_ops, f.params) == (0, 0, 1600)
    assert (f.read, f.written) == (80 + 10 * 64, 10 * 64)
    every = count([("Gather", "t ids", "y")], {"ids": ((500,), INT64)}, [zeros("t", (100, 16))])
    assert every.total().figures.read == 4000 + 6400  # at most the whole table


@pytest.mark.req("R65", "R20")
def test_quantised_layers_count_like_the_float_one():
    x, w = (1, 8, 4, 4), (16, 8, 3, 3)
    scale, zero, zero8 = (
        values("s", 0.1, np.float32),
        values("z", 0, np.uint8),
        values("z8", 0, np.int8),
    )
    right, head = 16 * 16 * 8 * 9, 256 * 10
    stored = [scale, zero, zero8, values("shape", [1, 256], np.int64)]
    floats = [
        ("Conv", "x w", "c", {"pads": [1] * 4}),
        ("Reshape", "c shape", "f"),
        ("MatMul", "f m", "y"),
    ]
    plain = [*stored, zeros("w", w), zeros("m", (256, 10))]
    assert macs(floats, {"x": x}, plain) == right + head == 20992
    small = [*stored, zeros("wq", w, INT8), zeros("mq", (256, 10), INT8)]
    qdq = [
        ("QuantizeLinear", "x s z", "xq"),
        ("DequantizeLinear", "xq s z", "xd"),
        ("DequantizeLinear", "wq s z8", "w"),
        ("DequantizeLinear", "mq s z8", "m"),
        *floats,
    ]
    qdq[4] = ("Conv", "xd w", "c", {"pads": [1] * 4})
    found = count(qdq, {"x": x}, small)
    assert found.total().figures.macs == 20992
    assert found.total().figures.params == 16 * 72 + 2560  # not the scales, and not twice
    assert found.param_bytes["int8"] == 16 * 72 + 2560 + 1
    qoperator = [
        ("QuantizeLinear", "x s z", "xq"),
        ("QLinearConv", "xq s z wq s z8 s z", "c", {"pads": [1] * 4}),
        ("Reshape", "c shape", "f"),
        ("QLinearMatMul", "f s z mq s z8 s z", "q"),
        ("DequantizeLinear", "q s z", "y"),
    ]
    found = count(qoperator, {"x": x}, small)
    assert found.total().figures.macs == 20992
    assert [op.dtype for op in found.ops if op.engine == "matrix"] == ["uint8", "uint8"]
    dynamic = [
        ("DynamicQuantizeLinear", "x", "xq xs xz"),
        ("ConvInteger", "xq wq xz", "ci", {"pads": [1] * 4}),
        ("Cast", "ci", "c", {"to": FLOAT}),
        ("Reshape", "c shape", "f"),
        ("DynamicQuantizeLinear", "f", "fq fs fz"),
        ("MatMulInteger", "fq mq fz", "mi"),
        ("Cast", "mi", "y", {"to": FLOAT}),
    ]
    assert macs(dynamic, {"x": x}, small) == 20992
    linear = [("DynamicQuantizeLinear", "x", "q s1 z1"), ("MatMulInteger", "q wq z1", "y")]
    assert macs(linear, {"x": (4, 64)}, [zeros("wq", (64, 64), INT8)]) == 16384  # dynquant_linear


@pytest.mark.req("R65", "R20")
def test_four_bit_weights_of_matmulnbits():
    stored = [zeros("w", (32, 2, 16), UINT8), zeros("s", (32 * 2,)), zeros("z", (32,), UINT8)]
    nodes = [("MatMulNBits", "x w s z", "y", {"K": 64, "N": 32, "bits": 4, "block_size": 32}, MS)]
    found = count(nodes, {"x": (4, 64)}, stored)
    f = found.total().figures
    assert (f.macs, f.other_ops) == (8192, 2 * 64 * 32)
    # Two weights a byte; scales and zero points are stored beside the weights.
    assert (f.params, found.statistics) == (64 * 32, 64 + 32)
    assert found.param_bytes == {"float32": 256, "uint8": 32 * 32 + 32}
    assert found.unsupported() == {}


@pytest.mark.req("R66", "R20")
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_packed_in_bytes_are_counted_one_by_one(bits):
    # A last block that is not full is stored whole; its filling is no weight.
    stored = [zeros("w", (6, 3, 32 * bits // 8), UINT8), zeros("s", (6 * 3,))]
    attrs = {"K": 80, "N": 6, "bits": bits, "block_size": 32}
    found = count([("MatMulNBits", "x w s", "y", attrs, MS)], {"x": (4, 80)}, stored)
    assert found.total().params == 80 * 6
    assert found.param_bytes["uint8"] == 6 * 96 * bits // 8
    tied = [("MatMulNBits", "x w s", "h", attrs, MS), ("MatMulNBits", "x w s", "y", attrs, MS)]
    assert count(tied, {"x": (4, 80)}, stored).total().params == 80 * 6


@pytest.mark.req("R66")
def test_packed_experts_are_counted_one_by_one():
    stored = [
        zeros("w1", (4, 24, 6), UINT8),
        zeros("s1", (4, 24)),
        zeros("w2", (4, 12, 12), UINT8),
        zeros("s2", (4, 12)),
    ]
    attrs = {"k": 1, "expert_weight_bits": 4}
    nodes = [("QMoE", "x r w1 s1 _ w2 s2", "y", attrs, MS)]
    found = count(nodes, {"x": (8, 12), "r": (8, 4)}, stored)
    assert found.total().params == 4 * 2 * 24 * 12
    assert found.statistics == 4 * (24 + 12)


@pytest.mark.req("R65")
def test_contrib_operators():
    fused = [("FusedConv", "x w b", "y", {"pads": [1] * 4, "activation": "Relu"}, MS)]
    stored = [zeros("w", (16, 8, 3, 3)), zeros("b", (16,))]
    f = count(fused, {"x": (1, 8, 4, 4)}, stored).total().figures
    assert (f.macs, f.other_ops) == (18432, 2 * 256)
    assert (
        macs(
            [("FusedMatMul", "a b", "y", {"transA": 1, "transB": 1}, MS)],
            {"a": (16, 8), "b": (64, 16)},
        )
        == 8192
    )
    attrs = {"num_heads": 4, "kv_num_heads": 2}
    nodes = [("GroupQueryAttention", "q k v _ _ l t", "y pk pv", attrs, MS)]
    inputs = {"q": (1, 16, 32), "k": (1, 16, 16), "v": (1, 16, 16)}
    stored = [values("l", [15], np.int32), values("t", 16, np.int32)]
    grouped = count(nodes, inputs, stored)
    assert grouped.ops[0].macs == 2 * 4 * 16 * 16 * 8
    nodes = [("MultiHeadAttention", "q k v", "y", {"num_heads": 4}, MS)]
    inputs = {"q": (2, 10, 64), "k": (2, 10, 64), "v": (2, 10, 64)}
    assert macs(nodes, inputs) == 2 * 2 * 10 * 10 * 64
    nodes = [("Attention", "x w b", "y", {"num_heads": 4}, MS)]
    stored = [zeros("w", (64, 192)), zeros("b", (192,))]
    f = count(nodes, {"x": (2, 10, 64)}, stored).total().figures
    assert f.macs == 20 * 64 * 192 + 2 * 2 * 100 * 64
    assert f.other_ops == 20 * 192 + 2 * 4 * 100 * 6
    once = [("Attention", "x w b", "y", {"num_heads": 4, "unidirectional": 1}, MS)]
    hidden = count(once, {"x": (2, 10, 64)}, stored, causal="half").total().figures
    assert f.macs - hidden.macs == 2 * 2 * 45 * 64


@pytest.mark.req("R66")
def test_tables_of_positions_are_stored_beside_the_weights():
    cache = [zeros("cos", (64, 4)), zeros("sin", (64, 4))]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    nodes = [("GroupQueryAttention", "q k v _ _ l t cos sin", "y pk pv", attrs, MS)]
    inputs = {"q": (1, 16, 32), "k": (1, 16, 16), "v": (1, 16, 16)}
    lengths = [values("l", [15], np.int32), values("t", 16, np.int32)]
    found = count(nodes, inputs, [*lengths, *cache])
    assert (found.total().params, found.param_bytes["float32"]) == (0, 2 * 64 * 4 * 4)
    turn = [("RotaryEmbedding", "x p cos sin", "y", {}, MS)]
    places = [values("p", np.zeros((1, 16)), np.int64)]
    assert count(turn, {"x": (1, 4, 16, 8)}, [*places, *cache]).total().params == 0
    turn = [("RotaryEmbedding", "x cos sin p", "y", {})]
    new = count(turn, {"x": (1, 4, 16, 8)}, [*places, *cache], opset=23)
    assert (new.total().params, new.statistics) == (0, 2 * 64 * 4 + 16)


@pytest.mark.req("R65", "R67")
def test_experts_run_by_routing():
    # moe_top1 of the table: one expert of two products per row.
    stored = [zeros("w1", (4, 24, 12)), zeros("b1", (4, 24)), zeros("w2", (4, 12, 24))]
    nodes = [("MoE", "x r w1 b1 w2", "y", {"k": 1, "activation_type": "relu"}, MS)]
    found = count(nodes, {"x": (24, 12), "r": (24, 4)}, stored).ops[0]
    assert found.macs == 24 * 2 * 12 * 24 == 13824
    one = count(nodes, {"x": (1, 12), "r": (1, 4)}, stored).ops[0]
    assert one.figures.read == 48 + 16 + (2 * 24 * 12 + 24) * 4  # one expert of four is read


@pytest.mark.req("R65")
@pytest.mark.parametrize("kind", [FLOAT, HALF, TensorProto.BFLOAT16, TensorProto.DOUBLE])
def test_the_element_type_changes_bytes_and_nothing_else(kind):
    found = conv((1, 8, 56, 56), (16, 8, 3, 3), kind=kind, opset=22, strides=[2, 2], pads=[1] * 4)
    f = found.total().figures
    width = {FLOAT: 4, HALF: 2, TensorProto.BFLOAT16: 2, TensorProto.DOUBLE: 8}[kind]
    assert f.macs == 903168
    assert f.bytes_moved == width * (8 * 56 * 56 + 16 * 28 * 28 + 16 * 8 * 9)


@pytest.mark.req("R65")
def test_work_that_is_no_multiply_accumulate():
    cases = [
        ([("DFT", "x", "y", {"onesided": 1})], (4, 64, 1), 5 * 64 * 6 * 4 // 2),
        ([("TopK", "x k", "y i")], (8, 32), 8 * 32 * 2),
        ([("Softmax", "x", "y")], (8, 32), 8 * 32 * 5),
        ([("GlobalAveragePool", "x", "y")], (1, 8, 4, 4), 128),
        ([("MaxPool", "x", "y", {"kernel_shape": [2, 2], "strides": [2, 2]})], (1, 8, 4, 4), 128),
        ([("Resize", "x _ scales", "y", {"mode": "linear"})], (1, 8, 4, 4), 8 * 64 * 8),
        ([("Resize", "x _ scales", "y", {"mode": "nearest"})], (1, 8, 4, 4), 0),
    ]
    stored = [values("k", [3], np.int64), values("scales", [1, 1, 2, 2], np.float32)]
    for nodes, shape, other in cases:
        needed = [t for t in stored if t.name in nodes[0][1].split()]
        f = count(nodes, {"x": shape}, needed).total().figures
        assert (f.macs, f.other_ops, f.params) == (0, other, 0), nodes[0][0]


@pytest.mark.req("R65")
def test_a_deformable_convolution_counts_as_a_convolution():
    x, w = (1, 8, 10, 10), (16, 8, 3, 3)
    nodes = [("DeformConv", "x w o", "y", {"pads": [1] * 4})]
    f = count(nodes, {"x": x, "o": (1, 18, 10, 10)}, [zeros("w", w)], opset=19).total().figures
    assert f.macs == 100 * 16 * 8 * 9
    assert f.other_ops == 8 * 9 * 100 * 8  # every tap: 4 neighbours, a product and an addition


@pytest.mark.req("R65", "R67")
def test_scatter_and_normalisations():
    f = (
        count(
            [
                ("ScatterElements", "h i u", "y", {"axis": 0, "reduction": "add"}),
            ],
            {"h": (100, 8), "i": ((5, 8), INT64), "u": (5, 8)},
            opset=18,
        )
        .total()
        .figures
    )
    assert (f.macs, f.other_ops) == (0, 40)
    stored = [zeros("g", (256,)), zeros("b", (256,))]
    f = count([("LayerNormalization", "x g b", "y")], {"x": (1, 256)}, stored).total().figures
    assert (f.macs, f.other_ops, f.params) == (0, 7 * 256, 512)


@pytest.mark.req("R65")
def test_symbols_that_are_bound_and_symbols_that_are_not():
    nodes = [("Conv", "x w", "y", {"pads": [1] * 4})]
    inputs = {"x": ("n", 3, "h", "w_")}
    stored = [zeros("w", (8, 3, 3, 3))]
    bound = macs(nodes, inputs, stored, dims=("n=2", "h=16", "w_=16"))
    assert bound == 2 * 16 * 16 * 8 * 27 == 110592
    assert count(nodes, inputs, stored).total().figures.macs is None


@pytest.mark.req("R65")
def test_a_local_function_is_counted_inside():
    square = helper.make_function(
        "mine",
        "Twice",
        ["a", "w"],
        ["b"],
        [helper.make_node("MatMul", ["a", "w"], ["m"]), helper.make_node("Relu", ["m"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    nodes = [("Twice", "x w", "y", {}, "mine")]
    found = count(
        nodes, {"x": (8, 32)}, [zeros("w", (32, 32))], functions=[square], more={"mine": 1}
    )
    assert found.total().figures.macs == 8192


def loop_body(rows=4, carried="c"):
    scalar = info("i", (), INT64), info("go", (), TensorProto.BOOL)
    return body(
        "step",
        [("MatMul", f"{carried} w", "n"), ("Identity", "go", "more")],
        [*scalar, info(carried, (rows, 4))],
        [info("more", (), TensorProto.BOOL), info("n", (rows, 4))],
    )


@pytest.mark.req("R65")
def test_loops_cost_their_body_times_the_trips():
    stored = [zeros("w", (4, 4)), values("trips", 10, np.int64), values("yes", True)]
    nodes = [("Loop", "trips yes x", "y", {"body": loop_body(), "name": "steps"})]
    known = count(nodes, {"x": (4, 4)}, stored)
    assert known.total().figures.macs == 640
    assert known.total().figures.params == 16  # read in every trip, counted once
    assert (known.ops[0].trips, known.total().lower_bounds) == (10, ())
    assert known.ops[0].bodies[0][1].total().figures.macs == 64
    open_loop = [("Loop", "m yes x", "y", {"body": loop_body(), "name": "steps"})]
    inputs = {"x": (4, 4), "m": ((), INT64)}
    once = count(open_loop, inputs, [stored[0], stored[2]])
    assert (once.total().figures.macs, once.open_loops) == (64, ("steps",))
    assert "macs" in once.total().lower_bounds
    told = count(open_loop, inputs, [stored[0], stored[2]], trips={"steps": 7})
    assert (told.total().figures.macs, told.total().lower_bounds) == (448, ())
    assert [op.macs for op in told.leaves() if op.kind == "matmul"] == [448]


@pytest.mark.req("R65")
def test_nested_loops_and_scans_multiply():
    inner = [
        ("Loop", "four yes c", "n", {"body": _step(), "name": "inner"}),
        ("Identity", "go", "more"),
    ]
    outer = body(
        "outer",
        inner,
        [info("i", (), INT64), info("go", (), TensorProto.BOOL), info("c", (4, 4))],
        [info("more", (), TensorProto.BOOL), info("n", (4, 4))],
    )
    stored = [
        zeros("w", (4, 4)),
        values("three", 3, np.int64),
        values("four", 4, np.int64),
        values("yes", True),
    ]
    nodes = [("Loop", "three yes x", "y", {"body": outer, "name": "outer"})]
    assert macs(nodes, {"x": (4, 4)}, stored) == 12 * 64
    # LSTMCell_loop20 as a Scan: two products a step, 20 steps.
    cell = body(
        "cell",
        [
            ("MatMul", "x w", "a"),
            ("MatMul", "h r", "b"),
            ("Add", "a b", "g"),
            ("Split", "g", "n g1 g2 g3", {"axis": 1}),
        ],
        [info("h", (3, 64)), info("x", (3, 32))],
        [info("n", (3, 64))],
    )
    scan = [("Scan", "h0 xs", "y", {"body": cell, "num_scan_inputs": 1, "name": "cells"})]
    stored = [zeros("w", (32, 256)), zeros("r", (64, 256))]
    found = count(scan, {"h0": (3, 64), "xs": (20, 3, 32)}, stored, opset=13)
    assert (found.total().figures.macs, found.ops[0].trips) == (1474560, 20)


def _step():
    return body(
        "step",
        [("MatMul", "d w", "m"), ("Identity", "on", "next")],
        [info("j", (), INT64), info("on", (), TensorProto.BOOL), info("d", (4, 4))],
        [info("next", (), TensorProto.BOOL), info("m", (4, 4))],
    )


@pytest.mark.req("R65")
def test_an_if_costs_its_larger_branch_and_shows_both():
    heavy = body("heavy", [("MatMul", "x w", "t")], [], [info("t", (8, 32))])
    light = body("light", [("Relu", "x", "e")], [], [info("e", (8, 32))])
    nodes = [("If", "c", "y", {"then_branch": heavy, "else_branch": light, "name": "choice"})]
    inputs = {"x": (8, 32), "c": ((), TensorProto.BOOL)}
    found = count(nodes, inputs, [zeros("w", (32, 32))])
    assert found.total().figures.macs == 8192
    shown = {label: cost.total().figures.flops for label, cost in found.ops[0].bodies}
    assert shown == {"then": 16384, "else": 256}
    assert [op.kind for op in found.leaves()] == ["matmul"]


@pytest.mark.req("R66")
def test_what_an_exporter_invents_is_no_parameter():
    # GroupNorm as PyTorch's exporter writes it: ones and zeros as Constant nodes.
    ones = values("", [1.0, 1.0], "float32")
    nodes = [
        ("Conv", "x w", "c"),
        ("Constant", "", "one", {"value": ones}),
        ("Constant", "", "zero", {"value": ones}),
        ("InstanceNormalization", "c one zero", "y"),
    ]
    found = count(nodes, {"x": (1, 4, 8, 8)}, [zeros("w", (2, 4, 1, 1))])
    assert (found.total().figures.params, found.statistics) == (8, 4)
    # A file that writes its weights as Constant nodes has no other place for them.
    stored = zeros("", (2, 4, 1, 1))
    nodes[0] = ("Conv", "x w", "c")
    nodes.insert(0, ("Constant", "", "w", {"value": stored}))
    found = count(nodes, {"x": (1, 4, 8, 8)})
    assert found.total().figures.params == 12


def test_a_stranger_is_named_and_marks_the_totals():
    nodes = [("MatMul", "x w", "m"), ("Warp", "m", "n", {}, "com.example"), ("Relu", "n", "y")]
    found = count(nodes, {"x": (4, 64)}, [zeros("w", (64, 64))], more={"com.example": 1})
    assert "com.example::warp" in found.unsupported()
    assert found.total().figures.macs == 16384
    assert {"macs", "other_ops", "read"} <= set(found.total().lower_bounds)
