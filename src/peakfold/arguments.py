"""What a caller may pass: each check returns the value, or names the argument that is wrong.

Python would take a truth value for a number, cut a fraction, and fail on the rest far from where
it was given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from operator import index
from pathlib import Path

from peakfold.errors import UsageError

MOST = 2**62 - 1
"""The largest number of bytes, steps or ids."""
_DIGITS = 18
_SHOWN = 60


def shown(value: object) -> str:
    """A value in an error message, with its type where that is what is wrong.

    Example:
        >>> shown("4"), shown(2.5), shown([1] * 1000)[-12:]
        ("'4' (a str)", '2.5 (a float)', '... (a list)')
    """
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, or an object of the caller's own
        return f"a {type(value).__name__}"
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"{text} (a {type(value).__name__})"


def whole(value: object, name: str, least: int = 0, most: int = MOST) -> int:
    """A whole number in a range; those of numpy are welcome, truth values are not.

    Raises:
        UsageError: another type, or out of range.

    Example:
        >>> whole(True, "lanes")
        Traceback (most recent call last):
        peakfold.errors.UsageError: lanes is no whole number: True (a bool)
    """
    try:
        number = index(value)  # type: ignore[arg-type]  # it tells
    except TypeError:
        raise UsageError(f"{name} is no whole number: {shown(value)}") from None
    if isinstance(value, bool):
        raise UsageError(f"{name} is no whole number: {shown(value)}")
    if not least <= number <= most:
        limit = "2^62 - 1" if most == MOST else f"{most}"
        size = number.bit_length()
        amount = str(number) if size < 100 else f"{'-' if number < 0 else ''}2^{size - 1} or more"
        raise UsageError(f"{name} is {amount}, and must be from {least} to {limit}")
    return number


def power_of_two(value: object, name: str, most: int = 2**30) -> int:
    """A power of two, as every allocator and compiler asks of an alignment.

    Raises:
        UsageError: it is none, or too large.

    Example:
        >>> power_of_two(24, "align")
        Traceback (most recent call last):
        peakfold.errors.UsageError: align is 24, no power of two (16 and 32 are)
    """
    number = whole(value, name, 1, most)
    if number & (number - 1):
        near = 1 << (number.bit_length() - 1)
        raise UsageError(f"{name} is {number}, no power of two", hint=f"{near} and {2 * near} are")
    return number


def real(value: object, name: str, least: float = 0.0, *, endless: bool = False) -> float:
    """A real number from `least` on; without end only where that is of use.

    Raises:
        UsageError: another type, ``nan``, or out of range.

    Example:
        >>> real(2, "time_limit"), real(float("inf"), "time_limit", endless=True)
        (2.0, inf)
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise UsageError(f"{name} is no number: {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isnan(found) or found < least or (math.isinf(found) and not endless):
        kind = "number" if endless else "finite number"
        raise UsageError(f"{name} is {found:g}, and must be a {kind} from {least:g} on")
    return found


def flag(value: object, name: str) -> bool:
    """A truth value.

    Raises:
        UsageError: anything else, which would be true.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name} is neither True nor False: {shown(value)}")
    return value


def word(value: object, known: tuple[str, ...], what: str) -> str:
    """One of a few words.

    Raises:
        UsageError: another one, or no text.
    """
    if not isinstance(value, str) or value not in known:
        named = repr(value) if isinstance(value, str) and len(value) <= _SHOWN else shown(value)
        raise UsageError(f"no {what} {named}", hint=f"known: {', '.join(known)}")
    return value


def mapping(value: object, name: str) -> Mapping[str, object]:
    """A mapping with names as keys; `None` is an empty one.

    Raises:
        UsageError: anything else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"{name} is no mapping from names: {shown(value)}")
    return value


def path(value: object, name: str) -> Path:
    """A path.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, str | Path):
        raise UsageError(f"{name} is no path: {shown(value)}")
    return Path(value)


def digits(text: str) -> int | None:
    """The number that a word of digits is; `None` for other words and for numbers of no use.

    Example:
        >>> digits("64"), digits("-1"), digits("\\u00b2"), digits("9" * 5000)
        (64, None, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None
