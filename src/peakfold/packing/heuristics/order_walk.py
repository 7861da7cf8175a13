"""Better orders for problems with pieces of partial height, which the exact search does not take.

First fit puts each buffer at the lowest offset that is free, so a packing is an order of the
buffers. What ends at the top came too late in its order: it moves in front of a buffer that is
in its way, and everything is placed again. A move that is no worse is kept; when none gains for
long, the walk goes on from a random order near the best. Pieces interlock: two buffers of which
each lies below the other for a while may need to be placed in either order, so chance picks the
buffer to pass, and any of those at the top.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from peakfold.packing.deadline import Check, endless
from peakfold.packing.heuristics.orders import STRATEGIES
from peakfold.packing.problem import FREE, Int64, Problem

WORK = 300_000
"""Pairs of conflicting buffers looked at in all rounds together."""
ROUNDS = 40, 2_000
"""Least and greatest number of rounds."""
DRY = 120
"""Rounds without gain after which the walk starts anew near the best."""
MANY = 2_000
"""Above this many buffers nothing is tried."""

_Ways = list[tuple[int, list[tuple[int, int]]]]
"""Per conflicting buffer, open intervals that the difference of the two offsets must avoid."""


def wander(
    problem: Problem,
    bound: int,
    offer: Callable[[Int64, str], None],
    done: Callable[[], bool],
    seed: int,
    check: Check = endless,
) -> None:
    """Offer ever lower packings of a problem.

    Args:
        problem: the buffers; without a conflict relation.
        bound: no packing is lower, so one that meets it ends the walk.
        offer: called with offsets (n,) and a name.
        done: polled every round.
        seed: of the walk; equal seeds give equal packings unless the clock ends one.
        check: polled at each buffer; ends the walk by raising.

    Example:
        >>> p = Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64])
        >>> found = []
        >>> wander(p, 72, lambda offsets, name: found.append(p.height(offsets)), lambda: False, 0)
        >>> min(found)
        72
    """
    if problem.buffers > MANY:
        return
    walk = _Walk(problem, seed, check)
    rounds = min(max(WORK // max(walk.pairs, 1), ROUNDS[0]), ROUNDS[1])
    starts = [
        walk.rank(STRATEGIES[name](problem, check)) for name in ("by-size", "by-load", "in-order")
    ]
    best = min((walk.place(order) for order in starts), key=lambda found: found[0])
    now, dry = best, 0
    offer(best[2], "wander")
    for _ in range(rounds if best[1] else 0):
        if best[0] <= bound or done():
            return
        tried = walk.place(walk.step(*now))
        dry = 0 if tried[0] < now[0] else dry + 1
        now = tried if tried[0] <= now[0] else now
        if now[0] < best[0]:
            best = now
            offer(best[2], "wander")
        if dry > DRY:
            now, dry = walk.place(walk.shaken(best[1])), 0


_Found = tuple[int, list[int], Int64]
"""Height, order and offsets."""


class _Walk:
    """The problem as differences of offsets, and the moves."""

    def __init__(self, problem: Problem, seed: int, check: Check) -> None:
        self.problem, self.check = problem, check
        self.chance = random.Random(seed)
        self.alive = problem.alive
        self.ways = _ways(problem, check)
        self.pairs = sum(len(ways) for ways in self.ways)
        self.align, self.fixed = problem.align.tolist(), problem.fixed.tolist()
        self.size = problem.size.tolist()

    def rank(self, offsets: Int64) -> list[int]:
        """Buffers to be placed, lowest first."""
        order = np.argsort(offsets, kind="stable").tolist()
        return [b for b in order if self.alive[b] and self.fixed[b] == FREE]

    def place(self, order: list[int]) -> _Found:
        """First fit in an order, pinned buffers first."""
        offsets = [max(at, 0) for at in self.fixed]
        placed = [at != FREE for at in self.fixed]
        for b in order:
            self.check()
            blocked = [
                (offsets[c] + low, offsets[c] + high)
                for c, ways in self.ways[b]
                if placed[c]
                for low, high in ways
            ]
            blocked.sort()
            free, align = 0, self.align[b]
            for low, high in blocked:
                if low >= free:
                    break
                if high > free:
                    free = -(-high // align) * align
            offsets[b], placed[b] = free, True
        found = np.array(offsets, dtype=np.int64)
        return self.problem.height(found), order, found

    def step(self, height: int, order: list[int], offsets: Int64) -> list[int]:
        """The order with a buffer from the top moved before one that is in its way."""
        top = [b for b in order if offsets[b] + self.size[b] >= height]
        if not top:  # a pinned buffer is the highest
            return self.shaken(order)
        moved = self.chance.choice(top)
        position = {b: at for at, b in enumerate(order)}
        before = [c for c, _ in self.ways[moved] if position.get(c, len(order)) < position[moved]]
        rest = [b for b in order if b != moved]
        if not before or self.chance.random() < 0.1:
            return self.shaken(order)
        at = rest.index(self.chance.choice(before))
        return [*rest[:at], moved, *rest[at:]]

    def shaken(self, order: list[int]) -> list[int]:
        """The order with a few buffers moved anywhere."""
        order = list(order)
        for _ in range(1 + len(order) // 12):
            moved = order.pop(self.chance.randrange(len(order)))
            order.insert(self.chance.randrange(len(order) + 1), moved)
        return order


def _ways(problem: Problem, check: Check) -> list[_Ways]:
    """Per buffer, those that live with a piece of it, and what the offsets must avoid."""
    found: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(problem.buffers)]
    owner, lower, upper = problem.owner.tolist(), problem.lower.tolist(), problem.upper.tolist()
    start, stop = problem.start.tolist(), problem.stop.tolist()
    living: list[int] = []
    for p in sorted(np.flatnonzero(problem.pieces_alive).tolist(), key=lambda p: (start[p], p)):
        check()
        living = [q for q in living if stop[q] > start[p]]
        for q in living:
            for one, two in ((p, q), (q, p)):
                if owner[one] != owner[two]:
                    gaps = found[owner[one]].setdefault(owner[two], [])
                    gaps.append((lower[two] - upper[one], upper[two] - lower[one]))
        living.append(p)
    return [sorted(others.items()) for others in found]
