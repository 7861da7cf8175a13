"""Compiled first fit for large problems, many orders: the tool above a few thousand buffers.

Only plain problems go through the kernel; pieces and explicit conflicts keep the readable form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from peakfold.packing.greedy import (
    lifetime,
    order_by_area,
    order_by_length,
    order_by_load,
    order_by_size,
    peak_section,
)
from peakfold.packing.kernels.fit import fit
from peakfold.packing.problem import FREE, Int64, Problem
from peakfold.packing.sections import Sections, sections

NO_LIMIT = 1 << 62


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
        self._live = problem.alive
        self._pinned = np.flatnonzero(problem.fixed != FREE)

    def place(
        self, order: Int64, *, best_gap: bool = True, limit: int = NO_LIMIT
    ) -> tuple[Int64, int]:
        """Offsets (n,) and height; the height is above `limit` if it was given up there."""
        free = order[(self.problem.fixed[order] == FREE) & self._live[order]]
        pinned = self._pinned[self._live[self._pinned]]
        problem, found = self.problem, self.sections
        offsets, height = fit(
            found.first, found.last, problem.size, problem.align, problem.fixed,
            np.concatenate([pinned, free]), found.count, best_gap, limit,
        )  # fmt: skip
        offsets[self._pinned] = problem.fixed[self._pinned]
        return offsets, int(height)

    def reinsert(self, offsets: Int64, moved: Int64, *, best_gap: bool, limit: int) -> Int64 | None:
        """Take `moved` out and put them back in that order; None if that goes above `limit`."""
        problem, found = self.problem, self.sections
        fixed = offsets.copy()
        fixed[moved] = problem.fixed[moved]
        rest = np.setdiff1d(np.flatnonzero(self._live), moved)
        order = np.concatenate([rest, moved[self._live[moved]]])
        made, height = fit(
            found.first, found.last, problem.size, problem.align, fixed,
            order, found.count, best_gap, limit,
        )  # fmt: skip
        if height > limit:
            return None
        made[~self._live] = offsets[~self._live]
        return np.asarray(made, dtype=np.int64)


def orders(problem: Problem, seed: int) -> Iterator[tuple[str, Int64, bool]]:
    """Endless (name, order, best gap): the plain orders first, then products with noise.

    A product order sorts by ``size * length^a * load^b``, `load` being the heaviest section of
    the buffer, times a log-normal factor: the family that gave the lowest peaks on the large
    instances of the field.
    """
    for name, order in _plain_orders():
        found = order(problem)
        yield f"fast-{name}-first", found, False
        yield f"fast-{name}", found, True
    size = np.maximum(problem.size, 1).astype(np.float64)
    length = np.maximum(lifetime(problem), 1).astype(np.float64)
    load = peak_section(problem)
    rng = np.random.default_rng(seed)
    while True:
        a, b = rng.uniform(0, 1.5), rng.choice([0.0, 0.0, 1.0, 4.0, 16.0])
        noise = np.exp(rng.choice([0.0, 0.02, 0.1]) * rng.standard_normal(problem.buffers))
        key = size * length**a * (load / max(load.max(initial=0), 1)) ** b * noise
        yield (
            "fast-product",
            np.argsort(-key, kind="stable").astype(np.int64),
            bool(rng.integers(2)),
        )


def _plain_orders() -> tuple[tuple[str, Callable[[Problem], Int64]], ...]:
    return (
        ("size", order_by_size),
        ("load", order_by_load),
        ("length", order_by_length),
        ("area", order_by_area),
    )
