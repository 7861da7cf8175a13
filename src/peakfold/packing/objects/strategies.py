"""Strategies that hand objects from tenant to tenant; `objects` offers them by name.

They are those of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference" (2020, arXiv 2001.03288), of the TensorFlow Lite GPU delegate, and graph colouring as
register allocators do it (Chaitin 1982). Ties go to the lower index. All that take more than
n log n steps ask the deadline at each buffer and end with its error.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

import numpy as np

from peakfold.packing.deadline import Deadline
from peakfold.packing.heuristics.orders import range_minimum
from peakfold.packing.objects.crowds import positional_maxima
from peakfold.packing.objects.min_cost_flow import cheapest_reuse
from peakfold.packing.objects.tenants import Assignment, Bools, Objects, Records
from peakfold.packing.problem import Int64

_FAR = 1 << 62


def naive(records: Records, _deadline: Deadline) -> Assignment:
    """Every buffer an object of its own."""
    return Assignment(tuple(range(records.count)), tuple(records.size.tolist()), "naive")


def _in_sequence(
    records: Records, order: Iterable[int], strategy: str, deadline: Deadline
) -> Assignment:
    objects = Objects(records)
    for at in order:
        deadline.check()
        objects.give(at, objects.best(at))
    return objects.done(strategy)


class _Released:
    """Objects whose tenants are over by now, when buffers come by birth."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []

    def hand_over(self, stop: int, obj: int) -> None:
        heappush(self._busy, (stop, obj))

    def until(self, now: int) -> Iterable[int]:
        """Objects that become free, the first released first."""
        while self._busy and self._busy[0][0] <= now:
            yield heappop(self._busy)[1]


def _equality(records: Records, _deadline: Deadline) -> Assignment:
    objects, released = Objects(records), _Released()
    free: dict[int, list[int]] = {}
    for at in records.by_start:
        start, stop, size = (int(c[at]) for c in (records.start, records.stop, records.size))
        for obj in released.until(start):
            free[objects.size(obj)].append(obj)
        same = free.setdefault(size, [])
        # Last released, first handed on: its bytes are the likeliest to be in a cache.
        released.hand_over(stop, objects.give(at, same.pop() if same else None))
    return objects.done("equality")


def in_order(records: Records, _deadline: Deadline) -> Assignment:
    """First born first; the smallest sufficient free object, else the largest free one."""
    objects, released = Objects(records), _Released()
    free: list[tuple[int, int]] = []
    for at in records.by_start:
        start, stop, size = (int(c[at]) for c in (records.start, records.stop, records.size))
        for obj in released.until(start):
            insort(free, (objects.size(obj), obj))
        found = bisect_left(free, (size, -1))
        if found == len(free) and free:
            found = bisect_left(free, (free[-1][0], -1))
        obj = objects.give(at, free.pop(found)[1] if free else None)
        released.hand_over(stop, obj)
    return objects.done("in-order")


def _by_size(records: Records, deadline: Deadline) -> Assignment:
    order = np.argsort(-records.size, kind="stable").tolist()
    return _in_sequence(records, order, "by-size", deadline)


def _by_breadth(records: Records, deadline: Deadline) -> Assignment:
    """Steps by live bytes, inside a step by size.

    Between two births the live set only shrinks, so only those of births are looked at.
    """
    lives = records.start < records.stop
    times = np.unique(records.start[lives])
    low = np.searchsorted(times, records.start)
    high = np.where(lives, np.searchsorted(times, records.stop), low)
    change = np.zeros(len(times) + 1, dtype=np.int64)
    np.add.at(change, low, np.where(lives, records.size, 0))
    np.subtract.at(change, high, np.where(lives, records.size, 0))
    rank = np.empty(len(times), dtype=np.int64)
    rank[np.argsort(-np.cumsum(change[:-1]), kind="stable")] = np.arange(len(times))
    first = np.full(records.count, len(times), dtype=np.int64)
    first[lives] = range_minimum(rank, low[lives], high[lives])
    order = np.lexsort((np.where(lives, -records.size, 0), first)).tolist()
    return _in_sequence(records, order, "by-breadth", deadline)


