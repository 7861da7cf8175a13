"""Multiply-accumulates and other operations of TFLite's kinds against closed forms.

The six layer totals are those of a reader of files made by the TensorFlow converter; the shapes
here give the same ones by hand.
"""

from __future__ import annotations

import pytest

from peakfold.ir.graph import Op, Tensor
from peakfold.ir.types import DTYPES
from peakfold.ops import context, lookup

pytestmark = pytest.mark.req("R65")


def counted(kind, shapes, out, attrs=None, dtypes=None):
    """MACs and other operations of an op with operands of these shapes (`None` = absent)."""
    names = [f"i{at}" if shape is not None else "" for at, shape in enumerate(shapes)]
    tensors = {
        n: Tensor(n, DTYPES["float32"], tuple(s)) for n, s in zip(names, shapes, strict=True) if n
    }
    results = tuple(f"o{at}" for at in range(len(out)))
    tensors |= {
        n: Tensor(n, DTYPES["float32"], tuple(s)) for n, s in zip(results, out, strict=True)
    }
    ctx = context(Op("n", kind, tuple(names), results, attrs or {}), tensors)
    spec = lookup(kind)
    return spec.macs(ctx), spec.other_ops(ctx)


def test_six_layers_have_the_totals_of_the_converted_files():
    conv = {"padding": "same", "stride_h": 1, "stride_w": 1}
    grouped = [(1, 16, 16, 8), (16, 3, 3, 2), (16,)]
    assert counted("conv_2d", grouped, [(1, 16, 16, 16)], conv)[0] == 73_728
    twice = [(1, 16, 16, 8), (1, 3, 3, 16), (16,)]
    assert counted("depthwise_conv_2d", twice, [(1, 16, 16, 16)], conv)[0] == 36_864
    wider = [(4,), (8, 4, 4, 16), (1, 8, 8, 16)]
    assert counted("transpose_conv", wider, [(1, 16, 16, 8)], conv)[0] == 131_072
    assert counted("fully_connected", [(20, 32), (16, 32), None], [(20, 16)])[0] == 10_240
    project = counted("fully_connected", [(20, 32), (32, 32), None], [(20, 32)])[0]
    scores = counted("batch_matmul", [(2, 20, 16), (2, 20, 16)], [(2, 20, 20)], {"adj_y": True})[0]
    mixed = counted("batch_matmul", [(2, 20, 20), (2, 20, 16)], [(2, 20, 16)])[0]
    assert 4 * project + scores + mixed == 107_520
    gates = [(64, 32)] * 4 + [(64, 64)] * 4 + [None] * 3 + [(64,)] * 4 + [None] * 2
    states = [(1, 64), (1, 64)]
    lstm = counted("unidirectional_sequence_lstm", [(1, 20, 32), *gates, *states], [(1, 20, 64)])
    assert lstm[0] == 491_520


def test_bias_and_fused_activation_are_operations_not_macs():
    shapes, out = [(2, 5), (3, 5), (3,)], [(2, 3)]
    plain = counted("fully_connected", [*shapes[:2], None], out)
    assert plain == (30, 0)
    assert counted("fully_connected", shapes, out) == (30, 6)
    assert counted("fully_connected", shapes, out, {"fused_activation": "relu"}) == (30, 12)
    assert counted("fully_connected", shapes, out, {"fused_activation": "relu6"}) == (30, 18)
    assert counted("fully_connected", shapes, out, {"fused_activation": "gelu!"}) == (30, None)
    assert counted("add", [(2, 3), (2, 3)], out) == (0, 6)
    assert counted("add", [(2, 3), (2, 3)], out, {"fused_activation": "tanh"}) == (0, 12)


def test_pools_touch_every_element_of_their_window():
    attrs = {"filter_height": 3, "filter_width": 2, "stride_h": 1, "stride_w": 1}
    image, out = [(1, 6, 6, 4)], [(1, 4, 5, 4)]
    assert counted("max_pool_2d", image, out, attrs) == (0, 80 * 6)
    assert counted("average_pool_2d", image, out, attrs) == (0, 80 * 7)
    relu = {**attrs, "fused_activation": "relu"}
    assert counted("average_pool_2d", image, out, relu) == (0, 80 * 8)


