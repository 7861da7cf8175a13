"""Public bug reports about counters, as far as an ONNX model can state them: each right value.

The numbers are those of the list in the facts this project was given; the PyTorch ones beside
them are in the torch tests.
"""

from __future__ import annotations

import pytest
from onnx import TensorProto

import peakfold
from peakfold.ir import parse_graph
from tests.analysis.onnx_cases import count, macs, values, zeros
from tests.analysis.test_cost_onnx import conv, recurrent

INT64, INT8 = TensorProto.INT64, TensorProto.INT8


def sdpa(batch, heads, steps, width):
    inputs = dict.fromkeys("qkv", (batch, heads, steps, width))
    return 2 * macs([("Attention", "q k v", "y")], inputs, opset=23)


@pytest.mark.req("R63", "R65")
def test_1_and_4_attention_is_not_zero():
    assert sdpa(1, 12, 64, 64) == 12_582_912


@pytest.mark.req("R65")
def test_2_a_large_transposed_convolution():
    forward = conv((6, 192, 30, 96), (192, 384, 2, 2), "ConvTranspose", strides=[2, 2])
    # Forward and backward are three times the forward pass; 500 calls.
    assert 500 * 3 * 2 * forward.total().figures.macs == 15_288_238_080_000


@pytest.mark.req("R65")
def test_3_attention_is_counted_once():
    assert sdpa(2, 5, 9, 4) == 12_960


@pytest.mark.req("R65")
def test_5_a_grouped_convolution():
    found = conv((1, 32, 8, 8), (32, 4, 3, 3), group=8, pads=[1] * 4).total().figures
    assert 3 * found.flops == 442_368  # forward and backward


@pytest.mark.req("R65")
def test_6_a_transposed_convolution_of_one_pixel():
    found = conv((1, 32, 1, 1), (32, 1, 3, 3), "ConvTranspose")
    assert found.total().figures.macs == 288


def attention_layer(steps, width, ffn=0):
    """Four projections and two products; with `ffn` two more projections behind them."""
    nodes = [("MatMul", f"x w{n}", n) for n in "qkv"]
    nodes += [
        ("Transpose", "k", "t", {"perm": [1, 0]}),
        ("MatMul", "q t", "s"),
        ("MatMul", "s v", "c"),
        ("MatMul", "c wo", "o"),
    ]
    stored = [zeros(f"w{n}", (width, width)) for n in "qkvo"]
    if ffn:
        nodes += [("MatMul", "o w1", "h"), ("MatMul", "h w2", "y")]
        stored += [zeros("w1", (width, ffn)), zeros("w2", (ffn, width))]
    return macs(nodes, {"x": (steps, width)}, stored, outputs=("y" if ffn else "o",))


