"""Orders of like buffers: their weights against plain sums, and what they are for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.packing import Problem, peak_load, violations
from peakfold.packing.heuristics.weight_classes import range_maximum, shelf_order, traits
from peakfold.packing.large.compiled_first_fit import Fitter

from .strategies import any_problem, plain_problems


@given(st.lists(st.floats(0, 9), min_size=1, max_size=20), st.data())
def test_range_maximum_equals_a_loop(values, data):
    ends = st.integers(0, len(values))
    pairs = [sorted(data.draw(st.tuples(ends, ends))) for _ in range(6)]
    low, high = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    found = range_maximum(np.array(values), low, high)
    assert found.tolist() == [max(values[a:z], default=0.0) for a, z in pairs]


@given(plain_problems(max_buffers=8))
def test_traits_equal_sums_over_sections(problem):
    found = traits(problem)
    peak = max(peak_load(problem), 1)
    for b in np.flatnonzero(problem.alive):
        # The moments at which something was just born and something dies next, while b lives.
        loads = []
        for t in range(problem.start[b], problem.stop[b]):
            now = (problem.start <= t) & (t < problem.stop) & (problem.size > 0)
            later = now & (problem.stop <= t + 1)
            if later.any() and _born_since_a_death(problem, t):
                loads.append(int(problem.size[now].sum()) / peak)
        assert len(loads) == found.length[b]
        assert found.peak[b] == pytest.approx(max(loads))
        assert found.mean[b] == pytest.approx(sum(loads) / len(loads))


def _born_since_a_death(problem, t):
    live = (problem.stop > problem.start) & (problem.size > 0)
    deaths = [int(x) for x in problem.stop[live] if x <= t]
    return bool(
        ((problem.start[live] <= t) & (problem.start[live] >= max(deaths, default=0))).any()
    )


@given(any_problem(), st.booleans(), st.booleans())
def test_a_shelf_order_is_a_permutation(problem, by_mean, reverse):
    order = shelf_order(traits(problem), by_mean=by_mean, reverse=reverse)
    assert sorted(order.tolist()) == list(range(problem.buffers))


@given(plain_problems(max_buffers=10))
def test_reversing_time_swaps_birth_and_death(problem):
    mirrored = Problem.of(-problem.stop, -problem.start, problem.size)
    there, back = traits(problem), traits(mirrored)
    assert there.length.tolist() == back.length.tolist()
    assert there.mean == pytest.approx(back.mean)
    alive = problem.alive
    forth, back = shelf_order(there, reverse=True), shelf_order(back)
    assert forth[alive[forth]].tolist() == back[alive[back]].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_equal_sizes_are_packed_at_the_bound(seed):
    """One shelf is an interval colouring, for which the order of birth is optimal."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 500, 600)
    problem = Problem.of(start, start + rng.integers(1, 90, 600), np.full(600, 64))
    order = shelf_order(traits(problem), length=0.0, load=0.0)
    offsets, height = Fitter(problem).place(order, best_gap=False)
    assert violations(problem, offsets) == []
    assert height == peak_load(problem)
