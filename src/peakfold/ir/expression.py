"""Sizes that are expressions of symbols: one small grammar, read, compared and evaluated here.

Nothing of a text is ever run or resolved: names are symbols, or functions of the table below.
Sums, products and powers are kept as one canonical sum of terms, so that equal polynomials are
equal expressions; functions stay as they are until their arguments are numbers. The text form is
the one PyTorch shows.

    size   = term (("+" | "-") term)*        term  = factor (("*" | "/" | "//" | "%") factor)*
    factor = "-" factor | power              power = atom ("**" factor)?
    atom   = number | name | name "(" (size | string | name "=" size) "," ... ")" | "(" size ")"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from peakfold.ir.size_functions import (
    ARITY,
    BUILT,
    DIVISIONS,
    FLOOR_DIV,
    LOOSE,
    SAME,
    TRUE_DIVISION,
    WHOLE,
    Unreadable,
    evaluated,
)

LARGEST = 2**62
"""No size, and no number on the way to one, is as large."""
MAX_POWER = 16
MAX_TERMS = 64
MAX_FACTORS = 16
SUM = ""


@dataclass(frozen=True)
class Atom:
    """A symbol (no arguments), a function of sizes, or (`SUM`) a sum inside a product."""

    name: str
    args: tuple[Expression, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # once: sums lie in products that lie in sums
        return hash((self.name, self.args))

    @cached_property
    def key(self) -> tuple[int, str, str]:
        """Symbols by name, sums, functions, maxima: the order in which they are shown."""
        if self.name in ("Max", "Min"):
            return (3, self.name, str(self))
        return (2 if self.name and self.args else 1 if self.args else 0, self.name, str(self))

    def __str__(self) -> str:
        if not self.args:
            return self.name
        if self.name == FLOOR_DIV:
            return f"({'//'.join(arg.enclosed() for arg in self.args)})"
        return f"{self.name}({', '.join(map(str, self.args))})"

    def within(self) -> str:
        """As a part of a sum or a product."""
        return f"({self})" if self.name in LOOSE and self.args else str(self)


Monomial = tuple[tuple[Atom, int], ...]


@dataclass(frozen=True)
class Expression:
    """A sum of terms: a number, or a factor and atoms with their powers.

    Example:
        >>> from peakfold.ir.sizes import parse_size_text as parse
        >>> size = parse("Add(Mul(Integer(2), Symbol('s0')), Integer(1))")
        >>> str(size), size.symbols, size.bind({"s0": 4}).number
        ('2*s0 + 1', ('s0',), 9)
    """

    terms: tuple[tuple[Monomial, Fraction], ...]

    @classmethod
    def of(cls, number: int | Fraction) -> Expression:
        """A number.

        Raises:
            Unreadable: it is beyond `LARGEST`.
        """
        return cls.made({(): Fraction(number)})

    @classmethod
    def symbol(cls, name: str) -> Expression:
        """A symbol."""
        return cls((((((Atom(name), 1),)), Fraction(1)),))

    @classmethod
    def made(cls, terms: Mapping[Monomial, Fraction]) -> Expression:
        """The sum of these terms, in canonical order.

        Raises:
            Unreadable: a factor is beyond `LARGEST`, or there are too many terms.
        """
        kept = {monomial: factor for monomial, factor in terms.items() if factor}
        if any(max(abs(f.numerator), f.denominator) >= LARGEST for f in kept.values()):
            raise Unreadable("a number in it is too large")
        if len(kept) > MAX_TERMS:
            raise Unreadable(f"it has more than {MAX_TERMS} terms")
        atoms = sorted({atom for monomial in kept for atom, _ in monomial}, key=lambda a: a.key)
        powers = {monomial: dict(monomial) for monomial in kept}
        order = sorted(kept, key=lambda m: [-powers[m].get(atom, 0) for atom in atoms])
        return cls(tuple((monomial, kept[monomial]) for monomial in order))

    @property
    def value(self) -> Fraction | None:
        """The number it is, or `None` while symbols are left."""
        if not self.terms:
            return Fraction(0)
        (monomial, factor), *rest = self.terms
        return factor if not rest and not monomial else None

    @property
    def number(self) -> int | None:
        """The whole number it is, or `None`."""
        value = self.value
        return int(value) if value is not None and value.denominator == 1 else None

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Names of its symbols, sorted."""
        return tuple(
            sorted(
                {
                    name
                    for monomial, _ in self.terms
                    for atom, _ in monomial
                    for name in _symbols(atom)
                }
            )
        )

    @classmethod
    def total(cls, parts: Iterable[Expression]) -> Expression:
        """The sum of expressions.

        Raises:
            Unreadable: it has too many terms, or a factor beyond `LARGEST`.
        """
        terms: dict[Monomial, Fraction] = {}
        for part in parts:
            for monomial, factor in part.terms:
                terms[monomial] = terms.get(monomial, Fraction(0)) + factor
        return cls.made(terms)

    def __add__(self, other: Expression) -> Expression:
        return self.total((self, other))

    def __neg__(self) -> Expression:
        return self.made({monomial: -factor for monomial, factor in self.terms})

    def __mul__(self, other: Expression) -> Expression:
        numbers = self.value, other.value
        if numbers[0] is not None or numbers[1] is not None:
            scale, scaled = (numbers[0], other) if numbers[0] is not None else (numbers[1], self)
            return self.made({m: f * (scale or 0) for m, f in scaled.terms})
        (one, left), (two, right) = self._single(), other._single()
        powers = dict(one)
        for atom, power in two:
            powers[atom] = powers.get(atom, 0) + power
        if any(abs(power) > MAX_POWER for power in powers.values()):
            raise Unreadable("a power in it is too large")
        if len(powers) > MAX_FACTORS:
            raise Unreadable(f"it has a product of more than {MAX_FACTORS} sizes")
        factors = sorted(((a, p) for a, p in powers.items() if p), key=lambda one: one[0].key)
        return self.made({tuple(factors): left * right})

    def power(self, exponent: int) -> Expression:
        """The expression times itself; a negative exponent divides.

        Raises:
            Unreadable: the exponent is too large, or it divides by zero.
        """
        if abs(exponent) > MAX_POWER:
            raise Unreadable("a power in it is too large")
        if exponent == 0:
            return self.of(1)
        value = self.value
        if value is not None:
            if not value and exponent < 0:
                raise Unreadable("it divides by zero")
            return self.of(value**exponent)
        monomial, factor = self._single()
        if any(abs(p * exponent) > MAX_POWER for _, p in monomial):
            raise Unreadable("a power in it is too large")
        return self.made({tuple((a, p * exponent) for a, p in monomial): factor**exponent})

    def _single(self) -> tuple[Monomial, Fraction]:
        """One term; a longer sum becomes an atom."""
        if len(self.terms) == 1:
            return self.terms[0]
        return ((Atom(SUM, (self,)), 1),), Fraction(1)

    def bind(self, dims: Mapping[str, int]) -> Expression:
        """The expression with numbers for symbols; functions of numbers become numbers.

        Raises:
            Unreadable: it divides by zero, or leaves the bounds of a size.
        """
        if not any(name in dims for name in self.symbols):
            return self
        parts = []
        for monomial, factor in self.terms:
            product = self.of(factor)
            for atom, power in monomial:
                product = product * _bound(atom, dims).power(power)
            parts.append(product)
        return self.total(parts)

    def enclosed(self) -> str:
        """In parentheses, unless it is a plain name, function or number."""
        text = str(self)
        if len(self.terms) == 1 and not text.startswith("-"):
            (monomial, factor) = self.terms[0]
            if not monomial and factor.denominator == 1:
                return text
            if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                return monomial[0][0].within()
        return text if not self.terms else f"({text})"

    def __str__(self) -> str:
        terms = self.terms
        if len(terms) == 2 and not terms[1][0] and terms[1][1] > 0 > terms[0][1]:
            ((_, power),) = terms[0][0] if len(terms[0][0]) == 1 else ((None, None),)
            terms = terms[::-1] if power is not None else terms
        alone = len(terms) == 1
        text = ""
        for monomial, factor in terms:
            sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
            text += sign + _product(monomial, abs(factor), alone=alone and factor == 1)
        return text or "0"


