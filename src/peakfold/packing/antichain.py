"""The heaviest set of buffers that conflict pairwise, exactly, where lanes make the conflicts.

With lanes, buffer b may follow buffer a if everything that touches a is over when b begins.
That is a strict partial order; two buffers conflict if neither may follow the other. Buffers
that conflict pairwise are then an *antichain*, and the heaviest one is found in polynomial time
(Dilworth 1950, by flow). For conflicts that come from no partial order it is NP-hard, and
`heaviest_antichain` says None.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from peakfold.packing.conflicts import covered_bytes
from peakfold.packing.problem import Problem

LIMIT = 2_000
"""Buffers; above, the bit sets and the flow would take more than about a second."""
ORIENTED = 300
"""Buffers; above, only the order of the buffers is tried as the direction of time."""


def heaviest_antichain(problem: Problem) -> tuple[int, ...] | None:
    """The buffers of a heaviest set that conflicts pairwise, or None if it is not found so.

    Their bytes together are a lower bound: alive at once, they cover disjoint addresses. No
    other such set is heavier. None where the conflicts are no partial order's (or no direction
    is seen in large ones), or there are more than 2,000 living buffers.

    Example:
        >>> ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
        >>> p = Problem.of([0] * 4, [1] * 4, [16, 8, 64, 32], conflicts=ring)
        >>> heaviest_antichain(p)
        (2, 3)
    """
    live = np.flatnonzero(problem.alive).tolist()
    n = len(live)
    if problem.conflicts is None or n > LIMIT:
        return None
    free = _free(problem, live)
    order = list(range(n))
    cover = _cover(free)
    if cover is None and n <= ORIENTED:
        found = _direction(free)
        if found is None:
            return None
        order = found
        cover = _cover(_renumbered(free, order))
    if cover is None:
        return None
    size = covered_bytes(problem).tolist()
    picked = _antichain(cover, [size[live[i]] for i in order])
    return tuple(sorted(live[order[i]] for i in picked))


def _free(problem: Problem, live: list[int]) -> list[int]:
    """Per living buffer, the set of living buffers it does not conflict with, as bits."""
    beside = ~np.eye(len(live), dtype=np.bool_)
    if problem.conflicts is not None and len(live):
        number = np.full(problem.buffers, -1, dtype=np.int64)
        number[live] = np.arange(len(live))
        one, two = number[problem.conflicts[(number[problem.conflicts] >= 0).all(axis=1)]].T
        beside[one, two] = beside[two, one] = False
    packed = np.packbits(beside, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _renumbered(free: list[int], order: list[int]) -> list[int]:
    place = {old: new for new, old in enumerate(order)}
    return [sum(1 << place[b] for b in _bits(free[old])) for old in order]


def _cover(free: list[int]) -> list[list[int]] | None:
    """Direct successors if "may follow, and has the higher number" is transitive, else None.

    From the last buffer back: what follows `a` must hold all that follows each of its direct
    successors; those skipped follow a direct one, so they need no check of their own.
    """
    n = len(free)
    later = [free[a] >> (a + 1) << (a + 1) for a in range(n)]
    direct: list[list[int]] = [[] for _ in range(n)]
    for a in range(n - 1, -1, -1):
        rest = later[a]
        while rest:
            b = (rest & -rest).bit_length() - 1
            if later[b] & ~later[a]:
                return None
            direct[a].append(b)
            rest &= ~(later[b] | 1 << b)
    return direct


def _direction(free: list[int]) -> list[int] | None:
    """An order of the buffers that fits a transitive direction of all free pairs, or None.

    Golumbic, "Algorithmic Graph Theory and Perfect Graphs" (1980), section 5.6: pick a
    direction for one pair, follow what it forces (of two pairs that share a buffer and whose
    other ends conflict, both must leave it or both must enter), take the class out, repeat. A
    class that holds a pair in both directions proves that there is no partial order.
    """
    n = len(free)
    left = free.copy()
    after = [0] * n
    for first in range(n):
        while left[first]:
            out, into = _forced(left, first, (left[first] & -left[first]).bit_length() - 1)
            if any(one & other for one, other in zip(out, into, strict=True)):
                return None
            for x in range(n):
                after[x] |= out[x]
                left[x] &= ~(out[x] | into[x])
    return sorted(range(n), key=lambda x: (-after[x].bit_count(), x))


def _forced(left: list[int], first: int, second: int) -> tuple[list[int], list[int]]:
    """All directed pairs forced by first -> second, as (heads of each, tails of each)."""
    out, into = [0] * len(left), [0] * len(left)
    out[first], into[second] = 1 << second, 1 << first
    stack = [(first, second)]
    while stack:
        x, y = stack.pop()
        for z in _bits(left[x] & ~left[y] & ~(1 << y) & ~out[x]):
            out[x] |= 1 << z
            into[z] |= 1 << x
            stack.append((x, z))
        for z in _bits(left[y] & ~left[x] & ~(1 << x) & ~into[y]):
            out[z] |= 1 << y
            into[y] |= 1 << z
            stack.append((z, y))
    return out, into


def _antichain(direct: list[list[int]], weight: list[int]) -> list[int]:
    """Numbers of a heaviest antichain: what a minimum cut leaves whole.

    Every buffer has an exit (fed from the source by its weight) and an entry (drained by it);
    exits lead to the entries of direct successors, entries to their own exits. A flow pairs
    bytes with bytes that follow them, so by Dilworth's theorem (a buffer as `weight` equal
    elements) all bytes less the flow are the heaviest antichain: the buffers whose exit is on
    the source's side of the cut and whose entry is not.
    """
    n, whole = len(weight), sum(weight)
    net = _Flow(2 * n + 2)
    for a in range(n):
        net.add(2 * n, a, weight[a])
        net.add(n + a, 2 * n + 1, weight[a])
        net.add(n + a, a, whole)
        for b in direct[a]:
            net.add(a, n + b, whole)
    reached = net.saturate(2 * n, 2 * n + 1)
    return [a for a in range(n) if reached[a] >= 0 > reached[n + a]]


class _Flow:
    """Maximum flow (Dinitz 1970); edge e and its reverse are e and e ^ 1."""

    def __init__(self, nodes: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.room: list[int] = []

    def add(self, tail: int, head: int, room: int) -> None:
        for a, b, free in ((tail, head, room), (head, tail, 0)):
            self.out[a].append(len(self.to))
            self.to.append(b)
            self.room.append(free)

    def saturate(self, source: int, sink: int) -> list[int]:
        """Push all that fits; gives the last distances, -1 beyond the minimum cut."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return level
            self._block(source, sink, level)

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.out)
        level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self.out[node]:
                if self.room[edge] and level[self.to[edge]] < 0:
                    level[self.to[edge]] = level[node] + 1
                    queue.append(self.to[edge])
        return level

    def _block(self, source: int, sink: int, level: list[int]) -> None:
        """A blocking flow along shortest paths, depth first, each edge given up once."""
        tried = [0] * len(self.out)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min(self.room[edge] for edge in path)
                for edge in path:
                    self.room[edge] -= amount
                    self.room[edge ^ 1] += amount
                path, node = [], source
            elif tried[node] < len(self.out[node]):
                edge = self.out[node][tried[node]]
                if self.room[edge] and level[self.to[edge]] == level[node] + 1:
                    path.append(edge)
                    node = self.to[edge]
                else:
                    tried[node] += 1
            elif path:
                node = self.to[path.pop() ^ 1]
                tried[node] += 1
            else:
                return
