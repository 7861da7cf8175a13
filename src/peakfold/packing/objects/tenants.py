"""Who uses which object: lifetimes as columns, and objects under construction.

What is free for a lifetime is asked of all tenants at once, by columns: a few passes over n
numbers a question, where looking at every object in turn took most of a plan's time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peakfold.packing.problem import Int64, Problem

Bools = NDArray[np.bool_]
_HUGE = 1 << 62


@dataclass(frozen=True, slots=True)
class Assignment:
    """Objects and who uses them.

    Attributes:
        ids: object of each buffer, in buffer order.
        sizes: bytes of each object.
        strategy: name of the algorithm.
        complete: False where a deadline ended the search for a smaller one.
    """

    ids: tuple[int, ...]
    sizes: tuple[int, ...]
    strategy: str
    complete: bool = True

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


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Lifetimes (hull over pieces) and sizes, (n,) each."""

    start: Int64
    stop: Int64
    size: Int64

    @classmethod
    def of(cls, problem: Problem) -> Records:
        """The buffers of a problem."""
        first = problem.first[:-1]
        if problem.buffers == 0:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(nothing, nothing, nothing)
        start = np.minimum.reduceat(problem.start, first)
        stop = np.maximum.reduceat(problem.stop, first)
        return cls(start, stop, problem.size)

    @property
    def count(self) -> int:
        """Number of buffers."""
        return len(self.size)

    def lists(self) -> tuple[list[int], list[int], list[int]]:
        """The three columns as lists."""
        return self.start.tolist(), self.stop.tolist(), self.size.tolist()

    @property
    def by_start(self) -> list[int]:
        """Buffers, first born first, ties by index."""
        order: list[int] = np.argsort(self.start, kind="stable").tolist()
        return order

    def beside(self, at: int) -> Bools:
        """(n,) which buffers live at a step of buffer `at`, itself included.

        Empty lifetimes are beside nothing.
        """
        start, stop = self.start, self.stop
        alike: Bools = np.maximum(start, start[at]) < np.minimum(stop, stop[at])
        return alike


class Objects:
    """Objects under construction.

    Example:
        >>> records = Records.of(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))
        >>> objects = Objects(records)
        >>> for at in range(3):
        ...     _ = objects.give(at, objects.best(at))
        >>> objects.done("in-order").sizes
        (64, 8)
    """

    def __init__(self, records: Records) -> None:
        n = records.count
        self.records = records
        self.ids = np.full(n, -1, dtype=np.int64)
        self.count = 0
        self._size = np.zeros(n, dtype=np.int64)
        # The tenants so far, one behind the other; those that never live are in nobody's way.
        self._start = np.empty(n, dtype=np.int64)
        self._stop = np.empty(n, dtype=np.int64)
        self._of = np.empty(n, dtype=np.int64)
        self._tenants = 0

    def size(self, obj: int) -> int:
        """Bytes of an object so far."""
        return int(self._size[obj])

    def best(self, at: int) -> int | None:
        """The smallest sufficient free object, else the largest free one, which will grow.

        Of equals the first; `None` when no object is free.
        """
        start, stop = self.records.start[at], self.records.stop[at]
        free = np.ones(self.count, dtype=np.bool_)
        if start < stop:
            told = slice(self._tenants)
            free[self._of[told][(self._start[told] < stop) & (self._stop[told] > start)]] = False
        if not free.any():
            return None
        have = self._size[: self.count]
        enough = free & (have >= self.records.size[at])
        if enough.any():
            return int(np.where(enough, have, _HUGE).argmin())
        return int(np.where(free, have, -1).argmax())

    def give(self, at: int, obj: int | None) -> int:
        """Make buffer `at` a tenant of `obj`, or of a new object; gives the object."""
        if obj is None:
            obj = self.count
            self.count += 1
        self._size[obj] = max(self._size[obj], self.records.size[at])
        self.ids[at] = obj
        start, stop = self.records.start[at], self.records.stop[at]
        if start < stop:
            told = self._tenants
            self._start[told], self._stop[told], self._of[told] = start, stop, obj
            self._tenants += 1
        return obj

    def done(self, strategy: str) -> Assignment:
        """The finished assignment."""
        return Assignment(
            tuple(self.ids.tolist()), tuple(self._size[: self.count].tolist()), strategy
        )