@pytest.mark.req("R65")
def test_8_heads_do_not_change_attention():
    assert attention_layer(300, 448) == 321_484_800
    for heads in (4, 8):
        inputs = dict.fromkeys("qkv", (1, heads, 300, 448 // heads))
        assert macs([("Attention", "q k v", "y")], inputs, opset=23) == 2 * 300 * 300 * 448


@pytest.mark.req("R65")
def test_10_and_11_attention_modules_are_not_zero():
    assert attention_layer(580, 512) == 952_647_680
    assert attention_layer(64, 512, ffn=512) == 104_857_600


@pytest.mark.req("R65", "R78")
def test_12_and_16_a_transposed_convolution_counts_by_its_input():
    found = conv((1, 3, 2, 2), (3, 1, 2, 2), "ConvTranspose", strides=[2, 2], bias=True)
    f = found.total().figures
    assert (f.macs, f.other_ops) == (48, 16)  # 64 with the bias additions


@pytest.mark.req("R65")
def test_13_a_convolution_whose_weight_is_an_input():
    nodes = [("Conv", "x w", "y", {"strides": [2, 2], "pads": [1] * 4})]
    assert macs(nodes, {"x": (1, 8, 56, 56), "w": (16, 8, 3, 3)}) == 903_168


@pytest.mark.req("R65")
def test_14_an_unbatched_convolution():
    nodes = [
        ("Unsqueeze", "x at", "b"),
        ("Conv", "b w", "c", {"strides": [2], "pads": [4, 4]}),
        ("Squeeze", "c at", "y"),
    ]
    stored = [zeros("w", (32, 32, 3)), values("at", [0], "int64")]
    assert macs(nodes, {"x": (32, 128)}, stored) == 205_824


@pytest.mark.req("R66")
def test_18_layers_around_a_shared_activation():
    nodes, stored, last = [], [], "x"
    for at in range(6):
        nodes += [("Gemm", f"{last} w{at} b{at}", f"g{at}"), ("Relu", f"g{at}", f"r{at}")]
        stored += [zeros(f"w{at}", (4, 4)), zeros(f"b{at}", (4,))]
        last = f"r{at}"
    found = count(nodes, {"x": (2, 4)}, stored, outputs=(last,))
    assert found.total().figures.params == 120


@pytest.mark.req("R66")
def test_19_bytes_of_all_parameters():
    stored = [zeros("w0", (4, 4)), zeros("b0", (4,)), zeros("w1", (4, 6)), zeros("b1", (6,))]
    nodes = [("Gemm", "x w0 b0", "h"), ("Gemm", "h w1 b1", "y")]
    found = count(nodes, {"x": (2, 4)}, stored)
    assert found.param_bytes == {"float32": 4 * (16 + 4 + 24 + 6)} == {"float32": 200}


@pytest.mark.req("R65")
def test_20_recurrence_counts_every_step():
    short, long = (recurrent("LSTM", 4, (32, 64), steps=n).total().figures.macs for n in (10, 20))
    assert long == 2 * short


@pytest.mark.req("R65")
def test_21_products_of_two_activations():
    nodes = [
        ("MatMul", "x w", "h"),
        ("Transpose", "h", "t", {"perm": [0, 2, 1]}),
        ("MatMul", "h t", "y"),
    ]
    one, two = (
        macs(nodes, {"x": (2, n, 8)}, [zeros("w", (8, 8))], outputs=("y",)) for n in (10, 20)
    )
    assert one == 2_880
    assert two > 2 * one  # the square term


@pytest.mark.req("R65")
def test_22_24_and_28_grouped_transposed_convolutions():
    found = conv(
        (1, 16, 16, 16), (16, 2, 4, 4), "ConvTranspose", group=4, strides=[2, 2], pads=[1] * 4
    )
    assert found.total().figures.macs == 131_072
    found = conv(
        (2, 4, 8, 8),
        (4, 1, 3, 3),
        "ConvTranspose",
        group=4,
        strides=[2, 2],
        pads=[1] * 4,
        output_padding=[1, 1],
    )
    assert found.total().figures.macs == 4_608


@pytest.mark.req("R65")
def test_23_a_wide_convolution_is_not_negative():
    found = conv((1, 1000, 512), (1000, 1000, 3), pads=[1, 1])
    assert found.total().figures.macs == 1_536_000_000


@pytest.mark.req("R65")
def test_25_broadcast_and_vector_products():
    product = [("MatMul", "a b", "y")]
    assert macs(product, {"a": (2, 1, 4, 8), "b": (3, 8, 5)}) == 960
    assert macs(product, {"a": (8,), "b": (8,)}) == 8


@pytest.mark.req("R65")
def test_26_counts_do_not_grow_from_call_to_call():
    stored = [zeros("g", (256,)), zeros("b", (256,))]
    norm = [("LayerNormalization", "x g b", "y")]
    twice = [count(norm, {"x": (1, 256)}, stored).total().figures.flops for _ in range(2)]
    assert twice[0] == twice[1] == 7 * 256
    shared = [("MatMul", "x w", "a"), ("MatMul", "a w", "b"), ("MatMul", "b w", "y")]
    found = count(shared, {"x": (1, 100)}, [zeros("w", (100, 100))]).total().figures
    assert (found.flops, found.params) == (60_000, 10_000)


@pytest.mark.req("R65")
def test_27_recurrent_layers_of_100_steps():
    sizes = {"layers": (64, 64), "steps": 100, "batch": 1}
    assert recurrent("LSTM", 4, **sizes).total().figures.macs == 3_276_800
    assert recurrent("GRU", 3, **sizes).total().figures.macs == 2_457_600


@pytest.mark.req("R67")
def test_29_a_decode_step_reads_the_keys_of_its_key_heads():
    # Llama-3-8B at 1,024 tokens, half precision: 32 query heads, 8 key heads, 32 layers.
    half = TensorProto.FLOAT16
    inputs = {
        "q": ((1, 32, 1, 128), half),
        "k": ((1, 8, 1, 128), half),
        "v": ((1, 8, 1, 128), half),
        "pk": ((1, 8, 1023, 128), half),
        "pv": ((1, 8, 1023, 128), half),
    }
    nodes = [("Attention", "q k v _ pk pv", "y", {})]
    read = count(nodes, inputs, opset=23).total().figures.read
    query = 32 * 128 * 2
    assert 32 * (read - query) == 134_217_728  # 0.134 GB, not four times that


@pytest.mark.req("R63", "R65")
def test_33_flops_are_twice_the_macs_and_called_so():
    f = count([("MatMul", "a b", "y")], {"a": (4, 64), "b": (64, 128)}).total().figures
    assert f.flops == 2 * f.macs == 65_536


@pytest.mark.req("R66", "R20")
def test_34_int8_weights_have_their_own_bytes():
    nodes = [("DynamicQuantizeLinear", "x", "q s z"), ("MatMulInteger", "q w z", "y")]
    small = count(nodes, {"x": (4, 64)}, [zeros("w", (64, 64), INT8)])
    large = count([("MatMul", "x w", "y")], {"x": (4, 64)}, [zeros("w", (64, 64))])
    assert small.total().figures.macs == large.total().figures.macs == 16_384
    assert (small.param_bytes, large.param_bytes) == ({"int8": 4096}, {"float32": 16384})


def patches_and_attention(side: int) -> str:
    """A stride-32 convolution, then attention over all its positions."""
    rows = side // 32
    n = rows * rows
    return f"""peakfold-graph 1
input x: float32[1,3,{side},{side}]
parameter w: float32[8,3,32,32]
h: float32[1,8,{rows},{rows}] = conv(x, w, strides=[32,32])
q: float32[1,8,{n}] = reshape(h, shape=[1,8,{n}])
k: float32[1,{n},8] = transpose(q, perm=[0,2,1])
s: float32[1,{n},{n}] = matmul(k, q)
o: float32[1,{n},8] = matmul(s, k)
output o"""


def test_30_a_large_image_is_counted_and_not_extrapolated():
    """Attention grows with the square of the positions: a small image scaled up misses it."""
    macs = {}
    for side in (32, 640):
        n = (side // 32) ** 2
        macs[side] = peakfold.cost(parse_graph(patches_and_attention(side))).total().figures.macs
        assert macs[side] == n * 8 * 3 * 32 * 32 + 2 * n * n * 8
    assert macs[640] > macs[32] * (640 // 32) ** 2


@pytest.mark.shared
def test_32_a_tflite_file_has_macs(shared):
    """MobileNetV2, int8, as the file is: nothing but the file is needed."""
    path = shared / "models" / "tflite" / "mobilenet_v2_quantized_1x3x224x224.tflite"
    assert peakfold.cost(str(path)).total().figures.macs == 300_774_272
