"""Brute force that shares nothing with the search: all orders, each at the lowest place."""

from itertools import permutations

import numpy as np

from peakfold.packing import FREE, Problem


def optimum(problem: Problem) -> int:
    """Least height. Sorted by offset, the buffers of any packing can be put down one by one at
    their lowest legal offset without rising, so trying all orders finds the least height
    (whole-height buffers with lifetimes, alignments and pins)."""
    live = [b for b in range(problem.buffers) if problem.alive[b]]
    meet = {(a, b): _meet(problem, a, b) for a in live for b in live}
    best = None
    pinned = [b for b in live if problem.fixed[b] != FREE]
    for order in permutations([b for b in live if problem.fixed[b] == FREE]):
        at = {b: int(problem.fixed[b]) for b in pinned}
        for b in order:
            at[b] = _lowest(problem, at, [c for c in at if meet[b, c]], b)
        height = max((at[b] + int(problem.size[b]) for b in live), default=0)
        best = height if best is None else min(best, height)
    return best or 0


def _meet(problem, a, b):
    rows = [range(problem.first[x], problem.first[x + 1]) for x in (a, b)]
    return any(
        max(problem.start[p], problem.start[q]) < min(problem.stop[p], problem.stop[q])
        for p in rows[0]
        for q in rows[1]
    )


def _lowest(problem, at, others, b):
    size, align = int(problem.size[b]), int(problem.align[b])
    ends = [0, *(at[c] + int(problem.size[c]) for c in others)]
    for x in sorted({-(-end // align) * align for end in ends}):
        if all(x + size <= at[c] or at[c] + int(problem.size[c]) <= x for c in others):
            return x
    raise AssertionError


def guillotine(pieces: int, side: int, seed: int) -> Problem:
    """A side x side square cut at random: the optimum is `side`."""
    rng = np.random.default_rng(seed)
    found = [(0, side, 0, side)]
    while len(found) < pieces:
        at = int(rng.integers(len(found)))
        start, stop, low, high = found[at]
        if rng.random() < 0.5 and stop - start > 1:
            cut = int(rng.integers(start + 1, stop))
            found[at : at + 1] = [(start, cut, low, high), (cut, stop, low, high)]
        elif high - low > 1:
            cut = int(rng.integers(low + 1, high))
            found[at : at + 1] = [(start, stop, low, cut), (start, stop, cut, high)]
    start, stop, low, high = rng.permutation(np.array(found)).T
    return Problem.of(start, stop, high - low)