def _improved(records: Records, deadline: Deadline) -> Assignment:
    """Stages by positional maxima; inside one, the pair with the least idle time goes first."""
    maxima = np.array(positional_maxima(*records.lists()), dtype=np.int64)
    stage = np.searchsorted(-maxima, -records.size, side="right")
    objects, gaps = Objects(records), _Gaps(records)
    waiting = np.ones(records.count, dtype=np.bool_)
    while waiting.any():
        deadline.check()
        left = np.flatnonzero(waiting)
        for key in (stage, gaps.least, -records.size):
            left = left[key[left] == key[left].min()]
        at = int(left[0])
        host = int(gaps.nearest[at])
        waiting[at] = False
        gaps.told(at, objects.give(at, host if host >= 0 else None), waiting)
    return objects.done("improved")


class _Gaps:
    """Steps between every buffer and the nearest tenant of every object.

    Attributes:
        least: (n,) the fewest steps to an object that is free for a buffer, `_FAR` for none.
        nearest: (n,) that object, of equals the first; -1 for none.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self.least = np.full(records.count, _FAR, dtype=np.int64)
        self.nearest = np.full(records.count, -1, dtype=np.int64)
        self._rows: list[Int64] = []

    def told(self, at: int, obj: int, waiting: Bools) -> None:
        """Buffer `at` has become a tenant of `obj`."""
        start, stop = self.records.start, self.records.stop
        gap = np.maximum(start[at] - stop, start - stop[at])
        gap[self.records.beside(at)] = _FAR
        if obj == len(self._rows):
            self._rows.append(gap)
        else:
            row = self._rows[obj]
            gap = self._rows[obj] = np.where(
                (row == _FAR) | (gap == _FAR), _FAR, np.minimum(row, gap)
            )
        lost = waiting & (self.nearest == obj) & (gap == _FAR)
        if lost.any():
            table = np.array([row[lost] for row in self._rows])
            best = table.argmin(axis=0)
            self.least[lost] = least = table[best, np.arange(table.shape[1])]
            self.nearest[lost] = np.where(least == _FAR, -1, best)
        nearer = (gap < self.least) | ((gap == self.least) & (obj < self.nearest))
        self.least[nearer] = gap[nearer]
        self.nearest[nearer] = obj


def _min_cost_flow(records: Records, deadline: Deadline) -> Assignment:
    before = cheapest_reuse(*records.lists(), deadline.check)
    objects = Objects(records)
    for at in records.by_start:
        donor = before[at]
        objects.give(at, None if donor is None else int(objects.ids[donor]))
    return objects.done("min-cost-flow")


def _coloring(records: Records, deadline: Deadline) -> Assignment:
    """Interference-graph colouring as register allocators do it (Chaitin 1982).

    The least crowded buffer is taken off the graph again and again; colours are given in the
    reverse order. Lifetimes make an interval graph, where a buffer with a clique of neighbours
    always exists, so the number of objects is minimal; among free objects the best fit wins.
    """
    n = records.count
    degree = np.zeros(n, dtype=np.int64)
    for at in range(n):
        deadline.check()
        degree[at] = np.count_nonzero(records.beside(at)) - (records.start[at] < records.stop[at])
    stack: list[int] = []
    for _ in range(n):
        deadline.check()
        at = int(degree.argmin())
        stack.append(at)
        degree[records.beside(at)] -= 1
        degree[at] = _FAR
    return _in_sequence(records, stack[::-1], "coloring", deadline)


Strategy = Callable[[Records, Deadline], Assignment]
TENANCIES: Mapping[str, Strategy] = {
    "naive": naive,
    "equality": _equality,
    "in-order": in_order,
    "by-breadth": _by_breadth,
    "by-size": _by_size,
    "improved": _improved,
    "min-cost-flow": _min_cost_flow,
    "coloring": _coloring,
}