def _product(monomial: Monomial, factor: Fraction, *, alone: bool) -> str:
    above = [str(factor.numerator)] if factor.numerator != 1 or not monomial else []
    below = [str(factor.denominator)] if factor.denominator != 1 else []
    for atom, power in monomial:
        plain = alone and len(monomial) == 1 and power == 1 and atom.name != SUM
        shown = str(atom) if plain else atom.within()
        (above if power > 0 else below).append(
            shown if abs(power) == 1 else f"{shown}**{abs(power)}"
        )
    top = "*".join(above) or "1"
    if not below:
        return top
    return f"{top}/{below[0]}" if len(below) == 1 else f"{top}/({'*'.join(below)})"


def _symbols(atom: Atom) -> tuple[str, ...]:
    return tuple(s for arg in atom.args for s in arg.symbols) if atom.args else (atom.name,)


def _bound(atom: Atom, dims: Mapping[str, int]) -> Expression:
    if atom.args:
        return call(atom.name, [arg.bind(dims) for arg in atom.args])
    number = dims.get(atom.name)
    return Expression.symbol(atom.name) if number is None else Expression.of(number)


def call(name: str, args: list[Expression]) -> Expression:
    """A function of sizes: a number where its arguments are.

    Raises:
        Unreadable: no function of this name or number of arguments, or it divides by zero.

    Example:
        >>> str(call("FloorDiv", [Expression.of(7), Expression.of(2)]))
        '3'
    """
    name = SAME.get(name, name)
    if name == SUM:
        return args[0]
    if name in BUILT:
        return _built(name, args)
    least, most = ARITY.get(name, (0, -1))
    if not least <= len(args) <= most:
        raise Unreadable(f"no function {name!r} of {len(args)} sizes is known")
    values = [arg.value for arg in args]
    if name in DIVISIONS and 0 in values[1:]:
        raise Unreadable("it divides by zero")
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return Expression.of(evaluated(name, known))
    if name in ("Max", "Min"):
        args = sorted(dict.fromkeys(_flat(name, args)), key=_rank)
        if len(args) == 1:
            return args[0]
    elif (name in TRUE_DIVISION and values[1] == 1) or (name in WHOLE and _is_whole(args[0])):
        return args[0]
    return Expression.made({((Atom(name, tuple(args)), 1),): Fraction(1)})


