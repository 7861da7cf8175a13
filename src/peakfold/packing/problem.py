"""The nouns of packing: buffers as rectangles in time and address. Pure geometry, no graph.

    address
      ^        +-------+
      |  +-----+   b   |        a buffer is one or more pieces; a piece is alive during
      |  |  a  +-------+        [start, stop) and then covers the bytes [lower, upper)
      |  +-----+-------+-----+  counted from its buffer's offset
      |  |         c         |
      +--+-------------------+--> time

A plain buffer is one piece with ``lower = 0`` and ``upper = size``. Several pieces express
several lifetimes, a size that changes over the lifetime ("gaps"), and groups that must keep
their distance (a concatenation whose parts are born at different steps). All pieces of a
buffer move together, because it has one offset.

Two pieces of different buffers may share an address only if their lifetimes do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakfold.arguments import shown
from peakfold.errors import UsageError

Int64 = NDArray[np.int64]
Search = Literal["complete", "time limit", "node limit"]
FREE = -1
"""The value in `Problem.fixed` of a buffer that may go anywhere."""
_TOO_MUCH = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """n buffers made of m pieces (struct of arrays, all int64).

    Attributes:
        size: (n,) bytes of each buffer; its pieces lie inside ``[0, size)``.
        align: (n,) the offset must be a multiple of this.
        fixed: (n,) a pinned offset, or `FREE`.
        first: (n + 1,) pieces of buffer b are ``first[b]:first[b + 1]``.
        start, stop: (m,) half-open lifetime of each piece.
        lower, upper: (m,) half-open byte range of each piece, relative to its buffer.
        names: (n,) labels for messages and files; may be empty.
        conflicts: (k, 2) pairs of buffers that must not share an address, in place of
            overlapping lifetimes (parallel lanes), or None.
    """

    size: Int64
    align: Int64
    fixed: Int64
    first: Int64
    start: Int64
    stop: Int64
    lower: Int64
    upper: Int64
    names: tuple[str, ...] = field(default=())
    conflicts: Int64 | None = field(default=None)

    @property
    def buffers(self) -> int:
        """Number of buffers."""
        return len(self.size)

    @property
    def owner(self) -> Int64:
        """(m,) the buffer of each piece."""
        return np.repeat(np.arange(self.buffers, dtype=np.int64), np.diff(self.first))

    @property
    def plain(self) -> bool:
        """Whether every buffer is one piece that covers it whole."""
        return (
            len(self.start) == self.buffers
            and bool((self.lower == 0).all())
            and bool((self.upper == self.size).all())
        )

    @property
    def pieces_alive(self) -> NDArray[np.bool_]:
        """(m,) whether the piece covers any byte at any step; others conflict with nothing."""
        return (self.stop > self.start) & (self.upper > self.lower)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """(n,) whether any piece of the buffer is alive."""
        found: NDArray[np.bool_] = np.zeros(self.buffers, dtype=np.bool_)
        found[self.owner[self.pieces_alive]] = True
        return found

    def height(self, offsets: Int64) -> int:
        """``max(offset + size)`` over buffers that live at all, 0 for none.

        Example:
            >>> Problem.of([0, 1], [2, 3], [16, 8]).height(np.array([0, 16]))
            24
        """
        alive = self.alive
        if np.shape(offsets) != alive.shape:
            raise UsageError(f"{len(alive)} offsets expected, got {np.shape(offsets)}")
        return int((offsets[alive] + self.size[alive]).max(initial=0))

    def name(self, buffer: int) -> str:
        """A label for messages."""
        return self.names[buffer] if self.names else str(buffer)

    @classmethod
    def of(
        cls,
        start: ArrayLike,
        stop: ArrayLike,
        size: ArrayLike,
        *,
        align: ArrayLike = 1,
        fixed: ArrayLike = FREE,
        names: tuple[str, ...] = (),
        conflicts: ArrayLike | None = None,
    ) -> Problem:
        """Plain buffers from columns.

        Raises:
            UsageError: columns of different length or of something else than whole numbers below
                2^62, a negative size, ``stop < start``.

        Example:
            >>> Problem.of([0, 1], [2, 3], [16, 8]).buffers
            2
        """
        sizes = column(size, "size")
        n = len(sizes)
        zero = np.zeros(n, dtype=np.int64)
        return cls.of_pieces(
            size=sizes,
            first=np.arange(n + 1, dtype=np.int64),
            start=start,
            stop=stop,
            lower=zero,
            upper=sizes,
            align=align,
            fixed=fixed,
            names=names,
            conflicts=conflicts,
        )

    @classmethod
    def of_pieces(
        cls,
        *,
        size: ArrayLike,
        first: ArrayLike,
        start: ArrayLike,
        stop: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
        align: ArrayLike = 1,
        fixed: ArrayLike = FREE,
        names: tuple[str, ...] = (),
        conflicts: ArrayLike | None = None,
    ) -> Problem:
        """Buffers of several pieces; `first` is the CSR index of pieces by buffer.

        Raises:
            UsageError: columns that do not belong together, named with the first bad row.
        """
        sizes = column(size, "size")
        problem = cls(
            size=sizes,
            align=_spread(column(align, "align"), len(sizes), "align"),
            fixed=_spread(column(fixed, "fixed"), len(sizes), "fixed"),
            first=column(first, "first"),
            start=column(start, "start"),
            stop=column(stop, "stop"),
            lower=column(lower, "lower"),
            upper=column(upper, "upper"),
            names=_labels(names),
            conflicts=None if conflicts is None else column(conflicts, "conflicts", pairs=True),
        )
        _check(problem)
        return problem


def column(values: ArrayLike, name: str, *, pairs: bool = False) -> Int64:
    """Whole numbers as a column: nothing is cut, nothing wraps around.

    Args:
        values: n numbers, or one; with `pairs` k pairs of them.
        name: of the column, for messages.
        pairs: expect two dimensions.

    Returns:
        (n,) int64, or (k, 2).

    Raises:
        UsageError: fractions, ``nan``, text, numbers of 2^62 and more, another shape.

    Example:
        >>> column([1.9], "size")
        Traceback (most recent call last):
        peakfold.errors.UsageError: size has 1.9, and must hold whole numbers below 2^62
    """
    try:
        found = np.asarray(values)
        if found.size == 0:
            found = found.astype(np.int64)  # an empty list is one of floats
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} is no column of whole numbers: {shown(values)}") from None
    found = found.reshape(-1, 2) if pairs and not found.size else found
    if (found.ndim != 2 or found.shape[1] != 2) if pairs else found.ndim > 1:
        raise UsageError(f"{name} has the shape {found.shape}, not that of a column")
    if found.dtype.kind not in "iuf":
        raise UsageError(f"{name} is no column of whole numbers: {shown(values)}")
    bad = ~((found > -_TOO_MUCH) & (found < _TOO_MUCH))
    if found.dtype.kind == "f":
        bad |= found != np.floor(found)
    if bad.any():
        first = found[bad].flat[0]
        raise UsageError(f"{name} has {first}, and must hold whole numbers below 2^62")
    return np.atleast_1d(found.astype(np.int64, copy=False))


def need_problem(value: object) -> None:
    """Refuse what is no `Problem`.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, Problem):
        raise UsageError(f"no packing problem: {shown(value)}", hint="make one with Problem.of")


