"""Replanning, banks and groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.errors import DoesNotFit, UsageError
from peakfold.packing import FREE, Problem, pack, peak_load, violations
from peakfold.packing.fixed_distances import grouped
from peakfold.packing.questions.banks import Bank, pack_banks
from peakfold.packing.questions.infeasible import subproblem
from peakfold.packing.questions.replan import replan

from .oracle import guillotine
from .strategies import plain_problems


@settings(max_examples=60, deadline=None)
@given(plain_problems(aligned=True, pinned=True), st.data())
def test_replanning_keeps_what_it_can_and_stays_valid(problem, data):
    base = pack(problem, time_limit=60).offsets
    same = replan(problem, base)
    assert not same.moved.any()
    assert same.packing.offsets[problem.alive].tolist() == base[problem.alive].tolist()
    wild = [data.draw(st.integers(-1, 40)) for _ in range(problem.buffers)]
    found = replan(problem, wild)
    assert violations(problem, found.packing.offsets) == []
    assert found.packing.height >= found.packing.lower_bound


def test_one_grown_buffer_moves_few():
    problem = guillotine(80, 256, 4)
    base = pack(problem, time_limit=60)
    size = problem.size.copy()
    grown = int(np.argmin(size))
    size[grown] += 8
    changed = Problem.of(problem.start, problem.stop, size)
    near = replan(changed, base.offsets)
    assert violations(changed, near.packing.offsets) == []
    assert near.moved.sum() < 10
    tight = replan(changed, base.offsets, capacity=300, time_limit=20)
    assert tight.packing.height <= 300
    assert violations(changed, tight.packing.offsets, 300) == []


@settings(max_examples=60, deadline=None)
@given(plain_problems(max_buffers=7, max_time=4), st.data())
def test_max_moves_stops_at_the_last_round_within_it(problem, data):
    old = [data.draw(st.integers(-1, 30)) for _ in range(problem.buffers)]
    best = pack(problem, time_limit=60).height
    moves = data.draw(st.integers(0, problem.buffers))
    first = replan(problem, old, time_limit=60)
    found = replan(problem, old, capacity=best, max_moves=moves, time_limit=60)
    assert violations(problem, found.packing.offsets) == []
    assert found.packing.height <= first.packing.height
    if found.moved.sum() > moves:
        assert found.packing.offsets.tolist() == first.packing.offsets.tolist()
    free = replan(problem, old, capacity=best, max_moves=problem.buffers, time_limit=60)
    assert free.packing.height == best


def test_replanning_refuses_nonsense():
    problem = Problem.of([0, 0], [1, 1], [4, 4], fixed=[0, 2])
    with pytest.raises(UsageError, match="old offsets"):
        replan(problem, [0])
    with pytest.raises(UsageError, match="pinned"):
        replan(problem, [0, 2])


@settings(max_examples=60, deadline=None)
@given(plain_problems(max_buffers=8), st.integers(0, 30))
def test_banks_are_valid_and_within_their_size(problem, room):
    banks = [Bank("dram", None, 5.0), Bank("sram", room, 1.0)]
    found = pack_banks(problem, banks, time_limit=20)
    for number, bank in enumerate(banks):
        inside = np.flatnonzero(found.bank == number)
        part = subproblem(problem, inside)
        assert violations(part, found.offsets[inside], bank.capacity) == []
        assert part.height(found.offsets[inside]) == found.heights[number]
    if room >= peak_load(problem) and pack(problem, time_limit=20).height <= room:
        assert (found.bank == 1).all()


def test_banks_too_small_together():
    with pytest.raises(DoesNotFit, match="no room is found for buffer '1' "):
        pack_banks(Problem.of([0, 0], [1, 1], [8, 8]), [Bank("a", 8, 1.0), Bank("b", 4, 2.0)])
    with pytest.raises(DoesNotFit, match="buffer '1' and 2 more "):
        pack_banks(Problem.of([0] * 4, [1] * 4, [8] * 4), [Bank("a", 8, 1.0)])
    with pytest.raises(UsageError):
        pack_banks(Problem.of([0], [1], [8]), [])


@settings(max_examples=60, deadline=None)
@given(plain_problems(max_buffers=6), st.data())
def test_groups_keep_their_distance(problem, data):
    n = problem.buffers
    labels = [data.draw(st.integers(0, 2)) for _ in range(n)]
    away = [data.draw(st.integers(0, 6)) for _ in range(n)]
    tied = grouped(problem, labels, away)
    offsets = tied.spread(pack(tied.problem, time_limit=5).offsets)
    for a in range(n):
        for b in range(a):
            if labels[a] == labels[b]:
                assert offsets[a] - away[a] == offsets[b] - away[b]
    clashes = [v.buffers for v in violations(problem, offsets) if v.rule == "overlap"]
    assert all(labels[a] == labels[b] for a, b in clashes)


def test_groups_refuse_contradictions():
    problem = Problem.of([0, 1], [1, 2], [8, 8], fixed=[0, 8])
    with pytest.raises(UsageError, match="pins"):
        grouped(problem, [0, 0])
    with pytest.raises(UsageError, match="alignment"):
        grouped(Problem.of([0], [1], [8], align=8), [0], [4])
    assert grouped(problem, [0, 0], [0, 8]).problem.fixed.tolist() == [0]
    assert grouped(problem, [0, 1]).problem.fixed.tolist() == [0, 8]
    assert FREE == -1
