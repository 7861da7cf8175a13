"""Functions of sizes: numbers in, a number out. A name that is not here is no function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

FLOOR_DIV: Final = "FloorDiv"
TRUE_DIVISION: Final = ("IntTrueDiv", "FloatTrueDiv")
DIVISIONS: Final = (FLOOR_DIV, "CeilDiv", "Mod", "PythonMod", "ModularIndexing", *TRUE_DIVISION)
SHIFTS: Final = ("LShift", "RShift")
ROUNDED: Final[Mapping[str, Callable[[Fraction], Fraction | int]]] = {
    "floor": math.floor,
    "ceiling": math.ceil,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
    "TruncToFloat": math.trunc,
    "RoundToInt": round,
    "ToFloat": Fraction,
}
BUILT: Final = ("Add", "Mul", "Pow", "PowByNatural", "Identity")
SAME: Final = {"CleanDiv": FLOOR_DIV}
LOOSE: Final = (FLOOR_DIV, "Mod", "PythonMod", "ModularIndexing", *TRUE_DIVISION)
WHOLE: Final = ("floor", "ceiling", "FloorToInt", "CeilToInt", "TruncToInt", "RoundToInt")
ARITY: Final = {
    **dict.fromkeys(ROUNDED, (1, 1)),
    "Abs": (1, 1),
    "Max": (1, 64),
    "Min": (1, 64),
    **dict.fromkeys((*DIVISIONS, *SHIFTS), (2, 2)),
    "ModularIndexing": (3, 3),
}


class Unreadable(ValueError):
    """A text that is no size, or a size beyond every bound; says why."""


def evaluated(name: str, values: list[Fraction]) -> Fraction | int:
    """A function of numbers, as PyTorch defines it.

    Args:
        name: of a function that is known, with as many arguments as it takes.
        values: the arguments; divisors are not zero.

    Raises:
        Unreadable: it shifts too far.

    Example:
        >>> evaluated("Mod", [Fraction(7), Fraction(4)]), evaluated("Abs", [Fraction(-2)])
        (Fraction(3, 1), Fraction(2, 1))
    """
    first, *rest = values
    if name == "Max":
        return max(values)
    if name == "Min":
        return min(values)
    if name == "Abs":
        return abs(first)
    if name in ROUNDED:
        return ROUNDED[name](first)
    if name == "ModularIndexing":
        return (first // rest[0]) % rest[1]
    if name in SHIFTS:
        if not 0 <= rest[0] <= 64 or first.denominator != 1 or rest[0].denominator != 1:
            raise Unreadable("it shifts too far")
        factor = 1 << int(rest[0])
        return first * factor if name == "LShift" else first // factor
    if name == FLOOR_DIV:
        return first // rest[0]
    if name == "CeilDiv":
        return -(-first // rest[0])
    return first % rest[0] if name in ("Mod", "PythonMod") else first / rest[0]
