"""The field's exchange format: MiniMalloc's CSV, in and out.

Columns in any order: ``id`` (or ``buffer``, ``buffer_id``), ``lower`` (``start``, ``begin``),
``upper`` or ``end`` (``end`` is the last step alive, so 1 is added), ``size``; optional
``alignment``, ``offset`` (a pin; empty = free), ``hint`` (ignored) and ``gaps``: a list of
``first-last`` separated by spaces, each with an optional ``@low:high``, the only bytes that
the buffer uses in that stretch; ``bank``, written by us: offsets in several banks are no pins
in one memory, so such a file is refused. A name ``X.<capacity>.csv`` carries the capacity.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TextIO

import numpy as np

from peakfold.boundary import read_text
from peakfold.errors import ModelError, PeakfoldError
from peakfold.packing.problem import FREE, Int64, Problem
from peakfold.printable import csv_text, csv_value

MAX_BYTES = 1 << 28
LINE_LIMIT = 1 << 16
NUMBER_LIMIT = 1 << 62
_NAMES = {
    "buffer": "id",
    "buffer_id": "id",
    "start": "lower",
    "begin": "lower",
    "end": "upper",
}
_REQUIRED = ("id", "lower", "upper", "size")
_KNOWN = (*_REQUIRED, "alignment", "offset", "hint", "gaps", "bank")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_GAP = re.compile(r"([0-9]{1,19})-([0-9]{1,19})(?:@([0-9]{1,19}):([0-9]{1,19}))?")
_CAPACITY = re.compile(r".+\.([0-9]{1,18})\.csv")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A read file: the problem, and what is needed to write it again.

    Attributes:
        problem: the buffers, named by ``id``.
        lower, upper: (n,) half-open hull of each lifetime.
        gaps: (n,) text of the gaps column, empty strings if there are none.
    """

    problem: Problem
    lower: Int64
    upper: Int64
    gaps: tuple[str, ...]


def capacity_of(name: str) -> int | None:
    """The capacity in a file name, if it has one.

    Example:
        >>> capacity_of("challenging/A.1048576.csv"), capacity_of("G_1.csv")
        (1048576, None)
    """
    match = _CAPACITY.fullmatch(Path(name).name)
    return int(match[1]) if match else None


def read_csv(path: str | Path) -> Table:
    """Read a file.

    Raises:
        UsageError: no such file, or it cannot be read.
        ModelError: broken, with the line number.
    """
    text = read_text(Path(path), MAX_BYTES, "a table of buffers")
    return parse_csv(StringIO(text, newline=""), str(path))


def parse_csv(stream: TextIO, where: str = "CSV") -> Table:
    """Read an open stream.

    Raises:
        ModelError: broken, with the line number.

    Example:
        >>> from io import StringIO
        >>> table = parse_csv(StringIO("id,lower,upper,size\\na,0,2,16\\nb,1,3,8\\n"))
        >>> table.problem.names, table.problem.size.tolist()
        (('a', 'b'), [16, 8])
    """
    lines = csv.reader(_lines(stream, where), strict=True)
    rows = _Rows(where)
    try:
        header = next(lines, None)
        if header is None:
            raise ModelError("is empty", where=where, hint="a header line is expected")
        rows.header(header)
        for row in lines:
            if row and any(cell.strip() for cell in row):
                rows.add(row, lines.line_num)
    except csv.Error as error:
        raise ModelError(str(error), where=f"{where}, line {lines.line_num}") from None
    return rows.table()


def _lines(stream: TextIO, where: str) -> Iterator[str]:
    number = 0
    while line := stream.readline(LINE_LIMIT):
        number += 1
        if len(line) == LINE_LIMIT and not line.endswith("\n"):
            raise ModelError(f"line is longer than {LINE_LIMIT}", where=f"{where}, line {number}")
        if "\0" in line:
            raise ModelError("holds a NUL byte, no text", where=f"{where}, line {number}")
        yield line


