"""Complex arithmetic is counted in real operations, by hand and on every route."""

import pytest

from peakfold import cost
from peakfold.analysis.cost.counting import cost_of
from peakfold.ir import parse_graph


def counted(text):
    figures = cost(parse_graph(f"peakfold-graph 1\n{text}")).total().figures
    return figures.macs, figures.flops


def two(kind, left, right, shape="4,4", result="complex64"):
    return counted(
        f"input a: {left}[{shape}]\ninput b: {right}[{shape}]\n"
        f"y: {result}[{shape}] = {kind}(a, b)\noutput y"
    )


def test_a_product_of_complex_matrices_is_four_real_ones():
    text = "input a: {}[4,5]\ninput b: {}[5,6]\ny: complex64[4,6] = matmul(a, b)\noutput y"
    assert counted(text.format("complex64", "complex64")) == (480, 960)
    assert counted(text.format("float32", "complex64")) == (240, 480)
    assert counted(text.format("complex128", "float64")) == (240, 480)
    assert counted(text.format("float32", "float32")) == (120, 240)


@pytest.mark.parametrize(
    ("kind", "both", "by_real", "of_real"),
    [("add", 2, 1, 1), ("sub", 2, 1, 1), ("mul", 6, 2, 2), ("div", 11, 2, 7)],
)
def test_arithmetic_by_elements(kind, both, by_real, of_real):
    assert two(kind, "complex64", "complex64") == (0, 16 * both)
    assert two(kind, "complex64", "float32") == (0, 16 * by_real)
    assert two(kind, "float32", "complex64") == (0, 16 * of_real)
    assert two(kind, "float32", "float32", result="float32") == (0, 16)


def test_einsum_counts_every_contraction_by_its_operands():
    text = (
        "input a: float32[2,3]\ninput b: complex64[3,4]\ninput c: complex64[4,5]\n"
        'y: complex64[2,5] = einsum(a, b, c, equation="ij,jk,kl->il")\noutput y'
    )
    assert counted(text)[0] == 2 * 2 * 3 * 4 + 4 * 2 * 4 * 5


def test_transforms_of_real_numbers_are_half_of_complex_ones():
    def dft(width, attrs="axis=1", bins=16):
        return counted(
            f"input x: float32[3,16,{width}]\ny: float32[3,{bins},2] = dft(x, {attrs})\noutput y"
        )[1]

    assert dft(2) == 3 * 5 * 16 * 4
    assert dft(1) == dft(1, "axis=1, onesided=1", 9) == 3 * 5 * 16 * 4 // 2


def test_a_device_does_complex_numbers_at_the_speed_of_their_parts():
    text = "input a: {0}[4,4]\ninput b: {0}[4,4]\ny: {0}[4,4] = matmul(a, b)\noutput y"
    kinds = [
        cost_of(parse_graph("peakfold-graph 1\n" + text.format(name))).ops[0].dtype
        for name in ("complex64", "complex128", "float16")
    ]
    assert kinds == ["float32", "float64", "float16"]
