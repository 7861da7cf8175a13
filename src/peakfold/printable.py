"""Names of a model, made safe for whatever they are written to: terminal, CSV, JSON, a picture.

A name in a file may hold anything: escape sequences, a million characters, the beginning of a
spreadsheet's formula. What must be exact (JSON, CSV) keeps the whole name, escaped; what is for
people is shortened, too.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

NAME = 80
"""Characters of a name in pictures, headers and documents that are no table of columns."""
LINE = 2000
"""Characters of a line on stderr."""
_WORD = 256
"""Characters of a word in such a line; a longer one is a name, and is shortened."""

_UNSEEN = re.compile(r"[^\x20-\x7e\n]")
# Full-width signs count, too: some spreadsheets read them as the plain ones.
_FORMULA = re.compile(r"\s*'*\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")


def clean(text: str) -> str:
    r"""The text with every character that is not printable written as an escape.

    Example:
        >>> clean("conv\x1b[31m\n")
        'conv\\x1b[31m\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, width: int = NAME) -> str:
    """A cleaned text of at most `width` characters, cut before its last two thirds.

    Names of one model often begin alike and differ at their end.

    Example:
        >>> shorten("block_1/conv_2/BiasAdd", 13)
        'bloc…/BiasAdd'
    """
    text = clean(text)
    if len(text) <= width:
        return text
    tail = max(width - 1, 2) * 2 // 3
    head = max(width - 1, 2) - tail
    return f"{text[:head]}…{text[len(text) - tail :]}"


def one_line(text: str) -> str:
    r"""A sentence in one line of bearable length, with nothing that moves a cursor.

    Example:
        >>> one_line("tensor\n'x\x1b'"), len(one_line("tensor '" + "a" * 10**6 + "'"))
        ("tensor 'x\\x1b'", 87)
    """
    words = (shorten(word) if len(word) > _WORD else clean(word) for word in text.split())
    return shorten(" ".join(words), LINE)


def escape_json(data: bytes) -> bytes:
    r"""JSON of the same value, in which nothing unprintable stands as it is.

    Example:
        >>> escape_json('{"a": "é\u202e\x9b"}'.encode()).decode()
        '{"a": "é\\u202e\\u009b"}'
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    return _UNSEEN.sub(lambda found: _unit(found[0]), data.decode()).encode()


def _unit(char: str) -> str:
    if char.isprintable():
        return char
    pair = char.encode("utf-16-be")
    return "".join(f"\\u{pair[at : at + 2].hex()}" for at in range(0, len(pair), 2))


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    r"""Rows as CSV that no terminal and no spreadsheet takes for more than text.

    `None` is an empty cell, a tuple its items with blanks. In text, what is not printable is
    escaped, and what a spreadsheet would compute gets a leading ``'``; `csv_value` takes it off.

    Example:
        >>> print(csv_text([["name", "n"], ["=1+1", -1], ["a\x1b", None]]), end="")
        name,n
        '=1+1,-1
        a\x1b,
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    if not isinstance(value, str):
        return "" if value is None else value
    text = clean(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_value(cell: str) -> str:
    """The text of a cell that `csv_text` wrote.

    Example:
        >>> csv_value("'=1+1"), csv_value("'quoted'")
        ('=1+1', "'quoted'")
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
