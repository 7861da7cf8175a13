"""The heaviest antichain against all subsets, for partial orders and for any relation."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.packing import Problem, lower_bound, pack, peak_load
from peakfold.packing.antichain import LIMIT, ORIENTED, heaviest_antichain
from peakfold.packing.conflicts import heaviest_clique, neighbours

from .test_relation import related_problems


def heaviest_subset(problem):
    """Brute force over all sets of living buffers that conflict pairwise."""
    near, size = neighbours(problem), problem.size.tolist()
    live = np.flatnonzero(problem.alive).tolist()
    return max(
        sum(size[b] for b in chosen)
        for count in range(len(live) + 1)
        for chosen in combinations(live, count)
        if all(b in near[a] for a, b in combinations(chosen, 2))
    )


def ordered(n, edges, size, label):
    """Buffers of a partial order (edges go up in number), their numbers then hidden."""
    after = [set() for _ in range(n)]
    for a in range(n - 1, -1, -1):
        for one, b in edges:
            if one == a:
                after[a] |= {b} | after[b]
    pairs = [(label[a], label[b]) for a, b in combinations(range(n), 2) if b not in after[a]]
    return Problem.of([0] * n, [1] * n, size, conflicts=pairs)


@st.composite
def partial_orders(draw, most=8):
    n = draw(st.integers(1, most))
    edges = [pair for pair in combinations(range(n), 2) if draw(st.booleans())]
    size = [draw(st.integers(0, 9)) for _ in range(n)]
    return ordered(n, edges, size, draw(st.permutations(range(n))))


@pytest.mark.req("R37")
@settings(max_examples=200, deadline=None)
@given(partial_orders())
def test_of_a_partial_order_it_is_the_heaviest_of_all_sets(problem):
    found = heaviest_antichain(problem)
    assert found is not None
    near = neighbours(problem)
    assert all(b in near[a] for a, b in combinations(found, 2))
    assert int(problem.size[list(found)].sum()) == peak_load(problem) == heaviest_subset(problem)


@settings(max_examples=200, deadline=None)
@given(related_problems())
def test_of_any_relation_it_is_none_or_the_heaviest(problem):
    found = heaviest_antichain(problem)
    if found is not None:
        assert int(problem.size[list(found)].sum()) == heaviest_subset(problem)
    assert peak_load(problem) <= pack(problem, time_limit=60).height


def test_a_ring_of_five_is_no_partial_order():
    """Its complement is the same ring, which no transitive direction fits."""
    ring = Problem.of([0] * 5, [1] * 5, [1] * 5, conflicts=[(i, (i + 1) % 5) for i in range(5)])
    assert heaviest_antichain(ring) is None
    assert lower_bound(ring) == 2


def _large(n, shuffled):
    rng = np.random.default_rng(n)
    edges = [(a, int(b)) for a in range(n - 1) for b in rng.integers(a + 1, min(n, a + 8), 2)]
    label = rng.permutation(n).tolist() if shuffled else list(range(n))
    return ordered(n, edges, rng.integers(1, 1 << 20, n), label)


@pytest.mark.parametrize(("n", "shuffled"), [(500, False), (ORIENTED, True)])
def test_at_scale_it_is_never_below_greedy_growth(n, shuffled):
    problem = _large(n, shuffled)
    found = heaviest_antichain(problem)
    assert int(problem.size[list(found)].sum()) >= heaviest_clique(problem)


def test_greedy_growth_can_be_too_low():
    pairs = [(0, 1), (0, 3), (0, 5), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (2, 5), (3, 4), (4, 5)]
    problem = Problem.of([0] * 6, [1] * 6, [6, 4, 2, 4, 6, 5], conflicts=pairs)
    assert heaviest_clique(problem) == 14
    assert heaviest_antichain(problem) == (1, 2, 3, 4)
    assert lower_bound(problem) == heaviest_subset(problem) == 16


def test_beyond_its_limits_it_says_nothing_and_the_bound_stays_one():
    problem = _large(ORIENTED + 1, shuffled=True)
    assert heaviest_antichain(problem) is None
    assert peak_load(problem) == heaviest_clique(problem)
    many = LIMIT + 1
    assert heaviest_antichain(Problem.of([0] * many, [1] * many, [1] * many, conflicts=[])) is None
    assert heaviest_antichain(Problem.of([0], [1], [1])) is None
