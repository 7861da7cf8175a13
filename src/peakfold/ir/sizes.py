"""The text of a size -> an `Expression`: a reader that looks at characters, and runs none."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from peakfold.ir.expression import LARGEST, Expression, call
from peakfold.ir.size_functions import FLOOR_DIV, Unreadable

MAX_TEXT = 4096
"""Characters of a size."""
MAX_DEPTH = 64
"""Parentheses inside each other."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<sign>\*\*|//|[-+*/%(),=]))",
    re.ASCII,
)
_SYMBOLS = ("Symbol", "Dummy")
_SPELLED = {"max": "Max", "min": "Min", "ceil": "ceiling", "abs": "Abs"}
_TRUE, _NO = "True", ("False", "None")


@lru_cache(maxsize=4096)  # a program states the same few sizes again and again
def parse_size_text(text: str) -> Expression:
    """A size that is an expression of symbols.

    Args:
        text: as PyTorch writes it into a file (``Mul(Integer(2), Symbol('s0'))``), or as people
            do: ``2*s0 + 1``, ``seq//2``, ``max(1, s0 % 4)``.

    Raises:
        Unreadable: it is none; says why.

    Example:
        >>> str(parse_size_text("(1 + seq)//2")), str(parse_size_text("Max(s0, 1)*s1"))
        ('((seq + 1)//2)', 's1*Max(1, s0)')
        >>> parse_size_text("__import__('os').system('id')")
        Traceback (most recent call last):
        peakfold.ir.size_functions.Unreadable: it cannot be read from ".system('id')" on
    """
    if len(text) > MAX_TEXT:
        raise Unreadable(f"it has {len(text)} characters")
    reader = _Reader(_tokens(text))
    size = reader.size()
    if reader.kind != "end":
        raise Unreadable(f"{reader.word!r} is left over")
    return size


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unreadable(f"it cannot be read from {text[at : at + 40]!r} on")
        found.append((match.lastgroup or "", match[match.lastgroup or 0]))
        at = match.end()
    return found


class _Reader:
    """Walks the tokens of one text, by precedence."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("end", "")]
        self._at = 0
        self._depth = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def word(self) -> str:
        return self._tokens[self._at][1]

    def _took(self, *signs: str) -> str:
        """The sign that comes next, if it is one of these."""
        if self.kind != "sign" or self.word not in signs:
            return ""
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _need(self, sign: str) -> None:
        if not self._took(sign):
            raise Unreadable(f"{sign!r} is missing before {self.word or 'its end'!r}")

    def size(self) -> Expression:
        parts = [self._term()]
        while sign := self._took("+", "-"):
            term = self._term()
            parts.append(term if sign == "+" else -term)
        return parts[0] if len(parts) == 1 else Expression.total(parts)

    def _term(self) -> Expression:
        total = self._factor()
        while sign := self._took("*", "//", "/", "%"):
            factor = self._factor()
            if sign == "*":
                total = total * factor
            elif sign == "/":
                total = total * factor.power(-1)
            else:
                total = call(FLOOR_DIV if sign == "//" else "Mod", [total, factor])
        return total

    def _factor(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("it nests too deeply")
        try:
            if self._took("-"):
                return -self._factor()
            base = self._atom()
            return call("Pow", [base, self._factor()]) if self._took("**") else base
        finally:
            self._depth -= 1

    def _atom(self) -> Expression:
        kind, word = self._tokens[self._at]
        if self._took("("):
            inner = self.size()
            self._need(")")
            return inner
        if kind not in ("number", "name"):
            raise Unreadable(f"a size is missing before {word or 'its end'!r}")
        self._at += 1
        if kind == "number":
            return Expression.of(_number(word))
        if self._took("("):
            return self._call(word)
        return Expression.symbol(word)

    def _call(self, name: str) -> Expression:
        text = ""
        sizes: list[Expression] = []
        while not self._took(")"):
            if text or sizes:
                self._need(",")
            if self.kind == "text":
                text, self._at = self.word[1:-1], self._at + 1
            elif self.kind == "name" and self._tokens[self._at + 1] == ("sign", "="):
                self._assumption()
            else:
                sizes.append(self.size())
        return _meant(name, text, sizes)

    def _assumption(self) -> None:
        """What is said of a symbol (``positive=True``): needed by nobody."""
        self._at += 2
        if self.kind not in ("name", "number"):
            raise Unreadable(f"{self.word!r} is no assumption")
        self._at += 1


def _meant(name: str, text: str, sizes: list[Expression]) -> Expression:
    if name in _SYMBOLS:
        if sizes or not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
            raise Unreadable(f"{text!r} is no symbol")
        return Expression.symbol(text)
    if name == "Float" and not sizes and re.fullmatch(r"-?\d+(\.\d*)?", text, re.ASCII):
        return Expression.of(-_number(text[1:]) if text.startswith("-") else _number(text))
    if text:
        raise Unreadable(f"{name!r} takes no text")
    if name == "Integer" and len(sizes) == 1:
        return sizes[0]
    if name == "Rational" and len(sizes) == 2:
        return sizes[0] * sizes[1].power(-1)
    return call(_SPELLED.get(name, name), sizes)


def _number(word: str) -> Fraction:
    number = Fraction(word) if len(word) <= 40 else Fraction(LARGEST)
    if number >= LARGEST:
        raise Unreadable("a number in it is too large")
    return number
