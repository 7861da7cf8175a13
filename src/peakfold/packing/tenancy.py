"""Strategies that hand objects from tenant to tenant; `objects` offers them by name.

They are those of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference" (2020, arXiv 2001.03288), of the TensorFlow Lite GPU delegate, and graph colouring as
register allocators do it (Chaitin 1982). Ties go to the lower index.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from peakfold.interval import Interval
from peakfold.packing.flow import cheapest_reuse
from peakfold.packing.problem import Problem


@dataclass(frozen=True, slots=True)
class Assignment:
    """Objects and who uses them.

    Attributes:
        ids: object of each buffer, in buffer order.
        sizes: bytes of each object.
        strategy: name of the algorithm.
    """

    ids: tuple[int, ...]
    sizes: tuple[int, ...]
    strategy: str

    @property
    def total(self) -> int:
        """Bytes of all objects together."""
        return sum(self.sizes)

    def offsets(self) -> tuple[int, ...]:
        """Offset of each buffer when the objects lie one behind the other in index order.

        Example:
            >>> Assignment((1, 0, 1), (16, 8), "x").offsets()
            (16, 0, 16)
        """
        starts = [0, *np.cumsum(self.sizes, dtype=np.int64).tolist()]
        return tuple(starts[i] for i in self.ids)


@dataclass(frozen=True, slots=True)
class Records:
    """Lifetimes (hull over pieces) and sizes as plain lists."""

    start: list[int]
    stop: list[int]
    size: list[int]

    @classmethod
    def of(cls, problem: Problem) -> Records:
        """The buffers of a problem."""
        first = problem.first[:-1]
        if problem.buffers == 0:
            return cls([], [], [])
        start = np.minimum.reduceat(problem.start, first)
        stop = np.maximum.reduceat(problem.stop, first)
        return cls(start.tolist(), stop.tolist(), problem.size.tolist())

    def life(self, at: int) -> Interval:
        """Steps of one buffer."""
        return Interval(self.start[at], self.stop[at])


class _Objects:
    """Objects under construction: sizes, and tenants' lifetimes sorted by time."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.sizes: list[int] = []
        self.lives: list[list[Interval]] = []
        self.ids = [-1] * len(records.size)

    def idle(self, obj: int, life: Interval) -> int | None:
        """Steps to the nearest tenant of an object, or `None` when one overlaps `life`."""
        lives = self.lives[obj]
        at = bisect_left(lives, life)
        around = lives[max(at - 1, 0) : at + 1]
        if any(life.overlaps(other) for other in around):
            return None
        gaps = [max(o.start - life.stop, life.start - o.stop) for o in around]
        return min(gaps, default=0)

    def best(self, at: int) -> int | None:
        """The smallest sufficient free object, else the largest free one, which will grow."""
        size, life = self.records.size[at], self.records.life(at)
        choice: tuple[bool, int, int] | None = None
        for obj, have in enumerate(self.sizes):
            if self.idle(obj, life) is None:
                continue
            key = (have < size, have if have >= size else -have, obj)
            if choice is None or key < choice:
                choice = key
        return None if choice is None else choice[2]

    def give(self, at: int, obj: int | None) -> None:
        """Make buffer `at` a tenant of `obj`, or of a new object."""
        if obj is None:
            obj = len(self.sizes)
            self.sizes.append(0)
            self.lives.append([])
        self.sizes[obj] = max(self.sizes[obj], self.records.size[at])
        insort(self.lives[obj], self.records.life(at))
        self.ids[at] = obj

    def done(self, strategy: str) -> Assignment:
        return Assignment(tuple(self.ids), tuple(self.sizes), strategy)


def naive(records: Records) -> Assignment:
    """Every buffer an object of its own."""
    return Assignment(tuple(range(len(records.size))), tuple(records.size), "naive")


def _in_sequence(records: Records, order: list[int], strategy: str) -> Assignment:
    objects = _Objects(records)
    for at in order:
        objects.give(at, objects.best(at))
    return objects.done(strategy)


def _equality(records: Records) -> Assignment:
    objects = _Objects(records)
    by_size: dict[int, list[int]] = {}
    for at in _by_start(records):
        same = by_size.setdefault(records.size[at], [])
        life = records.life(at)
        free = [o for o in same if objects.idle(o, life) is not None]
        # Last released, first handed on: its bytes are the likeliest to be in a cache.
        obj = max(free, key=lambda o: (objects.lives[o][-1].stop, o), default=None)
        objects.give(at, obj)
        if obj is None:
            same.append(objects.ids[at])
    return objects.done("equality")


def _by_start(records: Records) -> list[int]:
    return sorted(range(len(records.size)), key=lambda i: (records.start[i], i))


def _in_order(records: Records) -> Assignment:
    return _in_sequence(records, _by_start(records), "in-order")


def _by_size(records: Records) -> Assignment:
    order = sorted(range(len(records.size)), key=lambda i: (-records.size[i], i))
    return _in_sequence(records, order, "by-size")


