"""Judge 1: is this packing valid? Shares nothing with the code that made it.

A packing is valid when every offset is a non-negative multiple of the buffer's alignment,
pinned buffers are where they must be, nothing ends above the capacity, and no two buffers
that are alive together share an address. `violations` sweeps time over an address-ordered set
of live rectangles in O(m log m); `violations_naive` compares all pairs and is its oracle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from peakfold.errors import InvalidPlan, UsageError
from peakfold.interval import Interval, union
from peakfold.packing.problem import FREE, Problem, need_problem

NAIVE_LIMIT = 5_000
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes:
        rule: ``count``, ``negative``, ``alignment``, ``pin``, ``capacity`` or ``overlap``.
        message: a sentence that names the buffers and the numbers.
        buffers: indices of the buffers at fault.
    """

    rule: str
    message: str
    buffers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Rectangle:
    """Bytes ``[low, high)`` held by `owner` during ``[start, stop)``."""

    start: int
    stop: int
    low: int
    high: int
    owner: int


def violations(
    problem: Problem, offsets: ArrayLike, capacity: int | None = None
) -> list[Violation]:
    """Every broken rule that a sweep finds; an empty list means the packing is valid.

    Of several overlaps at one place only the first met may be listed.

    Args:
        problem: the buffers.
        offsets: (n,) byte offsets.
        capacity: no living buffer may end above this many bytes.

    Example:
        >>> p = Problem.of([0, 1], [2, 3], [16, 8], names=("a", "b"))
        >>> violations(p, [0, 16]), violations(p, [0, 8])[0].rule
        ([], 'overlap')
    """
    found, where = _single_rules(problem, offsets, capacity)
    if where is None:
        return found
    related = problem.conflicts is not None
    return found + list((_related if related else _sweep)(problem, where))


def violations_naive(
    problem: Problem, offsets: ArrayLike, capacity: int | None = None
) -> list[Violation]:
    """The same verdict by comparing all pairs; lists every overlapping pair.

    Raises:
        UsageError: more than 5,000 pieces.
    """
    if len(problem.start) > NAIVE_LIMIT:
        raise UsageError(f"the all-pairs judge takes at most {NAIVE_LIMIT} pieces")
    found, where = _single_rules(problem, offsets, capacity)
    if where is None:
        return found
    if problem.conflicts is not None:
        return found + list(_related(problem, where))
    owner = problem.owner
    low = problem.lower + np.asarray(where, dtype=np.int64)[owner]
    high = low + problem.upper - problem.lower
    pairs = set()
    for p in range(len(owner)):
        later = slice(p + 1, None)
        clash = (
            (
                np.maximum(problem.start[p], problem.start[later])
                < np.minimum(problem.stop[p], problem.stop[later])
            )
            & (np.maximum(low[p], low[later]) < np.minimum(high[p], high[later]))
            & (owner[later] != owner[p])
        )
        pairs |= {(int(owner[p]), int(owner[p + 1 + q])) for q in np.flatnonzero(clash)}
    return found + [_overlap(problem, where, *pair) for pair in sorted(pairs)]


def require_valid(problem: Problem, offsets: ArrayLike) -> None:
    """Pass silently or refuse.

    Raises:
        InvalidPlan: the first violation and how many there are.
    """
    found = violations(problem, offsets)
    if found:
        raise InvalidPlan(found[0].message, hint=f"{len(found)} violations in all")


def _single_rules(
    problem: Problem, offsets: ArrayLike, capacity: int | None
) -> tuple[list[Violation], list[int] | None]:
    """Rules about one buffer, and offsets as Python integers (they cannot overflow)."""
    need_problem(problem)
    try:
        given = np.asarray(offsets)
    except ValueError as error:
        return [Violation("count", f"no column of offsets: {error}", ())], None
    if given.shape != (problem.buffers,) or (given.size and given.dtype.kind not in "iu"):
        text = f"{problem.buffers} integer offsets expected, got {given.dtype} of {given.shape}"
        return [Violation("count", text, ())], None
    where = [int(x) for x in given]
    found = []
    alive = problem.alive
    columns = zip(where, problem.size, problem.align, problem.fixed, alive, strict=True)
    for b, (offset, size, align, fixed, lives) in enumerate(columns):
        label = f"buffer {problem.name(b)!r} at {offset}"
        if offset < 0:
            found.append(Violation("negative", f"{label} lies below 0", (b,)))
        if offset % int(align):
            found.append(Violation("alignment", f"{label} breaks alignment {align}", (b,)))
        if fixed not in (FREE, offset):
            found.append(Violation("pin", f"{label} is pinned to {fixed}", (b,)))
        if capacity is not None and lives and offset + int(size) > capacity:
            end = offset + int(size)
            found.append(Violation("capacity", f"{label} ends at {end} > {capacity}", (b,)))
    return found, where


def _overlap(problem: Problem, where: list[int], a: int, b: int) -> Violation:
    label = " and ".join(f"{problem.name(x)!r} at {where[x]}" for x in (a, b))
    return Violation("overlap", f"buffers {label} share an address while both live", (a, b))


