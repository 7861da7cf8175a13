"""An explicit conflict relation, where lifetimes on one axis of time say too little.

With parallel lanes two buffers conflict if they *may* be alive together; that is a relation on
buffers, given in `Problem.conflicts`. Everything else (greedy, bounds, exact search, judge)
takes it in place of overlapping lifetimes. A set of buffers that conflict pairwise (a clique)
plays the part of a section of time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peakfold.packing.deadline import Check, endless
from peakfold.packing.problem import Int64, Problem

SEEDS = 500
LOOKED = 5_000_000
"""Buffers that the growth of cliques looks at before it takes no more seeds."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """For each buffer, the living ones it conflicts with; itself living.

    Attributes:
        first: (n + 1,) those of buffer b are ``other[first[b]:first[b + 1]]``, ascending.
        other: (k,) every pair twice, once from each side.
    """

    first: Int64
    other: Int64

    @classmethod
    def of(cls, problem: Problem) -> Neighbours:
        """Of a problem's explicit relation; none without one.

        Example:
            >>> p = Problem.of([0, 0, 0], [1, 1, 1], [4, 4, 4], conflicts=[(0, 2)])
            >>> [near.tolist() for near in map(Neighbours.of(p).beside, range(3))]
            [[2], [], [0]]
        """
        pairs = np.zeros((0, 2), dtype=np.int64) if problem.conflicts is None else problem.conflicts
        alive = problem.alive
        one, two = pairs[alive[pairs].all(axis=1) & (pairs[:, 0] != pairs[:, 1])].T
        code = np.sort(np.concatenate([one * problem.buffers + two, two * problem.buffers + one]))
        code = code[np.diff(code, prepend=-1) > 0]  # each once; `unique` takes ten times as long
        owner = code // max(problem.buffers, 1)
        first = np.searchsorted(owner, np.arange(problem.buffers + 1))
        return cls(first, code - owner * problem.buffers)

    def beside(self, buffer: int) -> Int64:
        """What one buffer conflicts with."""
        return self.other[self.first[buffer] : self.first[buffer + 1]]


def neighbours(problem: Problem) -> list[set[int]]:
    """`Neighbours` as sets.

    Example:
        >>> p = Problem.of([0, 0, 0], [1, 1, 1], [4, 4, 4], conflicts=[(0, 2)])
        >>> neighbours(p)
        [{2}, set(), {0}]
    """
    found = Neighbours.of(problem)
    return [set(found.beside(b).tolist()) for b in range(problem.buffers)]


def heaviest_clique(problem: Problem) -> int:
    """Bytes of the heaviest clique found by greedy growth; any clique is a lower bound.

    Buffers that conflict pairwise cover disjoint addresses. Each of up to 500 seeds (largest
    first) is grown by its largest common neighbour. Finding the heaviest one is NP-hard in
    general, so this may be below the best bound, never above the optimum.
    """
    near, size = Neighbours.of(problem), covered_bytes(problem)
    rank = np.empty(problem.buffers, dtype=np.int64)
    largest = np.argsort(-size, kind="stable")
    rank[largest] = np.arange(problem.buffers)
    beside = np.zeros(problem.buffers, dtype=np.bool_)
    best = looked = 0
    for seed in largest[:SEEDS].tolist():
        clique, common = int(size[seed]), near.beside(seed)
        common = common[np.argsort(rank[common])]
        while len(common):
            looked += len(common)
            clique += int(size[common[0]])
            others = near.beside(common[0])
            beside[others] = True
            common = common[beside[common]]  # none is beside itself
            beside[others] = False
        best = max(best, clique)
        if looked > LOOKED:
            break
    return best


def clique_cover(problem: Problem, check: Check = endless) -> list[list[int]]:
    """Cliques that together hold every conflicting pair, and every living buffer.

    Greedy: the first pair not yet covered is grown by whatever covers most new pairs.

    Args:
        problem: the buffers.
        check: polled all along; ends the work by raising.
    """
    near = neighbours(problem)
    todo = [{b for b in others if b > a} for a, others in enumerate(near)]
    cliques: list[list[int]] = []
    for a in range(problem.buffers):
        while todo[a]:
            b = min(todo[a])
            clique, common = [a, b], near[a] & near[b]
            while common:
                check()
                pick = max(common, key=lambda c: (c in todo[a], c > a, -c))
                clique.append(pick)
                common = common & near[pick]
            for x in clique:
                todo[x] -= set(clique)
            cliques.append(sorted(clique))
    covered = {b for clique in cliques for b in clique}
    alone = [[int(b)] for b in np.flatnonzero(problem.alive) if int(b) not in covered]
    return cliques + alone


def covered_bytes(problem: Problem) -> Int64:
    """(n,) bytes that each living buffer surely covers: its tallest piece.

    Example:
        >>> covered_bytes(Problem.of([0, 1], [2, 1], [16, 8])).tolist()
        [16, 0]
    """
    size = np.zeros(problem.buffers, dtype=np.int64)
    alive = problem.pieces_alive
    np.maximum.at(size, problem.owner[alive], (problem.upper - problem.lower)[alive])
    return size
