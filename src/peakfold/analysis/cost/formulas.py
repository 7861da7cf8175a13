"""Exact polynomials through integer points: how a count depends on a dimension nobody bound.

Counts of layers are polynomials in the batch (degree 1) or the sequence (degree 2) as long as
every layer's sizes are. A polynomial of degree d in each of k dimensions is fixed by its values
at (d + 1)^k points; it is found by solving for the coefficients with rationals, dimension by
dimension, and holds where further points agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class Polynomial:
    """Terms by exponents, one for each dimension; no term is zero."""

    dims: tuple[str, ...]
    terms: Mapping[tuple[int, ...], Fraction]

    def at(self, values: Sequence[int]) -> Fraction:
        """Its value at numbers for all dimensions, in their order."""
        parts = (
            factor * prod(value**power for value, power in zip(values, powers, strict=True))
            for powers, factor in self.terms.items()
        )
        return sum(parts, Fraction(0))

    def __str__(self) -> str:
        """Highest powers first, numbers with thousands.

        Example:
            >>> terms = {(1,): Fraction(4096), (2,): Fraction(3, 2), (0,): Fraction(-7)}
            >>> str(Polynomial(dims=("N",), terms=terms)), str(Polynomial(dims=("N",), terms={}))
            ('3/2 N^2 + 4,096 N - 7', '0')
        """
        text = ""
        for powers in sorted(self.terms, key=lambda powers: (-sum(powers), [-p for p in powers])):
            factor = self.terms[powers]
            names = [
                name if power == 1 else f"{name}^{power}"
                for name, power in zip(self.dims, powers, strict=True)
                if power
            ]
            size = abs(factor)
            number = f"{size.numerator:,}" + (f"/{size.denominator:,}" if size % 1 else "")
            words = names if size == 1 and names else [number, *names]
            sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
            text += sign + " ".join(words)
        return text or "0"


def grid(points: Sequence[int], dims: int) -> tuple[tuple[int, ...], ...]:
    """Every combination of the points, in the order that `interpolate` takes values."""
    return tuple(product(points, repeat=dims))


def interpolate(dims: Sequence[str], points: Sequence[int], values: Sequence[int]) -> Polynomial:
    """The polynomial of degree ``len(points) - 1`` in each dimension through a grid of values.

    Args:
        dims: names of the dimensions.
        points: distinct numbers, the same for every dimension.
        values: at `grid(points, len(dims))`, in that order.

    Example:
        >>> str(interpolate(["N"], [1, 2, 3], [5, 12, 23]))  # 2 N^2 + N + 2
        '2 N^2 + N + 2'
        >>> str(interpolate(["N", "S"], [1, 2], [3 * n * s + s for n in (1, 2) for s in (1, 2)]))
        '3 N S + S'
    """
    inverse = _inverse(points)
    found = {
        at: Fraction(value)
        for at, value in zip(grid(range(len(points)), len(dims)), values, strict=True)
    }
    for axis in range(len(dims)):
        found = {
            at: sum(
                (
                    inverse[at[axis]][k] * found[(*at[:axis], k, *at[axis + 1 :])]
                    for k in range(len(points))
                ),
                Fraction(0),
            )
            for at in found
        }
    return Polynomial(dims=tuple(dims), terms={at: value for at, value in found.items() if value})


def _inverse(points: Sequence[int]) -> list[list[Fraction]]:
    """Row p, column k: what the value at point k adds to the coefficient of power p."""
    columns: list[list[Fraction]] = []
    for one in points:
        basis = [Fraction(1)]  # the polynomial that is 1 at this point and 0 at all others
        for other in points:
            if other != one:
                shifted, scaled = [Fraction(0), *basis], [other * c for c in (*basis, Fraction(0))]
                basis = [(a - b) / (one - other) for a, b in zip(shifted, scaled, strict=True)]
        columns.append(basis)
    return [list(row) for row in zip(*columns, strict=True)]