def _rectangles(problem: Problem, where: list[int]) -> Iterator[_Rectangle]:
    """Living rectangles; those of one buffer are cut where they overlap each other."""
    first = problem.first.tolist()
    columns = list(
        zip(
            problem.start.tolist(),
            problem.stop.tolist(),
            problem.lower.tolist(),
            problem.upper.tolist(),
            strict=True,
        )
    )
    for b, base in enumerate(where):
        pieces = [p for p in columns[first[b] : first[b + 1]] if p[0] < p[1] and p[2] < p[3]]
        if len(pieces) == 1:
            start, stop, lower, upper = pieces[0]
            yield _Rectangle(start, stop, base + lower, base + upper, b)
            continue
        whole = [_Rectangle(p[0], p[1], base + p[2], base + p[3], b) for p in pieces]
        if next(_clashes(whole), None) is None:
            yield from whole
            continue
        times = sorted({t for piece in pieces for t in piece[:2]})
        for left, right in pairwise(times):
            spans = [Interval(p[2], p[3]) for p in pieces if p[0] <= left and p[1] >= right]
            for span in union(spans):
                yield _Rectangle(left, right, base + span.start, base + span.stop, b)


def _related(problem: Problem, where: list[int]) -> Iterator[Violation]:
    """Every pair of an explicit conflict relation, piece by piece where their hulls meet."""
    spans: list[list[Interval]] = [[] for _ in where]
    for p, b in enumerate(problem.owner.tolist()):
        if problem.start[p] < problem.stop[p]:
            span = Interval(int(problem.lower[p]), int(problem.upper[p]))
            spans[b].append(span.shift(where[b]))
    pairs = np.zeros((0, 2), dtype=np.int64) if problem.conflicts is None else problem.conflicts
    # Python's integers, which do not overflow, where a plan states offsets beyond 64 bits.
    wide = (
        np.int64 if max(where, default=0) < 2**62 and min(where, default=0) > -(2**62) else object
    )
    low = np.array([min((s.start for s in own), default=0) for own in spans], dtype=wide)
    high = np.array([max((s.stop for s in own), default=0) for own in spans], dtype=wide)
    one, two = pairs.T
    meet = (low[one] < high[two]) & (low[two] < high[one]) & (one != two)
    close = np.sort(pairs[meet.astype(np.bool_)], axis=1)
    for a, b in sorted(set(map(tuple, close.tolist()))):
        if any(one.overlaps(other) for one in spans[a] for other in spans[b]):
            yield _overlap(problem, where, a, b)


def _sweep(problem: Problem, where: list[int]) -> Iterator[Violation]:
    for one, two in _clashes(list(_rectangles(problem, where))):
        yield _overlap(problem, where, one.owner, two.owner)


def _clashes(rectangles: list[_Rectangle]) -> Iterator[tuple[_Rectangle, _Rectangle]]:
    """Deaths before births at equal times; the set of live rectangles stays disjoint."""
    births = sorted(rectangles, key=lambda r: (r.start, r.owner))
    deaths = iter(sorted(rectangles, key=lambda r: r.stop))
    live = _AddressSet()
    dying = next(deaths, None)
    for born in births:
        while dying is not None and dying.stop <= born.start:
            live.discard(dying)
            dying = next(deaths, None)
        clash = live.overlapping(born)
        if clash is None:
            live.add(born)
        else:
            yield clash, born


class _AddressSet:
    """Disjoint rectangles ordered by address, in blocks so that no step is linear."""

    def __init__(self) -> None:
        self._lows: list[list[int]] = [[]]
        self._items: list[list[_Rectangle]] = [[]]
        self._heads: list[int] = []

    def _block(self, low: int) -> int:
        return bisect_left(self._heads, low + 1)

    def overlapping(self, new: _Rectangle) -> _Rectangle | None:
        """A member that shares an address with `new`: the last one below its end, or none."""
        block = self._block(new.high - 1)
        while block >= 0:
            at = bisect_left(self._lows[block], new.high) - 1
            if at >= 0:
                below = self._items[block][at]
                return below if below.high > new.low else None
            block -= 1
        return None

    def add(self, new: _Rectangle) -> None:
        block = self._block(new.low)
        lows, items = self._lows[block], self._items[block]
        at = bisect_left(lows, new.low)
        lows.insert(at, new.low)
        items.insert(at, new)
        if len(lows) > 2 * _BLOCK:
            self._lows[block : block + 1] = [lows[:_BLOCK], lows[_BLOCK:]]
            self._items[block : block + 1] = [items[:_BLOCK], items[_BLOCK:]]
            self._heads.insert(block, lows[_BLOCK])

    def discard(self, old: _Rectangle) -> None:
        block = self._block(old.low)
        at = bisect_left(self._lows[block], old.low)
        items = self._items[block]
        if at < len(items) and items[at] is old:
            del items[at], self._lows[block][at]
        if not items and self._heads:
            del self._items[block], self._lows[block], self._heads[max(block - 1, 0)]
