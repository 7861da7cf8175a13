"""Placing buffers one by one without a conflict graph: the readable form.

The tree
    A segment tree over the sections of time. A piece that lives during a range of sections is
    stored at the O(log count) nodes that make up that range. Each node keeps two *coalesced
    unions* of occupied addresses: `cover` of the pieces stored at the node itself, and `touch`
    of all pieces stored at or below it. What a new piece can hit is then `touch` of the nodes
    of its own range plus `cover` of their ancestors. Memory is linear in the number of pieces
    (times log), where a conflict graph is quadratic.

A union is a flat sorted list ``[a0, b0, a1, b1, ...]`` of half-open address ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import chain

import numpy as np

from peakfold.packing.conflicts import Neighbours
from peakfold.packing.deadline import Check, endless
from peakfold.packing.heuristics.sections import sections
from peakfold.packing.problem import FREE, Int64, Problem

_COLUMNS = 160
"""Edges of taken addresses from which columns are quicker than a loop."""


class AddressTree:
    """Which addresses are taken when; see the module text.

    Example:
        >>> tree = AddressTree(4)
        >>> tree.insert(0, 2, 100, 116)
        >>> tree.taken(1, 3), tree.taken(2, 4)
        ([[100, 116]], [])
    """

    def __init__(self, count: int) -> None:
        self._leaves = 1 << max(count - 1, 0).bit_length()
        self._cover: list[list[int]] = [[] for _ in range(2 * self._leaves)]
        self._touch: list[list[int]] = [[] for _ in range(2 * self._leaves)]

    def nodes(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """The nodes that make up a range of sections, and all their proper ancestors."""
        left, right, own = first + self._leaves, last + self._leaves, []
        while left < right:
            if left & 1:
                own.append(left)
                left += 1
            if right & 1:
                right -= 1
                own.append(right)
            left >>= 1
            right >>= 1
        above: list[int] = []
        for node in own:
            node >>= 1
            while node and node not in above:
                above.append(node)
                node >>= 1
        return own, above

    def insert(self, first: int, last: int, low: int, high: int) -> None:
        """Take addresses ``[low, high)`` during sections ``[first, last)``."""
        own, above = self.nodes(first, last)
        for node in own:
            _add(self._cover[node], low, high)
            _add(self._touch[node], low, high)
        for node in above:
            _add(self._touch[node], low, high)

    def taken(self, first: int, last: int) -> list[list[int]]:
        """Unions that together are all addresses taken at some time in the range."""
        own, above = self.nodes(first, last)
        unions = [self._touch[node] for node in own] + [self._cover[node] for node in above]
        return [union for union in unions if union]


def _add(union: list[int], low: int, high: int) -> None:
    """Merge ``[low, high)`` into a union; touching ranges coalesce."""
    left, right = bisect_left(union, low), bisect_right(union, high)
    if left & 1:
        union[left:right] = () if right & 1 else (high,)
    else:
        union[left:right] = (low,) if right & 1 else (low, high)


def place(
    problem: Problem,
    order: Iterable[int],
    *,
    best_gap: bool = True,
    check: Check = endless,
) -> Int64:
    """Offsets (n,) from placing buffers one by one, pinned ones first.

    Each buffer goes to the smallest gap that holds it (`best_gap`, the TFLite arena planner's
    rule: the gap before the first block counts, equal gaps go to the lowest; after the last
    block if no gap fits) or to the lowest legal offset.

    Args:
        problem: the buffers; all are placed, those missing in `order` at their pin or at 0.
        order: indices of buffers.
        best_gap: smallest gap instead of lowest.
        check: polled at each buffer; ends the pass by raising.

    Example:
        >>> p = Problem.of([0, 1, 2], [2, 3, 4], [100, 80, 60])
        >>> place(p, [0, 1, 2]).tolist()
        [0, 100, 0]
    """
    if problem.conflicts is not None:
        return _place_related(problem, order, best_gap, check)
    found = sections(problem)
    tree = AddressTree(found.count)
    first, last = found.first.tolist(), found.last.tolist()
    lower, upper = problem.lower.tolist(), problem.upper.tolist()
    csr, fixed, align = problem.first.tolist(), problem.fixed.tolist(), problem.align.tolist()
    live = (found.last > found.first).tolist()
    offsets = np.maximum(problem.fixed, 0).tolist()
    pinned = np.flatnonzero(problem.fixed != FREE).tolist()
    for b in [*pinned, *(b for b in order if fixed[b] == FREE)]:
        check()
        pieces = [p for p in range(csr[b], csr[b + 1]) if live[p]]
        if fixed[b] == FREE:
            taken = [list(chain.from_iterable(tree.taken(first[p], last[p]))) for p in pieces]
            # The buffer's offset may not lie strictly between what each pair of edges gives.
            if sum(map(len, taken)) > _COLUMNS:
                spans = [np.array(edges, dtype=np.int64) for edges in taken]
                begin = [span[::2] - upper[p] for span, p in zip(spans, pieces, strict=True)]
                end = [span[1::2] - lower[p] for span, p in zip(spans, pieces, strict=True)]
                offsets[b] = _choose_of(
                    np.concatenate(begin), np.concatenate(end), align[b], best_gap
                )
            else:
                offsets[b] = _choose(
                    [
                        (a - upper[p], z - lower[p])
                        for edges, p in zip(taken, pieces, strict=True)
                        for a, z in zip(edges[::2], edges[1::2], strict=True)
                    ],
                    align[b],
                    best_gap,
                )
        for p in pieces:
            tree.insert(first[p], last[p], offsets[b] + lower[p], offsets[b] + upper[p])
    return np.array(offsets, dtype=np.int64)


def stack(problem: Problem) -> Int64:
    """Offsets (n,) with every free buffer in rows of its own, above all pins: always legal.

    Example:
        >>> stack(Problem.of([0, 1, 5], [2, 3, 6], [100, 80, 60], align=64)).tolist()
        [0, 128, 256]
    """
    free = problem.fixed == FREE
    above = int((problem.fixed + problem.size)[~free].max(initial=0))
    offsets = problem.fixed.tolist()
    for b in np.flatnonzero(free).tolist():
        align = int(problem.align[b])
        offsets[b] = -(-above // align) * align
        above = offsets[b] + int(problem.size[b])
    return np.array(offsets, dtype=np.int64)


def _place_related(problem: Problem, order: Iterable[int], best_gap: bool, check: Check) -> Int64:
    """`place` for an explicit conflict relation: looks at the conflicting buffers only."""
    near = Neighbours.of(problem)
    # Living pieces, those of a buffer together.
    spans = np.flatnonzero(problem.pieces_alive)
    first = np.searchsorted(problem.owner[spans], np.arange(problem.buffers + 1))
    lower, upper = problem.lower[spans], problem.upper[spans]
    single = bool((np.diff(first) <= 1).all())
    offsets = np.maximum(problem.fixed, 0)
    placed = problem.fixed != FREE
    for b in order:
        own = range(first[b], first[b + 1])
        if placed[b] or not own:
            continue
        check()
        others = near.beside(b)
        others = others[placed[others]]
        held = first[others] if single else _ranges(first[others], first[others + 1])
        whose = others if single else np.repeat(others, np.diff(first)[others])
        low, high = offsets[whose] + lower[held], offsets[whose] + upper[held]
        offsets[b] = _choose_of(
            np.concatenate([low - upper[p] for p in own]),
            np.concatenate([high - lower[p] for p in own]),
            int(problem.align[b]),
            best_gap,
        )
        placed[b] = True
    return offsets


def _ranges(first: Int64, last: Int64) -> Int64:
    """All numbers of several ranges ``[first, last)``, one range behind the other."""
    length = last - first
    begin = np.cumsum(length) - length
    numbers: Int64 = np.arange(length.sum()) - np.repeat(begin - first, length)
    return numbers


def _choose_of(a: Int64, z: Int64, align: int, best_gap: bool) -> int:
    """`_choose` by columns, for many intervals at once."""
    order = np.lexsort((z, a))
    a, z = a[order], z[order]
    free = np.concatenate([[0], np.maximum.accumulate(np.maximum(z, 0))])
    offset = -(-free // align) * align
    gap = np.flatnonzero((a >= free[:-1]) & (offset[:-1] <= a))
    if not len(gap):
        return int(offset[-1])
    chosen = gap[np.argmin((a - free[:-1])[gap])] if best_gap else gap[0]
    return int(offset[chosen])


def _choose(blocked: list[tuple[int, int]], align: int, best_gap: bool) -> int:
    """The offset, given open intervals ``(a, z)`` it must avoid."""
    blocked.sort()
    free, chosen, slack = 0, -1, -1
    for a, z in blocked:
        if a >= free and (chosen < 0 or a - free < slack):
            offset = -(-free // align) * align
            if offset <= a:
                chosen, slack = offset, a - free
                if not best_gap:
                    break
        free = max(free, z)
    return chosen if chosen >= 0 else -(-free // align) * align
