"""An explicit conflict relation, where lifetimes on one axis of time say too little.

With parallel lanes two buffers conflict if they *may* be alive together; that is a relation on
buffers, given in `Problem.conflicts`. Everything else (greedy, bounds, exact search, judge)
takes it in place of overlapping lifetimes. A set of buffers that conflict pairwise (a clique)
plays the part of a section of time.
"""

from __future__ import annotations

import numpy as np

from peakfold.packing.problem import Int64, Problem

SEEDS = 500


def neighbours(problem: Problem) -> list[set[int]]:
    """For each buffer, the living ones it conflicts with; itself living.

    Example:
        >>> p = Problem.of([0, 0, 0], [1, 1, 1], [4, 4, 4], conflicts=[(0, 2)])
        >>> neighbours(p)
        [{2}, set(), {0}]
    """
    found: list[set[int]] = [set() for _ in range(problem.buffers)]
    alive = problem.alive
    if problem.conflicts is not None:
        for a, b in problem.conflicts.tolist():
            if a != b and alive[a] and alive[b]:
                found[a].add(b)
                found[b].add(a)
    return found


def heaviest_clique(problem: Problem) -> int:
    """Bytes of the heaviest clique found by greedy growth; any clique is a lower bound.

    Buffers that conflict pairwise cover disjoint addresses. Each of up to 500 seeds (largest
    first) is grown by its largest common neighbour. Finding the heaviest one is NP-hard in
    general, so this may be below the best bound, never above the optimum.
    """
    near, size = neighbours(problem), covered_bytes(problem)
    best = 0
    for seed in np.argsort(-size, kind="stable")[:SEEDS].tolist():
        clique, common = int(size[seed]), near[seed]
        while common:
            pick = max(common, key=lambda b: (size[b], -b))
            clique += int(size[pick])
            common = common & near[pick]
        best = max(best, clique)
    return best


def clique_cover(problem: Problem) -> list[list[int]]:
    """Cliques that together hold every conflicting pair, and every living buffer.

    Greedy: the first pair not yet covered is grown by whatever covers most new pairs.
    """
    near = neighbours(problem)
    todo = [{b for b in others if b > a} for a, others in enumerate(near)]
    cliques: list[list[int]] = []
    for a in range(problem.buffers):
        while todo[a]:
            b = min(todo[a])
            clique, common = [a, b], near[a] & near[b]
            while common:
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
