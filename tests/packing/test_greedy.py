import numpy as np
import pytest
from hypothesis import given

from peakfold.errors import DoesNotFit, UsageError
from peakfold.packing import (
    STRATEGIES,
    Problem,
    lower_bound,
    pack,
    peak_load,
    violations,
    violations_naive,
)
from peakfold.packing.heuristics.first_fit import AddressTree, place
from peakfold.packing.heuristics.sections import section_loads, sections

from .goldens import BY_SIZE, P2, P3
from .strategies import any_problem, plain_problems


@pytest.mark.req("P1", "P2", "P3", "P4", "R53")
@pytest.mark.parametrize("name", BY_SIZE)
def test_by_size_agrees_with_published_offsets(name):
    problem, offsets, arena = BY_SIZE[name]
    assert STRATEGIES["by-size"](problem).tolist() == offsets
    assert problem.height(np.array(offsets)) == arena


@pytest.mark.req("R54")
@pytest.mark.parametrize(("problem", "bound"), [(P2, 96), (P3, 124)])
def test_published_lower_bounds(problem, bound):
    assert peak_load(problem) == bound


@pytest.mark.req("R53")
@given(any_problem())
def test_every_strategy_is_valid_and_not_below_the_bound(problem):
    for name, strategy in STRATEGIES.items():
        offsets = strategy(problem)
        assert violations_naive(problem, offsets) == [], name
        assert problem.height(offsets) >= lower_bound(problem)


@given(plain_problems(max_buffers=10))
def test_best_gap_equals_a_scan_over_all_placed(problem):
    order = np.argsort(-problem.size, kind="stable").tolist()
    assert place(problem, order).tolist() == _scan(problem, order)


def _scan(problem, order):
    """The published rule, word for word, without any index."""
    start, stop, size = problem.start.tolist(), problem.stop.tolist(), problem.size.tolist()
    offsets, done = [0] * problem.buffers, []
    for b in order:
        if start[b] == stop[b] or size[b] == 0:
            continue
        gap, best, free = None, None, 0
        for c in sorted(done, key=lambda c: offsets[c]):
            if max(start[b], start[c]) < min(stop[b], stop[c]):
                room = offsets[c] - free
                if room >= size[b] and (gap is None or room < gap):
                    gap, best = room, free
                free = max(free, offsets[c] + size[c])
        offsets[b] = free if best is None else best
        done.append(b)
    return offsets


@given(any_problem())
def test_sections_keep_conflicts_and_peak(problem):
    found = sections(problem)
    alive = problem.pieces_alive
    for p in np.flatnonzero(alive):
        for q in np.flatnonzero(alive):
            meet = max(found.first[p], found.first[q]) < min(found.last[p], found.last[q])
            both = max(problem.start[p], problem.start[q]) < min(problem.stop[p], problem.stop[q])
            assert meet == both
    if problem.plain:
        assert section_loads(problem, found).max(initial=0) == peak_load(problem)


@given(any_problem())
def test_peak_load_is_the_union_at_some_step(problem):
    owner = problem.owner
    most = 0
    for t in range(20):
        now = np.flatnonzero((problem.start <= t) & (t < problem.stop))
        cells = {(owner[p], a) for p in now for a in range(problem.lower[p], problem.upper[p])}
        most = max(most, len(cells))
    assert peak_load(problem) == most


def test_unions_coalesce_and_nest():
    tree = AddressTree(1)
    for low, high in [(10, 20), (30, 40), (20, 25), (5, 10), (0, 50)]:
        tree.insert(0, 1, low, high)
    assert tree.taken(0, 1) == [[0, 50]]


def test_pack_keeps_the_best_and_stops_at_the_bound():
    seen = []
    found = pack(P3, progress=lambda height, bound: seen.append((height, bound)))
    assert (found.height, found.lower_bound, found.optimal) == (124, 124, True)
    assert seen[-1] == (124, 124)
    assert violations(P3, found.offsets, capacity=124) == []


@pytest.mark.req("R40")
@pytest.mark.parametrize("name", STRATEGIES)
def test_pack_by_name(name):
    found = pack(P3, strategy=name)
    assert found.strategy == name
    assert found.offsets.tolist() == STRATEGIES[name](P3).tolist()


def test_unknown_strategy_lists_the_known():
    with pytest.raises(UsageError, match="by-size"):
        pack(P3, strategy="magic")


def test_capacity_below_the_bound_says_how_much_is_missing():
    with pytest.raises(DoesNotFit, match="24 more than 100"):
        pack(P3, capacity=100)


@pytest.mark.parametrize("n", [0, 1])
def test_trivial_problems(n):
    found = pack(Problem.of([0] * n, [2] * n, [16] * n))
    assert (found.height, found.optimal) == (16 * n, True)


def test_zero_sizes_and_empty_lifetimes_conflict_with_nothing():
    problem = Problem.of([0, 0, 1], [4, 4, 1], [8, 0, 8])
    found = pack(problem)
    assert found.height == 8
    assert violations(problem, [0, 4, 0]) == []