def live_sets(start: list[int], stop: list[int]) -> list[list[int]]:
    """Buffers alive at each step that a lifetime starts at, in step order.

    Between two starts the live set only shrinks, so these are all the maximal ones.

    Example:
        >>> live_sets([0, 1], [2, 3])
        [[0], [0, 1]]
    """
    order = sorted((i for i in range(len(start)) if start[i] < stop[i]), key=lambda i: start[i])
    live: list[int] = []
    sets: list[list[int]] = []
    for at, i in enumerate(order):
        live = [j for j in live if stop[j] > start[i]]
        live.append(i)
        if at + 1 == len(order) or start[order[at + 1]] != start[i]:
            sets.append(sorted(live))
    return sets


def _by_breadth(records: Records) -> Assignment:
    sets = live_sets(records.start, records.stop)
    sets.sort(key=lambda live: -sum(records.size[i] for i in live))
    order: dict[int, None] = {}
    for live in sets:
        order.update(dict.fromkeys(sorted(live, key=lambda i: (-records.size[i], i))))
    order.update(dict.fromkeys(range(len(records.size))))
    return _in_sequence(records, list(order), "by-breadth")


def positional_maxima(records_start: list[int], stop: list[int], size: list[int]) -> list[int]:
    """Largest, second largest, ... live size over all steps (Pisarchyk and Lee, section 4.2)."""
    maxima: list[int] = []
    for live in live_sets(records_start, stop):
        for at, value in enumerate(sorted((size[i] for i in live), reverse=True)):
            if at == len(maxima):
                maxima.append(0)
            maxima[at] = max(maxima[at], value)
    return maxima


def _improved(records: Records) -> Assignment:
    """Stages by positional maxima; inside one, the pair with the least idle time goes first."""
    maxima = positional_maxima(records.start, records.stop, records.size)
    stage = [sum(1 for value in maxima if value >= size) for size in records.size]
    objects = _Objects(records)
    waiting = set(range(len(records.size)))
    # (idle time, object) of the best object so far; no object counts as infinitely far.
    far = (1 << 62, -1)
    nearest: dict[int, tuple[int, int]] = dict.fromkeys(waiting, far)
    while waiting:
        at = min(waiting, key=lambda i: (stage[i], nearest[i][0], -records.size[i], i))
        objects.give(at, nearest[at][1] if nearest[at] != far else None)
        waiting.remove(at)
        changed = objects.ids[at]
        for other in waiting:
            gap = objects.idle(changed, records.life(other))
            if gap is not None and (gap, changed) < nearest[other]:
                nearest[other] = (gap, changed)
            elif gap is None and nearest[other][1] == changed:
                nearest[other] = _nearest(objects, records.life(other), far)
    return objects.done("improved")


def _nearest(objects: _Objects, life: Interval, far: tuple[int, int]) -> tuple[int, int]:
    best = far
    for obj in range(len(objects.sizes)):
        gap = objects.idle(obj, life)
        if gap is not None and (gap, obj) < best:
            best = (gap, obj)
    return best


def _min_cost_flow(records: Records) -> Assignment:
    before = cheapest_reuse(records.start, records.stop, records.size)
    objects = _Objects(records)
    for at in _by_start(records):
        donor = before[at]
        objects.give(at, None if donor is None else objects.ids[donor])
    return objects.done("min-cost-flow")


def _coloring(records: Records) -> Assignment:
    """Interference-graph colouring as register allocators do it (Chaitin 1982).

    The least crowded buffer is taken off the graph again and again; colours are given in the
    reverse order. Lifetimes make an interval graph, where a buffer with a clique of neighbours
    always exists, so the number of objects is minimal; among free objects the best fit wins.
    """
    n = len(records.size)
    near: list[set[int]] = [set() for _ in range(n)]
    for live in live_sets(records.start, records.stop):
        for buffer in live:
            near[buffer].update(live)
    for buffer in range(n):
        near[buffer].discard(buffer)
    left = [set(others) for others in near]
    heap = [(len(left[buffer]), buffer) for buffer in range(n)]
    heapify(heap)
    gone = [False] * n
    stack: list[int] = []
    while heap:
        degree, buffer = heappop(heap)
        if gone[buffer] or degree != len(left[buffer]):
            continue
        gone[buffer] = True
        stack.append(buffer)
        for other in left[buffer]:
            left[other].discard(buffer)
            heappush(heap, (len(left[other]), other))
    return _in_sequence(records, stack[::-1], "coloring")


Strategy = Callable[[Records], Assignment]
TENANCIES: Mapping[str, Strategy] = {
    "naive": naive,
    "equality": _equality,
    "in-order": _in_order,
    "by-breadth": _by_breadth,
    "by-size": _by_size,
    "improved": _improved,
    "min-cost-flow": _min_cost_flow,
    "coloring": _coloring,
}