def _built(name: str, args: list[Expression]) -> Expression:
    if name == "Add":
        return Expression.total(args)
    if name == "Mul":
        product = Expression.of(1)
        for arg in args:
            product = product * arg
        return product
    if name == "Identity" and len(args) == 1:
        return args[0]
    exponent = args[1].number if len(args) == 2 else None
    if name != "Identity" and exponent is not None:
        return args[0].power(exponent)
    raise Unreadable(f"{name} of these arguments is no size")


def _flat(name: str, args: list[Expression]) -> list[Expression]:
    """The arguments of a maximum, those of a maximum among them."""
    found: list[Expression] = []
    for arg in args:
        monomial, factor = arg.terms[0] if len(arg.terms) == 1 else ((), Fraction(1))
        inner = monomial[0][0] if len(monomial) == 1 and factor == 1 == monomial[0][1] else None
        nested = inner is not None and inner.name == name and inner.args
        found += inner.args if inner is not None and nested else (arg,)
    return found


def _rank(size: Expression) -> tuple[int, str]:
    """The order of the arguments of a maximum: numbers, names, products, sums, functions."""
    if size.value is not None:
        return 0, str(size)
    if len(size.terms) > 1:
        return 3, str(size)
    (monomial, factor) = size.terms[0]
    if factor == 1 and len(monomial) == 1:
        return 4 if monomial[0][0].args else 1, str(size)
    return 2, str(size)


def _is_whole(size: Expression) -> bool:
    """Whether it is a whole number wherever its symbols are."""
    return all(
        factor.denominator == 1
        and all(p > 0 and not (a.args and a.name in TRUE_DIVISION) for a, p in monomial)
        for monomial, factor in size.terms
    )
