"""Incremental replanning: start from an old packing and move as few buffers as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakfold.arguments import real, whole
from peakfold.errors import UsageError
from peakfold.packing.conflicts import neighbours
from peakfold.packing.problem import FREE, Int64, Packing, Problem, column, need_problem
from peakfold.packing.solve import pack
from peakfold.packing.verify import violations

ROUNDS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Replan:
    """A packing near an old one.

    Attributes:
        packing: the new packing.
        moved: (n,) whether a living buffer with an old offset lies elsewhere now.
    """

    packing: Packing
    moved: NDArray[np.bool_]


def replan(
    problem: Problem,
    old: ArrayLike,
    *,
    capacity: int | None = None,
    max_moves: int | None = None,
    time_limit: float = 5.0,
    seed: int = 0,
    on_compile: Callable[[], None] | None = None,
) -> Replan:
    """Pack again, leaving buffers where they were while that is legal and low enough.

    Old offsets that break a rule by now (a buffer grew, lives longer, is pinned elsewhere) are
    given up, smaller buffers first. The rest is kept as pins. If the result is above the
    capacity, the buffers that live together with those that end above it are let go, too, in
    widening rounds; the last round is free of the past.

    Args:
        problem: the buffers, pins of their own included.
        old: (n,) old byte offsets; `FREE` for new buffers.
        capacity: bytes that must be enough; None keeps whatever height comes out.
        max_moves: take no later round that moves more buffers than this. The first round, which
            moves what is no longer legal, is kept as the best known even if it moves more.
        time_limit: seconds for the whole.
        seed: of the randomised parts.
        on_compile: as for `pack`.

    Raises:
        UsageError: `old` has another length, or a number is out of range.
        CapacityTooSmall: proven that the capacity cannot be met, even by moving everything.

    Example:
        >>> p = Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64])
        >>> found = replan(p, [100, 0, FREE])
        >>> found.packing.offsets.tolist(), found.moved.tolist()
        ([100, 0, 8], [False, False, False])
    """
    need_problem(problem)
    past = column(old, "old")
    capacity = None if capacity is None else whole(capacity, "capacity")
    max_moves = None if max_moves is None else whole(max_moves, "max_moves")
    time_limit = real(time_limit, "time_limit", endless=True)
    if past.shape != (problem.buffers,):
        raise UsageError(f"{problem.buffers} old offsets expected, got {past.shape}")
    kept = _legal(problem, past)
    best: Packing | None = None
    for number in range(ROUNDS):
        if number == ROUNDS - 1:
            kept = np.full(problem.buffers, FREE, dtype=np.int64)
        trial = replace(problem, fixed=np.where(problem.fixed != FREE, problem.fixed, kept))
        last = not (kept != FREE).any()
        found = pack(
            trial,
            capacity=capacity if last else None,
            minimize=False,
            time_limit=time_limit / ROUNDS,
            seed=seed,
            on_compile=on_compile,
        )
        moves = int(_moved(problem, past, found.offsets).sum())
        if best is not None and max_moves is not None and moves > max_moves:
            break
        if best is None or found.height < best.height:
            best = found
        if last or capacity is None or found.height <= capacity:
            break
        kept = _let_go(problem, kept, found.offsets, capacity)
    if best is None:
        raise UsageError("no round of replanning was run")
    free = pack(problem, strategy="by-size").lower_bound
    packing = replace(best, lower_bound=min(free, best.height), optimal=best.height <= free)
    return Replan(packing, _moved(problem, past, packing.offsets))


def _moved(problem: Problem, past: Int64, offsets: Int64) -> NDArray[np.bool_]:
    moved: NDArray[np.bool_] = problem.alive & (past != FREE) & (offsets != past)
    return moved


def _legal(problem: Problem, past: Int64) -> Int64:
    """Old offsets without those in the way: while two clash, the smaller one goes."""
    kept = np.where(problem.alive, past, FREE)
    kept[(kept < 0) | (kept % problem.align != 0)] = FREE
    wrong_pin = (problem.fixed != FREE) & (kept != problem.fixed)
    kept[wrong_pin] = problem.fixed[wrong_pin]
    while True:
        here = np.flatnonzero(kept != FREE)
        part = _only(problem, here)
        clashes = [v.buffers for v in violations(part, kept[here]) if v.rule == "overlap"]
        if not clashes:
            kept[problem.fixed != FREE] = FREE
            return kept
        for pair in clashes:
            free = [here[b] for b in pair if problem.fixed[here[b]] == FREE]
            if not free:
                raise UsageError(
                    "two pinned buffers overlap", where=problem.name(int(here[pair[0]]))
                )
            kept[min(free, key=lambda b: (problem.size[b], b))] = FREE


def _only(problem: Problem, buffers: Int64) -> Problem:
    from peakfold.packing.questions.infeasible import subproblem

    return subproblem(replace(problem, fixed=np.full(problem.buffers, FREE)), buffers)


def _let_go(problem: Problem, kept: Int64, offsets: Int64, capacity: int) -> Int64:
    """Free the buffers above the capacity and everything that conflicts with them."""
    above = np.flatnonzero(problem.alive & (offsets + problem.size > capacity))
    result = kept.copy()
    result[above] = FREE
    if problem.conflicts is not None:
        near = neighbours(problem)
        for b in above:
            result[list(near[b])] = FREE
        return result
    owner = problem.owner
    for p in np.flatnonzero(np.isin(owner, above)):
        meet = np.maximum(problem.start, problem.start[p]) < np.minimum(
            problem.stop, problem.stop[p]
        )
        result[owner[meet]] = FREE
    return result
