"""The core bound against brute force: between the plain bound and the optimum, with culprits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.packing import Problem, core_bound, lower_bound
from peakfold.packing.questions.infeasible import subproblem

from .oracle import guillotine, optimum
from .strategies import composite_problems, plain_problems
from .test_relation import best_height, related_problems


@settings(max_examples=150, deadline=None)
@given(plain_problems(max_buffers=6, max_time=4, aligned=True, pinned=True))
def test_with_budget_it_is_the_optimum_and_its_culprits_need_it(problem):
    found = core_bound(problem, nodes=10**6)
    assert found.bound == optimum(problem)
    if not found.buffers:
        assert found.bound == lower_bound(problem)
        return
    assert found.bound > lower_bound(problem)
    assert found.irreducible
    guilty = np.array(found.buffers)
    assert optimum(subproblem(problem, guilty)) == found.bound
    for one in guilty:
        assert optimum(subproblem(problem, guilty[guilty != one])) < found.bound


@settings(max_examples=80, deadline=None)
@given(related_problems())
def test_under_a_relation_it_is_the_optimum(problem):
    found = core_bound(problem, nodes=10**6)
    assert found.bound == best_height(problem)
    if found.buffers:
        assert best_height(subproblem(problem, np.array(found.buffers))) == found.bound


@settings(max_examples=40, deadline=None)
@given(composite_problems())
def test_where_no_search_applies_it_is_the_plain_bound(problem):
    assert core_bound(problem).bound >= lower_bound(problem)


@settings(max_examples=40, deadline=None)
@given(plain_problems(max_buffers=6, pinned=True), st.integers(1, 3))
def test_a_small_budget_proves_less_but_nothing_wrong(problem, nodes):
    assert lower_bound(problem) <= core_bound(problem, nodes=nodes).bound <= optimum(problem)


@pytest.mark.parametrize("seed", range(3))
def test_a_perfect_packing_with_a_tall_stranger_blames_few(seed):
    """Buffers that fill a square, and a hard part elsewhere in time that needs more."""
    square = guillotine(40, 64, seed)
    start = np.concatenate([square.start, [100, 100, 101]])
    stop = np.concatenate([square.stop, [103, 103, 103]])
    size = np.concatenate([square.size, [30, 40, 5]])
    fixed = np.full(43, -1)
    fixed[40] = 20
    problem = Problem.of(start, stop, size, fixed=fixed)
    found = core_bound(problem)
    assert (lower_bound(problem), found.bound, found.buffers) == (75, 90, (40, 41))


def test_without_time_it_is_the_plain_bound():
    problem = Problem.of([0, 0, 1], [3, 3, 3], [30, 40, 5], fixed=[20, -1, -1])
    found = core_bound(problem, expired=lambda: True)
    assert (found.bound, found.buffers, found.irreducible) == (75, (), False)


def test_time_is_kept_within_one_refutation():
    """A part too hard for any budget: the clock ends it, and nothing is claimed."""
    problem = guillotine(300, 100_003, 1)
    core_bound(problem, nodes=10)  # load compiled code
    polls = iter([False] * 6)
    found = core_bound(problem, nodes=1 << 60, expired=lambda: next(polls, True))
    assert (found.bound, found.buffers) == (100_003, ())
