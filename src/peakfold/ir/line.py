"""The tokens of one line of the text form, and a cursor over them."""

from __future__ import annotations

import json
import re
from typing import cast

from peakfold.errors import ModelError
from peakfold.ir.graph import AttrValue

_TOKEN = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*")|(-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf\b)|nan\b)'
    r"|([A-Za-z_][A-Za-z0-9_./-]*)|(.))"
)
_DIGITS = 40
"""No number of a graph is longer, and Python refuses to read one of thousands of digits."""
_WHOLE = 2**64
"""Whole numbers of a graph are below it, since every format keeps them in 64 bits."""
LONGEST = 1 << 22
"""Characters of a line: a token takes a hundred bytes of memory for each of its own."""


class Line:
    """Cursor over the tokens of one line; kinds are 's'tring, 'n'umber, 'w'ord, 'p'unct."""

    __slots__ = ("at", "number", "tokens")
    tokens: list[tuple[str, str, str, str]]

    def __init__(self, text: str, number: int) -> None:
        self.number = number
        self.at = 0
        if len(text) > LONGEST:
            raise self.fail(f"it is longer than {LONGEST} characters")
        # findall gives one 4-tuple a token; exactly one group is not empty.
        self.tokens = _TOKEN.findall(text.rstrip())

    def fail(self, what: str) -> ModelError:
        """An error that names this line, to be raised."""
        return ModelError(what, where=f"line {self.number}")

    def done(self) -> bool:
        """Whether all tokens are read."""
        return self.at >= len(self.tokens)

    def peek(self) -> str:
        """The next token's text, or an empty string at the end of the line."""
        return "" if self.done() else "".join(self.tokens[self.at])

    def accept(self, text: str) -> bool:
        """Pass over the next token if it is this word or sign."""
        if not self.done() and text in self.tokens[self.at][2:]:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Pass over this word or sign.

        Raises:
            ModelError: something else is there.
        """
        if not self.accept(text):
            raise self.fail(f"expected {text!r}, found {self.peek() or 'the end of the line'!r}")

    def word(self, what: str) -> str:
        """A plain word or a quoted name.

        Raises:
            ModelError: something else is there, `what` in its place.
        """
        if not self.done():
            string, _, word, _ = self.tokens[self.at]
            if word or string:
                self.at += 1
                return word or self._unquote(string)
        raise self.fail(f"expected {what}, found {self.peek() or 'the end of the line'!r}")

    def _unquote(self, string: str) -> str:
        try:
            name = str(json.loads(string))
            name.encode()  # a lone surrogate is no character: no JSON could hold the plan
            return name
        except ValueError:
            raise self.fail(f"{string} is not a JSON string") from None

    def integer(self, what: str) -> int:
        """A whole number.

        Raises:
            ModelError: something else is there, or too many digits.
        """
        number = "" if self.done() else self.tokens[self.at][1]
        if not number.lstrip("-").isdigit() or len(number) > _DIGITS:
            raise self.fail(f"expected {what}, found {self.peek() or 'the end of the line'!r}")
        self.at += 1
        return self._whole(number)

    def _whole(self, number: str) -> int:
        value = int(number)
        if abs(value) >= _WHOLE:
            raise self.fail(f"the number {number} has more than 64 bits")
        return value

    def value(self) -> AttrValue:
        """A string, a number, a truth value, or a list of them in brackets.

        Raises:
            ModelError: something else is there.
        """
        if self.accept("["):
            items: list[AttrValue] = []
            while not self.accept("]"):
                if self.accept("["):
                    raise self.fail("a list in a list is no value")
                items.append(self.value())
                if not self.accept(","):
                    self.expect("]")
                    break
            return cast(AttrValue, tuple(items))
        if self.done():
            raise self.fail("expected a value, found the end of the line")
        string, number, word, _ = self.tokens[self.at]
        self.at += 1
        if string:
            return self._unquote(string)
        if number:
            if len(number) > _DIGITS:
                raise self.fail(f"the number {number[:_DIGITS]}... is too long")
            fraction = re.search(r"[.enf]", number, re.I)
            return float(number) if fraction else self._whole(number)
        if word in {"true", "false"}:
            return bool(word == "true")
        raise self.fail(f"{''.join(self.tokens[self.at - 1])!r} is no value")

    def names(self) -> tuple[str, ...]:
        """Words or quoted names in brackets.

        Raises:
            ModelError: something else is there.
        """
        self.expect("[")
        names: list[str] = []
        while not self.accept("]"):
            names.append(self.word("a name"))
            if not self.accept(","):
                self.expect("]")
                break
        return tuple(names)
