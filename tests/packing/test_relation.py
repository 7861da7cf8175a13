from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.errors import UsageError
from peakfold.packing import STRATEGIES, Problem, lower_bound, pack, violations
from peakfold.packing.conflicts import clique_cover, neighbours

from .strategies import plain_problems


@st.composite
def related_problems(draw, max_buffers=6):
    n = draw(st.integers(1, max_buffers))
    size = [draw(st.integers(0, 9)) for _ in range(n)]
    pairs = [pair for pair in combinations(range(n), 2) if draw(st.booleans())]
    return Problem.of([0] * n, [1] * n, size, conflicts=pairs)


def best_height(problem):
    near, size = neighbours(problem), problem.size.tolist()
    best = None
    for order in permutations(np.flatnonzero(problem.alive).tolist()):
        at = {}
        for b in order:
            others = [c for c in at if c in near[b]]
            tops = sorted([0, *(at[c] + size[c] for c in others)])
            at[b] = next(
                x for x in tops if all(x + size[b] <= at[c] or at[c] + size[c] <= x for c in others)
            )
        height = max((at[b] + size[b] for b in at), default=0)
        best = height if best is None else min(best, height)
    return best or 0


@pytest.mark.req("R37")
@settings(max_examples=100, deadline=None)
@given(related_problems())
def test_pack_is_optimal_for_any_relation(problem):
    found = pack(problem, time_limit=60)
    assert violations(problem, found.offsets) == []
    assert found.optimal
    assert found.height == best_height(problem) >= lower_bound(problem)


@given(related_problems())
def test_strategies_obey_the_relation_and_the_judge_sees_it_broken(problem):
    for strategy in STRATEGIES.values():
        assert violations(problem, strategy(problem)) == []
    near = neighbours(problem)
    zero = np.zeros(problem.buffers, dtype=np.int64)
    assert bool(violations(problem, zero)) == any(near)


@given(related_problems())
def test_cliques_cover_every_pair_and_nothing_else(problem):
    near = neighbours(problem)
    pairs = {pair for clique in clique_cover(problem) for pair in combinations(sorted(clique), 2)}
    assert pairs == {(a, b) for a in range(problem.buffers) for b in near[a] if a < b}


@settings(max_examples=50, deadline=None)
@given(plain_problems(max_buffers=6, aligned=True, pinned=True))
def test_lifetimes_and_their_relation_agree(problem):
    n = problem.buffers
    pairs = [
        (a, b)
        for a, b in combinations(range(n), 2)
        if max(problem.start[a], problem.start[b]) < min(problem.stop[a], problem.stop[b])
    ]
    related = Problem.of(
        problem.start,
        problem.stop,
        problem.size,
        align=problem.align,
        fixed=problem.fixed,
        conflicts=pairs,
    )
    assert pack(related, time_limit=60).height == pack(problem, time_limit=60).height


def test_a_five_cycle_needs_more_than_any_clique():
    """Five unit buffers in a ring: every clique has two, but two levels are not enough."""
    ring = Problem.of([0] * 5, [1] * 5, [1] * 5, conflicts=[(i, (i + 1) % 5) for i in range(5)])
    found = pack(ring, time_limit=60)
    assert (lower_bound(ring), found.height, found.optimal) == (2, 3, True)


def test_a_conflict_with_nobody_is_refused():
    with pytest.raises(UsageError, match="outside"):
        Problem.of([0], [1], [1], conflicts=[(0, 1)])