class _Rows:
    """Collects rows as columns; every error names its line."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._columns: dict[str, int] = {}
        self._inclusive = 0
        self._width = 0
        self._seen: dict[str, int] = {}
        self._total = 0
        self._bank: str | None = None
        self._bounds: list[tuple[int, int]] = []
        self._numbers: list[tuple[int, int, int]] = []  # size, alignment, pin
        self._gaps: list[str] = []
        self._first = [0]
        self._pieces: list[tuple[int, int, int, int]] = []

    def header(self, names: list[str]) -> None:
        cleaned = [name.strip().lower() for name in names]
        self._inclusive = int("end" in cleaned)
        mapped = [_NAMES.get(name, name) for name in cleaned]
        where = f"{self._where}, line 1"
        for name in _REQUIRED:
            if name not in mapped:
                hint = f"columns are {', '.join(_KNOWN)}"
                raise ModelError(f"column {name!r} is missing", where=where, hint=hint)
        twice = [name for name in _KNOWN if mapped.count(name) > 1]
        if twice:
            raise ModelError(f"column {twice[0]!r} appears twice", where=where)
        self._columns = {name: at for at, name in enumerate(mapped) if name in _KNOWN}
        self._width = len(mapped)

    def add(self, row: list[str], line: int) -> None:
        where = f"{self._where}, line {line}"
        if len(row) != self._width:
            raise ModelError(f"{len(row)} fields, the header has {self._width}", where=where)
        cell = {name: row[at].strip() for name, at in self._columns.items()}
        name = csv_value(cell["id"])
        if name in self._seen:
            first = self._seen[name]
            raise ModelError(f"id {name!r} appears twice, first in line {first}", where=where)
        self._seen[name] = line
        lower = _integer(cell["lower"], "lower", where)
        upper = _integer(cell["upper"], "upper", where) + self._inclusive
        size = _integer(cell["size"], "size", where)
        if upper < lower:
            raise ModelError(f"lifetime stops at {upper} before it starts at {lower}", where=where)
        align = _integer(cell.get("alignment") or "1", "alignment", where)
        if align < 1:
            raise ModelError("alignment is below 1", where=where)
        pin = cell.get("offset")
        fixed = _integer(pin, "offset", where) if pin else FREE
        if fixed > 0 and fixed % align:
            raise ModelError(f"offset {fixed} breaks alignment {align}", where=where)
        if pin and (bank := cell.get("bank")) is not None:
            self._one_bank(csv_value(bank), where)
        self._total += size + align + max(fixed, 0)
        if self._total >= NUMBER_LIMIT:
            raise ModelError("sizes and offsets add up to 2^62 bytes or more", where=where)
        self._bounds.append((lower, upper))
        self._numbers.append((size, align, fixed))
        self._gaps.append(cell.get("gaps", ""))
        self._pieces += _pieces(lower, upper, size, cell.get("gaps", ""), self._inclusive, where)
        self._first.append(len(self._pieces))

    def _one_bank(self, bank: str, where: str) -> None:
        if self._bank is None:
            self._bank = bank
        if bank != self._bank:
            what = f"offset lies in bank {bank!r}, one before in {self._bank!r}"
            raise ModelError(what, where=where, hint="leave out the offsets, or pack one bank")

    def table(self) -> Table:
        bounds = np.array(self._bounds, dtype=np.int64).reshape(-1, 2)
        numbers = np.array(self._numbers, dtype=np.int64).reshape(-1, 3)
        pieces = np.array(self._pieces, dtype=np.int64).reshape(-1, 4)
        try:
            problem = Problem.of_pieces(
                size=numbers[:, 0],
                align=numbers[:, 1],
                fixed=numbers[:, 2],
                first=self._first,
                start=pieces[:, 0],
                stop=pieces[:, 1],
                lower=pieces[:, 2],
                upper=pieces[:, 3],
                names=tuple(self._seen),
            )
        except PeakfoldError as error:
            raise ModelError(error.what, where=f"{self._where}: {error.where}") from None
        return Table(problem, bounds[:, 0], bounds[:, 1], tuple(self._gaps))


def _integer(text: str, column: str, where: str) -> int:
    if not _INTEGER.fullmatch(text):
        shown = text if len(text) < 40 else f"{text[:40]}..."
        raise ModelError(f"{column} {shown!r} is not an integer below 2^62", where=where)
    value = int(text)
    if value < 0:
        raise ModelError(f"{column} {value} is negative", where=where)
    if value >= NUMBER_LIMIT:
        raise ModelError(f"{column} {value} is 2^62 or more", where=where)
    return value


def _pieces(
    lower: int, upper: int, size: int, gaps: str, inclusive: int, where: str
) -> list[tuple[int, int, int, int]]:
    """(start, stop, low, high) of the parts of a lifetime."""
    found, at = [], lower
    for text in gaps.split():
        match = _GAP.fullmatch(text)
        if match is None:
            hint = "write 3-5 or 3-5@0:16"
            raise ModelError(f"gap {text!r} cannot be read", where=where, hint=hint)
        start, stop = int(match[1]), int(match[2]) + inclusive
        low, high = (int(match[3]), int(match[4])) if match[3] else (0, 0)
        if not (at <= start <= stop <= upper and low <= high <= size):
            what = f"gap {text!r} is out of order or leaves its buffer"
            raise ModelError(what, where=where)
        found += [(at, start, 0, size), (start, stop, low, high)]
        at = stop
    kept = [piece for piece in found if piece[0] < piece[1] and piece[2] < piece[3]]
    return [*kept, (at, upper, 0, size)] if at < upper or not kept else kept


def format_csv(
    table: Table, offsets: Iterable[int] | None = None, banks: Sequence[str] | None = None
) -> str:
    """The table as text, with an ``offset`` column if offsets are given.

    Without offsets, pins are written as ``offset`` (empty for free buffers). `banks` adds a
    column with the name of each buffer's bank.

    Example:
        >>> from io import StringIO
        >>> table = parse_csv(StringIO("buffer,start,end,size\\na,0,1,16\\n"))
        >>> print(format_csv(table, [64]), end="")
        id,lower,upper,size,offset
        a,0,2,16,64
    """
    problem = table.problem
    columns: dict[str, list[object]] = {
        "id": [problem.name(b) for b in range(problem.buffers)],
        "lower": list(table.lower.tolist()),
        "upper": list(table.upper.tolist()),
        "size": list(problem.size.tolist()),
    }
    if (problem.align != 1).any():
        columns["alignment"] = list(problem.align.tolist())
    if any(table.gaps):
        columns["gaps"] = list(_half_open_gaps(table))
    if offsets is not None:
        columns["offset"] = [int(x) for x in offsets]
    elif (problem.fixed != FREE).any():
        columns["offset"] = ["" if x == FREE else x for x in problem.fixed.tolist()]
    if banks is not None:
        columns["bank"] = list(banks)
    return csv_text([tuple(columns), *zip(*columns.values(), strict=True)])


def _half_open_gaps(table: Table) -> Iterator[str]:
    """Gaps rebuilt from the pieces, since ``upper`` is written half-open."""
    p = table.problem
    for b in range(p.buffers):
        words, at = [], int(table.lower[b])
        size, upper = int(p.size[b]), int(table.upper[b])
        for i in range(int(p.first[b]), int(p.first[b + 1])):
            start, stop = int(p.start[i]), int(p.stop[i])
            low, high = int(p.lower[i]), int(p.upper[i])
            if at < start:
                words.append(f"{at}-{start}")
            if (low, high) != (0, size) and start < stop:
                words.append(f"{start}-{stop}@{low}:{high}")
            at = stop
        if at < upper:
            words.append(f"{at}-{upper}")
        yield " ".join(words)
