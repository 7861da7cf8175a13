"""The shared-object family: buffers are handed whole to one tenant after another.

A GPU texture, a tensor handle or an allocator block cannot be cut in two, so here a plan is
an assignment of buffers to objects; an object is as large as its largest tenant and the cost
is the sum of object sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from peakfold.errors import TimeLimit, UsageError
from peakfold.packing.conflicts import Neighbours
from peakfold.packing.deadline import Deadline
from peakfold.packing.objects.crowds import positional_maxima
from peakfold.packing.objects.strategies import TENANCIES, in_order
from peakfold.packing.objects.tenants import Assignment, Records
from peakfold.packing.problem import Problem

__all__ = ["OBJECT_STRATEGIES", "Assignment", "assign_objects", "assign_related", "objects_bound"]

OBJECT_STRATEGIES: tuple[str, ...] = (*TENANCIES, "best")

# Strategies that take longer are left out of "best" on problems larger than this.
_LARGE = 2000
_FLOW_LARGE = 100


def assign_objects(
    problem: Problem, strategy: str = "best", deadline: Deadline | None = None
) -> Assignment:
    """Assign buffers to shared objects.

    Args:
        problem: buffers; a buffer of several pieces counts from its first to its last step.
        strategy: one of `OBJECT_STRATEGIES`; ``best`` keeps the smallest total of those that are
            quick enough for so many buffers.
        deadline: when to end; what is found by then, or by ``in-order``, is the result, and
            says that it is not `complete`. None by default.

    Raises:
        UsageError: unknown strategy.

    Example:
        >>> p = Problem.of([0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [16, 8, 64, 32, 8])
        >>> assign_objects(p, "improved").ids, assign_objects(p).total
        ((0, 1, 0, 1, 0), 96)
    """
    if strategy not in OBJECT_STRATEGIES:
        known = ", ".join(OBJECT_STRATEGIES)
        raise UsageError(f"no object strategy {strategy!r}", hint=f"known: {known}")
    records, limit = Records.of(problem), deadline or Deadline.never()
    if strategy != "best":
        try:
            return TENANCIES[strategy](records, limit)
        except TimeLimit:
            return replace(in_order(records, limit), complete=False)
    names = ["by-size", "by-breadth"]
    names += ["improved"] if records.count <= _LARGE else []
    names += ["min-cost-flow"] if records.count <= _FLOW_LARGE else []
    best, bound = in_order(records, limit), objects_bound(problem)
    try:
        for name in names:
            if best.total <= bound:
                break
            best = min(best, TENANCIES[name](records, limit), key=lambda found: found.total)
    except TimeLimit:
        return replace(best, complete=False)
    return best


def objects_bound(problem: Problem) -> int:
    """No assignment is smaller: the sum of the positional maxima.

    At a step with k live buffers any plan has k distinct objects that hold them, so its
    i-th largest object is at least the i-th largest live size, at every step.

    Example:
        >>> objects_bound(Problem.of([0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [16, 8, 64, 32, 8]))
        96
    """
    return sum(positional_maxima(*Records.of(problem).lists()))


def assign_related(
    size: Sequence[int], pairs: ArrayLike, deadline: Deadline | None = None
) -> tuple[list[int], bool]:
    """Shared objects under a conflict relation: largest first, into the tightest free one.

    Args:
        size: (n,) bytes.
        pairs: (k, 2) buffers that may be needed at once.
        deadline: when to end; what is left by then gets objects of its own. None by default.

    Returns:
        (n,) object of each buffer, and whether there was time for all. An object is as large as
        its largest tenant.

    Example:
        >>> assign_related([8, 4, 8], [(0, 1), (1, 2)])
        ([0, 1, 0], True)
    """
    limit, n = deadline or Deadline.never(), len(size)
    related = Problem.of(np.zeros(n), np.ones(n), np.ones(n), conflicts=pairs)
    near = Neighbours.of(related)
    ids = np.full(n, -1, dtype=np.int64)
    objects, complete = 0, True
    for buffer in sorted(range(n), key=lambda b: (-size[b], b)):
        complete = complete and not limit.expired()
        free = np.ones(objects if complete else 0, dtype=np.bool_)
        taken = ids[near.beside(buffer)] if complete else ids[:0]
        free[taken[taken >= 0]] = False
        # Objects are opened largest first, so the last one free is the tightest that fits.
        found = np.flatnonzero(free)
        ids[buffer] = found[-1] if len(found) else objects
        objects += not len(found)
    return ids.tolist(), complete
