"""Layer types side by side: the second lecture's table, and closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.analysis.cost.layer_types import Layer, layer_variants, missing_forms, parse_layer
from peakfold.errors import UsageError


def rows(text: str):
    return {row.name: row for row in layer_variants(parse_layer(text))}


@pytest.mark.req("R70", "R71")
def test_the_table_of_the_second_lecture():
    found = rows("conv 3x3 64->128 @56")
    figures = {name: row.cost.total().figures for name, row in found.items()}
    assert {name: (f.params, f.macs) for name, f in figures.items()} == {
        "standard": (73_728, 231_211_008),
        "grouped": (18_432, 57_802_752),
        "depthwise": (576, 1_806_336),
        "pointwise": (8_192, 25_690_112),
        "separable": (8_768, 27_496_448),
    }
    assert figures["depthwise"].bytes_moved == 1_607_936
    assert found["separable"].ratio == pytest.approx(1 / 128 + 1 / 9, abs=1e-12)
    fc = rows("fc 4096->1000")["standard"].cost.total().figures
    assert (fc.params, fc.flops, fc.bytes_moved) == (4_096_000, 8_192_000, 16_404_384)


@pytest.mark.req("R71", "R78")
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_form_against_its_formula(high, wide, cin, cout, height, width, stride, bias):
    layer = Layer(
        kernel=(high, wide),
        inputs=cin,
        outputs=cout,
        size=(height, width),
        stride=stride,
        groups=4,
        batch=2,
        bias=bias,
    )
    out = 2 * -(-height // stride) * -(-width // stride)
    right = {
        "standard": high * wide * cin * cout * out,
        "grouped": high * wide * cin * cout * out // 4,
        "depthwise": high * wide * cin * out,
        "pointwise": cin * cout * out,
        "separable": high * wide * cin * out + cin * cout * out,
    }
    found = {row.name: row for row in layer_variants(layer)}
    assert {name: row.cost.total().figures.macs for name, row in found.items()} == {
        name: right[name] for name in found
    }
    assert ("grouped" in found) == (cin % 4 == 0 and cout % 4 == 0)
    f = found["standard"].cost.total().figures
    assert f.flops == (2 * high * wide * cin + bias) * cout * out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "conv",
        "conv 3x3 64 @56",
        "conv 3x3 64->128",
        "conv 0x3 4->4 @8",
        "fc 4->4 s2",
        "conv 3x3 4->4 @8 float33",
        "conv 3x3 4->4 @99999999999",
        "conv 3x3 4->4 @8 string",
    ],
)
def test_what_is_no_layer_is_refused(text):
    with pytest.raises(UsageError, match="--op"):
        parse_layer(text)


def test_types_and_batches():
    small = rows("conv 1x1 8->8 @4 n3 int4")["standard"].cost
    f = small.total().figures
    assert f.bytes_moved == (2 * 3 * 8 * 16 + 64) // 2
    assert (small.batch, f.macs) == (3, 3 * 16 * 64)


def test_a_form_that_a_layer_does_not_have_is_named_with_its_reason():
    assert missing_forms(parse_layer("conv 3x3 8->8 @4 g4")) == {}
    assert missing_forms(parse_layer("conv 3x3 6->9 @4 g4")) == {
        "grouped": "4 groups do not divide 6 input and 9 output channels"
    }
    assert "standard form" in missing_forms(parse_layer("conv 3x3 8->8 @4 g1"))["grouped"]
    alone = missing_forms(parse_layer("conv 3x3 1->8 @4"))
    assert set(alone) == {"grouped", "depthwise", "separable"}
    assert missing_forms(parse_layer("fc 4->4")) == {}
