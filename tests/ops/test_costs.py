"""Multiply-accumulates against published figures and against counting while computing."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest

from peakfold.ops import KINDS, lookup

from .bridge import ctx_of
from .instances import floats
from .window_instances import every_window_instance


def macs(kind, shapes, **attrs):
    return lookup(kind).macs(ctx_of(kind, shapes, **attrs))


def other(kind, shapes, **attrs):
    return lookup(kind).other_ops(ctx_of(kind, shapes, **attrs))


class Counted:
    """A number that counts the products it takes part in."""

    products = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def __mul__(self, other: object) -> Counted:
        Counted.products += 1
        return Counted(self.value * getattr(other, "value", other))

    __rmul__ = __mul__

    def __add__(self, other: object) -> Counted:
        return Counted(self.value + getattr(other, "value", other))

    __radd__ = __add__


def counted(array: np.ndarray) -> np.ndarray:
    return np.frompyfunc(Counted, 1, 1)(np.asarray(array, dtype=float)).astype(object)


def values(array: np.ndarray) -> np.ndarray:
    return np.frompyfunc(lambda v: v.value if isinstance(v, Counted) else v, 1, 1)(array)


@pytest.fixture(autouse=True)
def _fresh_count():
    Counted.products = 0


# --- published figures -------------------------------------------------------------------


@pytest.mark.req("R70", "R65")
@pytest.mark.parametrize(
    ("weight", "group", "out", "expected"),
    [
        ((128, 64, 3, 3), 1, 128, 231_211_008),
        ((128, 16, 3, 3), 4, 128, 57_802_752),
        ((64, 1, 3, 3), 64, 64, 1_806_336),
        ((128, 64, 1, 1), 1, 128, 25_690_112),
    ],
)
def test_published_convolutions(weight, group, out, expected):
    pads = (1, 1, 1, 1) if weight[-1] == 3 else (0, 0, 0, 0)
    ctx = ctx_of("conv", [(1, 64, 56, 56), weight], group=group, pads=pads)
    assert ctx.out_shape() == (1, out, 56, 56)
    assert lookup("conv").macs(ctx) == expected
    assert lookup("conv").other_ops(ctx) == 0


@pytest.mark.req("R70")
def test_published_fully_connected_layer():
    assert macs("gemm", [(1, 4096), (1000, 4096), (1000,)], transB=1) == 4_096_000
    assert other("gemm", [(1, 4096), (1000, 4096), (1000,)], transB=1) == 1000
    assert macs("matmul", [(1, 4096), (4096, 1000)]) == 4_096_000


@pytest.mark.req("R78")
def test_bias_is_one_operation_per_output():
    shapes = [(1, 64, 56, 56), (128, 64, 3, 3), (128,)]
    total = 2 * macs("conv", shapes, pads=(1,) * 4) + other("conv", shapes, pads=(1,) * 4)
    assert total == (2 * 9 * 64 + 1) * 56 * 56 * 128


# --- counting while computing ------------------------------------------------------------


def naive_conv(x, w, strides, dilations, pads, group):
    rank = x.ndim - 2
    around = [(0, 0), (0, 0)] + [(pads[at], pads[at + rank]) for at in range(rank)]
    x = np.pad(x, around)
    out = [
        (x.shape[2 + a] - dilations[a] * (w.shape[2 + a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    per_group = w.shape[0] // group
    y = np.zeros((x.shape[0], w.shape[0], *out))
    total = 0
    for n, f in itertools.product(range(x.shape[0]), range(w.shape[0])):
        first = f // per_group * w.shape[1]
        for at in np.ndindex(*out):
            for c in range(w.shape[1]):
                for k in np.ndindex(*w.shape[2:]):
                    where = tuple(
                        a * s + t * d for a, s, t, d in zip(at, strides, k, dilations, strict=True)
                    )
                    y[(n, f, *at)] += x[(n, first + c, *where)] * w[(f, c, *k)]
                    total += 1
    return y, total


@pytest.mark.req("R65")
def test_convolutions_of_every_form_against_a_naive_loop():
    tried = 0
    for instance in every_window_instance(run=True):
        attrs = {a.name: a for a in instance.node.attribute}
        if instance.node.op_type != "Conv" or "auto_pad" in attrs or tried >= 12:
            continue
        tried += 1
        x, w = instance.feeds["i0"], instance.feeds["i1"]
        rank = x.ndim - 2
        dilations = list(attrs["dilations"].ints) if "dilations" in attrs else [1] * rank
        strides, pads = list(attrs["strides"].ints), list(attrs["pads"].ints)
        y, total = naive_conv(x, w, strides, dilations, pads, attrs["group"].i)
        real = instance.run(instance.feeds)
        np.testing.assert_allclose(real["o0"], y, rtol=1e-4, atol=1e-5)
        assert lookup("conv").macs(instance.context(real)) == total
    assert tried == 12


@pytest.mark.req("R65")
@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolution_against_a_naive_scatter(group):
    x, w = (2, 4, 3, 5), (4, 3, 2, 3)
    total = 0
    for _ in itertools.product(*(range(d) for d in x)):  # every input element ...
        total += prod(w[1:])  # ... is spread over its filters and taps
    assert macs("conv_transpose", [x, w], group=group, strides=(2, 2)) == total


@pytest.mark.req("R65")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((1, 0), (0, 2)),
    ],
)
def test_matmul_counts_what_numpy_multiplies(a, b):
    np.matmul(counted(floats(a)), counted(floats(b)))
    assert macs("matmul", [a, b]) == Counted.products
    int_macs = macs("matmul_integer", [a, b], dtype="uint8")
    assert int_macs == Counted.products
    scalars = [(), ()]
    assert macs("qlinear_matmul", [a, *scalars, b, *scalars, *scalars]) == Counted.products
    assert macs("matmul_integer_to_float", [a, b, (), ()]) == Counted.products
    assert macs("dynamic_quantize_matmul", [a, b, ()]) == Counted.products


@pytest.mark.req("R65")
@pytest.mark.parametrize("flip", list(itertools.product((0, 1), (0, 1))))
def test_gemm_with_transposed_operands(flip):
    a, b = floats((2, 3)), floats((3, 4))
    np.matmul(counted(a), counted(b))
    shapes = [a.T.shape if flip[0] else a.shape, b.T.shape if flip[1] else b.shape]
    for kind in ("gemm", "fused_gemm", "fused_matmul"):
        assert macs(kind, shapes, transA=flip[0], transB=flip[1]) == Counted.products
    scalars = [(), ()]
    quantised = [shapes[0], *scalars, shapes[1], *scalars]
    assert macs("qgemm", quantised, transA=flip[0], transB=flip[1]) == Counted.products


@pytest.mark.req("R65")
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,...jk->...ik", [(2, 5, 3, 4), (5, 4, 2)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("ii,i->i", [(3, 3), (3,)]),
    ],
)
def test_einsum_counts_what_numpy_multiplies(equation, shapes):
    np.einsum(equation, *(counted(floats(s)) for s in shapes), optimize=False)
    assert macs("einsum", shapes, equation=equation) == Counted.products


@pytest.mark.req("R65")
def test_einsum_of_one_operand_has_no_products_and_of_three_two_contractions():
    assert macs("einsum", [(2, 3)], equation="ij->i") == 0
    assert other("einsum", [(2, 3)], equation="ij->i") == 6
    # (2x3)(3x4), then (2x4)(4x5).
    chain = macs("einsum", [(2, 3), (3, 4), (4, 5)], equation="ij,jk,kl->il")
    assert chain == 2 * 3 * 4 + 2 * 4 * 5
    # torch.nn.Bilinear: x W, then the result with y.
    bilinear = [(3, 4), (6, 4, 5), (3, 5)]
    assert macs("einsum", bilinear, equation="bi,oij,bj->bo") == 3 * 6 * 4 * 5 + 3 * 6 * 5


@pytest.mark.req("R65")
@pytest.mark.parametrize(("kind", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_count_their_products(kind, gates, directions):
    steps, batch, width, hidden = 3, 2, 4, 5
    x = counted(floats((steps, batch, width)))
    w, r = counted(floats((gates * hidden, width))), counted(floats((gates * hidden, hidden)))
    for _ in range(directions):
        state = counted(np.zeros((batch, hidden)))
        for step in range(steps):
            gate = values(x[step] @ w.T + state @ r.T)
            state = counted(gate[:, :hidden])
    for layout, shape in ((0, (steps, batch, width)), (1, (batch, steps, width))):
        shapes = [shape, (directions, gates * hidden, width), (directions, gates * hidden, hidden)]
        way = "bidirectional" if directions == 2 else "forward"
        assert macs(kind, shapes, layout=layout, direction=way) == Counted.products
    if kind == "lstm":
        shapes = [
            (steps, batch, width),
            (directions, width, 4 * hidden),
            (directions, hidden, 4 * hidden),
        ]
        assert macs("dynamic_quantize_lstm", shapes) == Counted.products


def run_attention(q, k, v):
    """q, k, v: (batch, heads, length, width); grouped heads repeat."""
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v))
    scores = values(counted(q) @ counted(k.transpose(0, 1, 3, 2))).astype(float)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return counted(weights) @ counted(v)


@pytest.mark.req("R65")
def test_attention_counts_its_products():
    q, k, v = floats((2, 4, 3, 5)), floats((2, 2, 6, 5)), floats((2, 2, 6, 7))
    run_attention(q, k, v)
    assert macs("attention", [q.shape, k.shape, v.shape], outputs=1) == Counted.products
    flat = [(2, 3, 20), (2, 6, 10), (2, 6, 14)]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    assert macs("attention", flat, **heads) == Counted.products
    past = [*[(2, 3, 20), (2, 4, 10), (2, 4, 14)], None, (2, 2, 2, 5), (2, 2, 2, 7)]
    assert macs("attention", past, **heads) == Counted.products


@pytest.mark.req("R65")
def test_contrib_attention_counts_its_products():
    batch, steps, heads, width = 2, 3, 4, 5
    q = floats((batch, heads, steps, width))
    run_attention(q, q, q)
    shape = (batch, steps, heads * width)
    assert macs("multi_head_attention", [shape] * 3, num_heads=heads) == Counted.products
    packed = (batch, steps, heads, 3, width)
    assert macs("multi_head_attention", [packed], num_heads=heads) == Counted.products
    grouped = ctx_of(
        "group_query_attention",
        [shape, shape, shape],
        num_heads=heads,
        kv_num_heads=heads,
        total_sequence_length=steps,
    )
    assert lookup("group_query_attention").macs(grouped) == Counted.products
    x, weight = floats((batch, steps, 6)), floats((6, 3 * heads * width))
    counted(x) @ counted(weight)
    assert macs("ms_attention", [x.shape, weight.shape, None], num_heads=heads) == Counted.products
    quantised = [x.shape, weight.shape, None, (), ()]
    assert macs("qattention", quantised, num_heads=heads) == Counted.products


@pytest.mark.req("R65")
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_counts_its_recurrence(rule):
    batch, steps, q_heads, kv_heads, width, v_width = 2, 3, 4, 2, 5, 6
    for _ in range(batch * steps):
        for _ in range(kv_heads):
            k, v = counted(floats((width, 1))), counted(floats((1, v_width)))
            state = values(k @ v)
            if "delta" in rule:
                counted(floats((1, width))) @ counted(state)
        for _ in range(q_heads):
            counted(floats((1, width))) @ counted(state)
    shapes = [
        (batch, steps, q_heads * width),
        (batch, steps, kv_heads * width),
        (batch, steps, kv_heads * v_width),
    ]
    heads = {"q_num_heads": q_heads, "kv_num_heads": kv_heads}
    found = macs("linear_attention", shapes, outputs=2, update_rule=rule, **heads)
    assert found == Counted.products


@pytest.mark.req("R65")
def test_quantised_and_fused_convolutions_count_like_the_plain_one():
    x, w = (1, 4, 8, 8), (6, 2, 3, 3)
    attrs = {"group": 2, "pads": (1, 1, 1, 1), "strides": (2, 2)}
    expected = macs("conv", [x, w], **attrs)
    assert expected == 1 * 6 * 4 * 4 * 2 * 9
    assert macs("conv_integer", [x, w], dtype="uint8", **attrs) == expected
    assert macs("fused_conv", [x, w], **attrs) == expected
    assert macs("qlinear_conv", [x, (), (), w, (), (), (), ()], **attrs) == expected
    # Four neighbours, a product and an addition each, for every value sampled: 4 channels,
    # 9 taps, 16 positions. They are no MACs of the convolution.
    offsets = (1, 18, 4, 4)
    assert macs("deform_conv", [x, w, offsets], **attrs) == expected
    assert other("deform_conv", [x, w, offsets], **attrs) == 4 * 9 * 16 * 4 * 2
    assert macs("causal_conv_with_state", [(2, 3, 7), (3, 1, 4)], outputs=2) == 2 * 3 * 7 * 4


@pytest.mark.req("R65")
def test_remaining_counts():
    assert macs("matmul_nbits", [(2, 7, 64), (32, 2, 16)], K=64, N=32) == 2 * 7 * 64 * 32
    assert macs("linear_regressor", [(5, 4)], targets=3, coefficients=(0.1,) * 12) == 5 * 4 * 3
    eliminated = sum((n - k) ** 2 for n in (6,) for k in range(1, n))
    assert macs("det", [(3, 6, 6)]) == 3 * eliminated
    linear = other("resize", [(1, 2, 4, 4)], mode="linear", sizes=(1, 2, 8, 8))
    assert linear == 2 * (2 * 64 * 4)
    assert other("resize", [(1, 2, 4, 4)], mode="cubic", sizes=(1, 2, 8, 4)) == 2 * (2 * 32 * 4)
    assert other("resize", [(1, 2, 4, 4)], sizes=(1, 2, 8, 8)) == 0
    assert other("grid_sample", [(1, 2, 4, 4), (1, 5, 5, 2)]) == 2 * (2 * 25 * 4)
    assert other(
        "roi_align", [(1, 2, 8, 8), (3, 4), (3,)], sampling_ratio=2, output_height=2, output_width=2
    ) == 2 * (3 * 2 * 4 * 4 * 4)
    assert other("roi_align", [(1, 2, 8, 8), (3, 4), (3,)]) is None
    for kind in ("resize", "grid_sample", "roi_align"):
        assert macs(kind, [(1, 2, 4, 4), (1, 5, 5, 2), (3,)]) == 0


@pytest.mark.req("R63")
def test_conventions_of_other_operations():
    assert other("relu", [(2, 3)]) == 6
    assert other("add", [(2, 3), (3,)]) == 6
    assert other("sum", [(2, 3)] * 3) == 12
    assert other("mean", [(2, 3)] * 3) == 18
    assert other("reduce_sum", [(2, 3)]) == 6
    assert other("max_pool", [(1, 2, 4, 4)], kernel_shape=(2, 2), strides=(2, 2)) == 2 * 4 * 4
    assert other("global_average_pool", [(1, 2, 4, 4)]) == 32
    batch_norm = [(1, 2, 4, 4), (2,), (2,), (2,), (2,)]
    assert other("batch_normalization", batch_norm) == 64
    assert other("batch_normalization", batch_norm, training_mode=0) == 64
    assert other("batch_normalization", batch_norm, training_mode=1) == 7 * 32
    assert other("softmax", [(2, 3)]) == 30
    assert other("dropout", [(2, 3)]) == 0
    assert other("dropout", [(2, 3)], training_mode=1) == 12  # times the mask, and scaled
    assert other("image_decoder", [(100,)]) is None
    assert other("dft", [(1, 8, 2)], dft_length=(8,), axis=1) == 5 * 8 * 3
    assert other("dft", [(1, 8, 1)], dft_length=(8,), axis=1) == 5 * 8 * 3 // 2  # real
    assert other("reshape", [(2, 3)], shape=(6,)) == 0
    assert other("top_k", [(2, 3)], k=1) == 6
    assert other("top_k", [(2, 3)], k=2) == 12
    assert other("unique", [(2, 3)]) is None


@pytest.mark.req("R65")
def test_counts_are_unknown_while_shapes_are():
    assert macs("conv", [("n", 3, 8, 8), (4, 3, 3, 3)]) is None
    assert macs("matmul", [("n", 3), (3, 4)]) is None
    assert macs("gemm", [("n", 3), (3, 4)]) is None
    assert other("relu", [("n", 3)]) is None
    stranger = ctx_of("never_heard_of", [(2, 3)])
    assert lookup("never_heard_of").macs(stranger) is None
    assert lookup("never_heard_of").other_ops(stranger) is None


@pytest.mark.req("R14")
def test_workspace_is_zero_only_where_no_kernel_can_need_scratch():
    depends = {
        "conv", "conv_transpose", "matmul", "gemm", "lstm", "gru", "rnn", "attention", "softmax",
        "layer_normalization", "reduce_sum", "top_k", "cum_sum", "resize", "qlinear_conv",
        "matmul_nbits", "dft", "unique", "non_max_suppression", "fused_conv", "never_heard_of",
    }  # fmt: skip
    none = {
        "relu",
        "add",
        "where",
        "cast",
        "reshape",
        "transpose",
        "slice",
        "concat",
        "split",
        "gather",
        "max_pool",
        "average_pool",
        "batch_normalization",
        "dequantize_linear",
        "if",
    }
    ctx = ctx_of("relu", [(2, 3)])
    assert {kind for kind in depends if lookup(kind).workspace(ctx) is not None} == set()
    assert {kind for kind in none if lookup(kind).workspace(ctx) != 0} == set()


@pytest.mark.req("R14")
def test_every_row_answers_for_workspace_and_costs():
    for kind in KINDS:
        spec = lookup(kind)
        assert spec.workspace is not None
        assert spec.macs is not None
        assert spec.other_ops is not None
