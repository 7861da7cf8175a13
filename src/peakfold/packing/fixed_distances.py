"""Buffers that must lie at fixed distances from each other: aliases, parts of one block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from peakfold.errors import UsageError
from peakfold.packing.problem import FREE, Int64, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """A problem whose buffers are groups of another's.

    Attributes:
        problem: one buffer a group, its members as pieces.
        group: (n,) group of each original buffer.
        distance: (n,) bytes between the start of the group and that of the buffer.
    """

    problem: Problem
    group: Int64
    distance: Int64

    def spread(self, offsets: Int64) -> Int64:
        """(n,) offsets of the original buffers from those of the groups."""
        return offsets[self.group] + self.distance


def grouped(problem: Problem, group: ArrayLike, distance: ArrayLike = 0) -> Grouped:
    """Tie buffers together; members of a group may overlap each other in time and address.

    Args:
        problem: the buffers.
        group: (n,) any integer labels; equal labels are one group.
        distance: (n,) bytes from the start of the group; 0 = exact aliases.

    Raises:
        UsageError: wrong lengths, a negative distance, members whose pins or alignments
            contradict each other, or an explicit conflict relation.

    Example:
        >>> p = Problem.of([0, 2, 0], [2, 4, 4], [8, 16, 4])
        >>> tied = grouped(p, [0, 0, 1])
        >>> tied.problem.size.tolist(), tied.spread(np.array([4, 0])).tolist()
        ([16, 4], [4, 4, 0])
    """
    if problem.conflicts is not None:
        raise UsageError("groups need lifetimes, not an explicit conflict relation")
    n = problem.buffers
    away = np.broadcast_to(np.asarray(distance, dtype=np.int64), (n,)).copy()
    labels, number = np.unique(np.asarray(group, dtype=np.int64), return_inverse=True)
    if len(number) != n or (away < 0).any():
        raise UsageError("a label and a distance of 0 or more are expected for each buffer")
    size = np.zeros(len(labels), dtype=np.int64)
    np.maximum.at(size, number, away + problem.size)
    align, fixed = np.ones(len(labels), dtype=np.int64), np.full(len(labels), FREE)
    for b in range(n):
        g = number[b]
        align[g] = np.lcm(align[g], problem.align[b])
        if away[b] % problem.align[b]:
            raise UsageError("distance breaks the alignment", where=problem.name(b))
        if problem.fixed[b] != FREE:
            pin = problem.fixed[b] - away[b]
            if pin < 0 or fixed[g] not in (FREE, pin):
                raise UsageError("pins contradict the distances", where=problem.name(b))
            fixed[g] = pin
    order = np.argsort(number[problem.owner], kind="stable")
    shift = away[problem.owner[order]]
    counts = np.bincount(number[problem.owner], minlength=len(labels))
    made = Problem.of_pieces(
        size=size,
        align=align,
        fixed=fixed,
        first=np.concatenate([[0], np.cumsum(counts)]),
        start=problem.start[order],
        stop=problem.stop[order],
        lower=problem.lower[order] + shift,
        upper=problem.upper[order] + shift,
    )
    return Grouped(made, number.astype(np.int64), away)
