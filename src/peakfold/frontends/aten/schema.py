"""What an operator's schema says, without PyTorch: names and defaults, aliases and writes.

``aten.txt`` has a line per overload, written by ``tools/aten_schemas.py``: its name, its
arguments, ``->``, and a word per result::

    aten::add.Tensor self other * alpha=1 -> .
    aten::relu_.default self! -> !          aten::view.default self@ size -> @

``@`` is an operand whose bytes a result may lie in, and a result that lies there; ``!`` an operand
that is written, and a result that is that operand; what follows ``*`` is given by name only;
defaults are JSON. What an overload that is not in the file does to its operands nobody knows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Formal:
    """One argument of a schema.

    Attributes:
        positional: it may be given by position.
        optional: `default` stands for it when it is not given.
        written: the operator writes it in place.
        aliased: a result may lie in its bytes, and they are not written.
    """

    name: str
    positional: bool
    optional: bool
    default: Any
    written: bool
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """An operator's schema.

    Attributes:
        domain: its namespace: ``aten``.
        operator: its name without the overload.
        formals: its arguments, in order.
        results: a mark per result: ``.`` new, ``@`` in an operand's bytes, ``!`` an operand that
            it writes.
        guessed: nobody wrote it down: what it writes and whose alias it is are unknown.
    """

    domain: str
    operator: str
    formals: tuple[Formal, ...]
    results: tuple[str, ...]
    guessed: bool = False

    @property
    def only_views(self) -> bool:
        """Whether every result aliases an operand that is not written."""
        return bool(self.results) and all(mark == "@" for mark in self.results)

    @property
    def returns_written(self) -> bool:
        """Whether its one result is an operand that it writes."""
        return self.results == ("!",)


@cache
def signature_of(domain: str, operator: str, overload: str) -> Signature | None:
    """The schema of an overload, or `None` for one that nobody wrote down.

    Example:
        >>> add = signature_of("aten", "add", "Tensor")
        >>> [formal.name for formal in add.formals], add.formals[2].default, add.results
        (['self', 'other', 'alpha'], 1, ('.',))
        >>> signature_of("os", "system", "default") is None
        True
    """
    start = _table().find(f"\n{domain}::{operator}.{overload} ")
    if start < 0:
        return None
    end = _table().index("\n", start + 1)
    words = _table()[start:end].split()
    arrow = words.index("->")
    formals: list[Formal] = []
    positional = True
    for word in words[1:arrow]:
        if word == "*":
            positional = False
        else:
            formals.append(_formal(word, positional))
    return Signature(domain, operator, tuple(formals), tuple(words[arrow + 1 :]))


def unnamed(operator: str, count: int) -> Signature:
    """The schema of an operator of a higher order, which names none of its `count` arguments."""
    formals = tuple(Formal(f"arg{at}", True, False, None, False) for at in range(count))
    return Signature("higher_order", operator, formals, ())


def _formal(word: str, positional: bool) -> Formal:
    name, given, default = word.partition("=")
    bare = name.rstrip("@!")
    value = json.loads(default) if given else None
    return Formal(bare, positional, bool(given), value, "!" in name, "@" in name)


@cache
def _table() -> str:
    return "\n" + (files("peakfold.frontends.aten") / "aten.txt").read_text("utf-8")