def test_three_dimensional_convolutions():
    attrs = {"padding": "same", "stride_d": 1, "stride_h": 1, "stride_w": 1}
    forward = counted("conv_3d", [(1, 4, 6, 8, 2), (2, 3, 3, 2, 5), None], [(1, 4, 6, 8, 5)], attrs)
    assert forward[0] == 4 * 6 * 8 * 5 * (2 * 3 * 3 * 2)
    back = [(5,), (2, 3, 3, 5, 2), (1, 4, 6, 8, 2)]
    assert counted("conv_3d_transpose", back, [(1, 8, 12, 16, 5)], attrs)[0] == (
        4 * 6 * 8 * 2 * (2 * 3 * 3 * 5)
    )


def test_svdf_filters_their_input_and_their_past():
    shapes = [(2, 5), (12, 5), (12, 7), (6,), (2, 84)]
    macs, other = counted("svdf", shapes, [(2, 6)], {"rank": 2, "fused_activation": "relu"})
    assert macs == 2 * 12 * (5 + 7)
    assert other == 2 * 12 - 12 + 12 * 2  # filters of a unit, then bias and activation


def test_recurrent_layers_apply_every_weight_at_every_step():
    cell = [(4, 5), (4, 4), (4,)]
    one = counted(
        "unidirectional_sequence_rnn",
        [(3, 2, 5), *cell, (3, 4)],
        [(3, 2, 4)],
        {"fused_activation": "tanh"},
    )
    assert one == (6 * (20 + 16), 6 * 4 * 3)
    both = [(3, 2, 5), *cell, (3, 4), *cell, (3, 4), None, None, None]
    two = counted(
        "bidirectional_sequence_rnn", both, [(3, 2, 4), (3, 2, 4)], {"fused_activation": "tanh"}
    )
    assert two == (2 * one[0], 2 * one[1])
    # An LSTM with an output projection, and without an input gate (coupled to the forget gate).
    gates = [None, *[(6, 5)] * 3, None, *[(6, 3)] * 3, *[None] * 4, *[(6,)] * 3, (3, 6), None]
    states = [(2, 3), (2, 6)]
    macs, _ = counted("unidirectional_sequence_lstm", [(2, 7, 5), *gates, *states], [(2, 7, 3)])
    assert macs == 14 * (3 * 6 * 5 + 3 * 6 * 3 + 3 * 6)
    there_and_back = [(2, 7, 5), *gates, *gates, *states, *states, *[None] * 9]
    macs2, _ = counted("bidirectional_sequence_lstm", there_and_back, [(2, 7, 3), (2, 7, 3)])
    assert macs2 == 2 * macs
    basic = [(2, 5), (2, 6), (24, 11), (24,), (2, 6)]
    outs = [(2, 6), (2, 6), (2, 11), (2, 24)]
    assert counted("tfl_lstm", basic, outs, {"kernel_type": "basic"})[0] == 2 * 24 * 11


def test_products_of_stablehlo():
    attrs = {
        "lhs_batching_dimensions": (0,),
        "rhs_batching_dimensions": (1,),
        "lhs_contracting_dimensions": (2,),
        "rhs_contracting_dimensions": (0,),
    }
    assert counted("stablehlo_dot_general", [(3, 4, 5), (5, 3, 6)], [(3, 4, 6)], attrs) == (360, 0)
    filters = {"kernel_output_feature_dimension": 3}
    convolved = [(1, 8, 8, 2), (3, 3, 2, 4)]
    assert counted("stablehlo_convolution", convolved, [(1, 6, 6, 4)], filters)[0] == (
        6 * 6 * 4 * 3 * 3 * 2
    )


def test_interpolation_weighs_four_neighbours():
    # A multiplication and an addition a neighbour; no product of matrices, so no MACs.
    assert counted("resize_bilinear", [(1, 2, 2, 3), (2,)], [(1, 4, 4, 3)]) == (0, 2 * 4 * 48)
    assert counted("resize_nearest_neighbor", [(1, 2, 2, 3), (2,)], [(1, 4, 4, 3)]) == (0, 0)