def _spread(values: Int64, count: int, name: str) -> Int64:
    """A column of its own memory; one number stands for all."""
    if len(values) not in (1, count):
        raise UsageError(f"{name} has {len(values)} numbers for {count} buffers")
    return np.broadcast_to(values, (count,)).copy()


def _labels(names: Iterable[str]) -> tuple[str, ...]:
    found = names if isinstance(names, tuple) else () if isinstance(names, str) else tuple(names)
    if isinstance(names, str) or not set(map(type, found)) <= {str}:
        raise UsageError("names are no column of texts")
    return found


def _check(p: Problem) -> None:
    n, m = len(p.size), len(p.start)
    if not (len(p.stop) == len(p.lower) == len(p.upper) == m) or len(p.first) != n + 1:
        raise UsageError("columns of a packing problem differ in length")
    if p.names and len(p.names) != n:
        raise UsageError(f"{len(p.names)} names for {n} buffers")
    if p.first[0] != 0 or p.first[-1] != m or (np.diff(p.first) < 0).any():
        raise UsageError("the index of pieces by buffer is not increasing from 0 to their number")
    pairs = p.conflicts
    if pairs is not None and pairs.size and not (pairs.min() >= 0 and pairs.max() < n):
        raise UsageError(f"a conflict names a buffer outside 0 to {n - 1}")
    rules = (
        (p.size < 0, "size is negative"),
        (p.align < 1, "alignment is below 1"),
        (
            (p.fixed != FREE) & ((p.fixed < 0) | (p.fixed % np.maximum(p.align, 1) != 0)),
            "pinned offset is negative or breaks its own alignment",
        ),
    )
    for bad, what in rules:
        if bad.any():
            raise UsageError(what, where=f"buffer {p.name(int(np.argmax(bad)))!r}")
    reach = sum(map(int, p.size)) + int(p.fixed.max(initial=0)) + n * int(p.align.max(initial=1))
    if reach >= 2**62:
        raise UsageError("sizes, pins and alignments add up to 2^62 bytes or more")
    owner = p.owner
    piece_rules = (
        (p.stop < p.start, "lifetime stops before it starts"),
        (
            (p.lower < 0) | (p.upper < p.lower) | (p.upper > p.size[owner] if m else False),
            "a piece lies outside its buffer",
        ),
    )
    for bad, what in piece_rules:
        if np.any(bad):
            raise UsageError(what, where=f"buffer {p.name(int(owner[np.argmax(bad)]))!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Offsets for every buffer of a problem, and what is known about them.

    Attributes:
        offsets: (n,) byte offset of each buffer.
        height: ``max(offset + size)`` over buffers that live at all, 0 for none.
        lower_bound: no packing of this problem is lower.
        optimal: proven that none is lower (`height == lower_bound`, or search exhausted).
        strategy: name of the algorithm that found it.
        search: what ended the search for a lower one: nothing, the clock, or a limit of nodes.
    """

    offsets: Int64
    height: int
    lower_bound: int
    optimal: bool
    strategy: str
    search: Search = "complete"
