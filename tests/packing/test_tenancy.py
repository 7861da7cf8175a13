"""Strategies by columns give what the slow ones give, and all of them obey a deadline."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.packing import STRATEGIES, Problem, pack
from peakfold.packing.deadline import Deadline
from peakfold.packing.heuristics.first_fit import place, stack
from peakfold.packing.objects.assign import OBJECT_STRATEGIES, assign_objects, assign_related
from peakfold.packing.objects.crowds import positional_maxima
from peakfold.packing.verify import violations

from . import naive_objects
from .oracle import guillotine

RECORDS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 5)).map(
        lambda t: (t[0], t[0] + t[1], t[2])
    ),
    max_size=14,
)
OVER = Deadline(0.0)


def problem(records: list[tuple[int, int, int]]) -> Problem:
    return Problem.of(*([row[k] for row in records] for k in range(3)))


@given(RECORDS)
@settings(max_examples=60)
def test_by_columns_is_as_one_by_one(records: list[tuple[int, int, int]]) -> None:
    p, n = problem(records), len(records)
    assert positional_maxima(p.start, p.stop, p.size.tolist()) == naive_objects.maxima(records)
    for name, key in (("in-order", 0), ("by-size", 2)):
        order = sorted(range(n), key=lambda i: (-records[i][2] if key else records[i][0], i))
        found = assign_objects(p, name)
        assert (list(found.ids), list(found.sizes)) == naive_objects.best_fit(records, order)
    maxima = naive_objects.maxima(records)
    stage = [sum(value >= size for value in maxima) for _, _, size in records]
    assert list(assign_objects(p, "improved").ids) == naive_objects.improved(records, stage)


@pytest.mark.parametrize("strategy", OBJECT_STRATEGIES)
def test_time_is_up_and_there_are_objects_all_the_same(strategy: str) -> None:
    records = [(0, 2, 16), (0, 3, 8), (1, 4, 64), (2, 5, 8), (3, 6, 9), (4, 6, 70), (4, 7, 1)]
    found = assign_objects(problem(records), strategy, OVER)
    quick = strategy in ("naive", "equality", "in-order")
    assert found.complete is quick
    if not quick:
        assert found.strategy == "in-order"
        assert found.ids == assign_objects(problem(records), "in-order").ids


def test_related_buffers_get_objects_of_their_own_when_time_is_up() -> None:
    assert assign_related([8, 4, 8], [(0, 1), (1, 2)], OVER) == ([0, 2, 1], False)


def test_a_packing_comes_out_of_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where even the first greedy pass is not given the time it needs."""
    p = Problem.of([0, 0, 1, 2], [3, 2, 4, 5], [5, 3, 9, 4], align=2, fixed=[-1, -1, 4, -1])
    monkeypatch.setattr("peakfold.packing.solve.GRACE", -1.0)
    for strategy in ("best", *STRATEGIES):
        found = pack(p, strategy=strategy, time_limit=0)
        assert (found.strategy, found.search) == ("stacked", "time limit")
        assert not violations(p, found.offsets)
    assert not violations(p, stack(p))


def test_what_ended_a_search_is_told() -> None:
    easy = Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64])
    assert pack(easy, time_limit=0).search == "complete"  # it meets the bound
    assert pack(guillotine(120, 1000, 3), time_limit=0).search == "time limit"


def test_a_limit_of_nodes_ends_the_same_everywhere() -> None:
    p = guillotine(120, 1000, 3)
    none = pack(p, node_limit=0, time_limit=60)
    assert (none.search, none.optimal) == ("node limit", False)
    some = [pack(p, node_limit=3000, time_limit=60).offsets.tolist() for _ in range(2)]
    assert some[0] == some[1]


@given(RECORDS, st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=40)
def test_gaps_by_columns_are_those_of_the_loop(
    records: list[tuple[int, int, int]], chance: random.Random, best_gap: bool
) -> None:
    p = problem(records)
    order = list(range(len(records)))
    chance.shuffle(order)
    found = []
    for columns in (0, 1 << 62):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("peakfold.packing.heuristics.first_fit._COLUMNS", columns)
            found.append(place(p, order, best_gap=best_gap).tolist())
    assert found[0] == found[1]
