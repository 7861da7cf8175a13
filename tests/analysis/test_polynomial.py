"""Polynomials through counts: every one is found again, whatever its coefficients."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from peakfold.analysis.cost.formulas import Polynomial, grid, interpolate

POWERS = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(
    st.dictionaries(POWERS, st.integers(-(10**18), 10**18), max_size=8),
    st.lists(st.integers(1, 10**4), min_size=4, max_size=4, unique=True),
)
def test_a_polynomial_is_found_again_from_its_values(terms, points):
    def value(n: int, s: int) -> int:
        return sum(factor * n**p * s**q for (p, q), factor in terms.items())

    found = interpolate(("N", "S"), points, [value(*at) for at in grid(points, 2)])
    assert found.terms == {at: factor for at, factor in terms.items() if factor}
    assert found.at((123_457, 89)) == value(123_457, 89)


def test_halves_stay_exact():
    found = interpolate(("N",), (1, 2, 3), [n * (n + 1) // 2 for n in (1, 2, 3)])
    assert found.terms == {(1,): Fraction(1, 2), (2,): Fraction(1, 2)}
    assert str(found) == "1/2 N^2 + 1/2 N"


def test_text_has_signs_and_thousands():
    terms = {
        (1, 1): Fraction(-1),
        (0, 2): Fraction(1),
        (0, 0): Fraction(-1234),
        (1, 0): Fraction(2),
    }
    assert str(Polynomial(dims=("a", "b"), terms=terms)) == "-a b + b^2 + 2 a - 1,234"
