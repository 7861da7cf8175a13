"""Compiled first fit for large problems: the tool above a few thousand buffers.

Only plain problems go through the kernel; pieces and explicit conflicts keep the readable form.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from peakfold.packing.exact.kernels.fit import FULL, LEVELS, NODES, fit
from peakfold.packing.heuristics.sections import Sections, sections
from peakfold.packing.problem import FREE, Int64, Problem

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One pass of first fit: the order, and whether the smallest gap is taken or the lowest."""

    name: str
    order: Int64
    best_gap: bool = False


class Fitter:
    """First fit on one problem again and again.

    Example:
        >>> p = Problem.of([0, 1, 2], [2, 3, 4], [100, 80, 60])
        >>> offsets, height = Fitter(p).place(np.array([0, 1, 2]))
        >>> offsets.tolist(), height
        ([0, 100, 0], 180)
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.sections: Sections = sections(problem)
        self.leaves = 1 << max(self.sections.count - 1, 0).bit_length()
        self._live = problem.alive
        self._pinned = np.flatnonzero((problem.fixed != FREE) & self._live)
        # Columns of one table are strided, and the kernel would be compiled for those again.
        self.columns = tuple(
            np.ascontiguousarray(column)
            for column in (self.sections.first, self.sections.last, problem.size, problem.align)
        )

    def place(
        self, order: Int64, *, best_gap: bool = True, limit: int = NO_LIMIT
    ) -> tuple[Int64, int]:
        """Offsets (n,) and height; the height is above `limit` if it was given up there."""
        free = order[(self.problem.fixed[order] == FREE) & self._live[order]]
        offsets = np.full(self.problem.buffers, FREE, dtype=np.int64)
        offsets[self._pinned] = self.problem.fixed[self._pinned]
        queue = np.concatenate([self._pinned, free]).astype(np.int64)
        pool = np.empty(16 * self.problem.buffers + 64, dtype=np.int64)
        lists = np.zeros((4 * self.leaves, 3), dtype=np.int64)
        scrap = np.full(LEVELS, -1), np.empty(NODES, np.int64), np.empty((NODES, 3), np.int64)
        at = end = 0
        while True:
            status, at, end = fit(
                *self.columns, queue, at, self.leaves, best_gap, limit,
                offsets, pool, end, lists, *scrap,
            )  # fmt: skip
            if status != FULL:
                break
            pool = np.concatenate([pool, np.empty_like(pool)])
        reached = offsets >= 0
        height = int((offsets[reached] + self.problem.size[reached]).max(initial=0))
        dead = ~self._live
        offsets[dead] = np.maximum(self.problem.fixed[dead], 0)
        return offsets, height

    def race(self, trials: Sequence[Trial], limit: int) -> list[tuple[Int64, int]]:
        """`place` for several trials at once, a thread each; all give up above `limit`.

        The kernel holds no lock of the interpreter. What one trial finds does not reach the
        others, so the results do not depend on which thread is quicker.
        """
        if len(trials) < 2:
            return [self.place(t.order, best_gap=t.best_gap, limit=limit) for t in trials]
        with ThreadPoolExecutor(len(trials)) as threads:
            return list(
                threads.map(lambda t: self.place(t.order, best_gap=t.best_gap, limit=limit), trials)
            )
