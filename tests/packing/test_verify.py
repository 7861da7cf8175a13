import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.errors import InvalidPlan, UsageError
from peakfold.packing import (
    STRATEGIES,
    Problem,
    require_valid,
    violations,
    violations_naive,
)

from .strategies import any_problem

PAIR = Problem.of([0, 1], [3, 4], [10, 6], align=[1, 2], names=("a", "b"))


@pytest.mark.parametrize(
    ("offsets", "capacity", "rule", "buffers"),
    [
        ([0, 8], None, "overlap", (0, 1)),
        ([-1, 10], None, "negative", (0,)),
        ([0, 11], None, "alignment", (1,)),
        ([0, 10], 15, "capacity", (1,)),
        ([0], None, "count", ()),
        ([0.0, 10.0], None, "count", ()),
    ],
)
@pytest.mark.parametrize("judge", [violations, violations_naive])
def test_each_rule_is_seen(judge, offsets, capacity, rule, buffers):
    assert (rule, buffers) in [(v.rule, v.buffers) for v in judge(PAIR, offsets, capacity)]


def test_a_pin_is_a_rule():
    problem = Problem.of([0], [1], [4], fixed=8)
    assert [v.rule for v in violations(problem, [0])] == ["pin"]
    assert violations(problem, [8]) == []


def test_touching_lifetimes_and_touching_addresses_are_fine():
    problem = Problem.of([0, 3, 0], [3, 5, 5], [10, 10, 5])
    assert violations(problem, [0, 0, 10], capacity=15) == []


def test_pieces_of_one_buffer_may_overlap_but_still_block_others():
    problem = Problem.of_pieces(
        size=[10, 4],
        first=[0, 3, 4],
        start=[0, 0, 0, 1],
        stop=[2, 2, 3, 2],
        lower=[0, 2, 0, 0],
        upper=[6, 10, 3, 4],
    )
    for offset in range(12):
        seen = [judge(problem, [0, offset]) for judge in (violations, violations_naive)]
        assert [bool(found) for found in seen] == [offset < 10] * 2


@given(any_problem(), st.data())
def test_both_judges_agree_on_any_offsets(problem, data):
    offsets = np.array(
        [data.draw(st.integers(0, 30)) for _ in range(problem.buffers)], dtype=np.int64
    )
    capacity = data.draw(st.none() | st.integers(0, 40))
    swept = violations(problem, offsets, capacity)
    pairs = violations_naive(problem, offsets, capacity)
    assert bool(swept) == bool(pairs), [found.message for found in swept + pairs]
    named = {(v.rule, frozenset(v.buffers)) for v in pairs}
    assert all((v.rule, frozenset(v.buffers)) in named for v in swept)


def test_every_buffer_pushed_into_a_neighbour_is_rejected():
    """Mutation: move one buffer of a large valid packing onto a buffer it lives with."""
    rng = np.random.default_rng(5)
    n = 3000
    start = rng.integers(0, n, n)
    problem = Problem.of(start, start + rng.integers(1, 40, n), rng.integers(1, 100, n))
    offsets = STRATEGIES["by-size"](problem)
    assert violations(problem, offsets) == []
    tried = 0
    for b in rng.permutation(n)[:200]:
        other = np.flatnonzero(
            (
                np.maximum(problem.start, problem.start[b])
                < np.minimum(problem.stop, problem.stop[b])
            )
            & (np.arange(n) != b)
        )
        if not len(other):
            continue
        tried += 1
        broken = offsets.copy()
        broken[b] = offsets[other[0]] + problem.size[other[0]] - 1
        found = violations(problem, broken)
        assert any(b in v.buffers for v in found)
    assert tried > 150


def test_thousands_alive_at_once_cross_block_borders():
    n = 4000
    problem = Problem.of(np.zeros(n), np.arange(1, n + 1), np.full(n, 3))
    offsets = np.random.default_rng(0).permutation(n) * 3
    assert violations(problem, offsets, capacity=3 * n) == []
    offsets[7] += 1
    assert [v.rule for v in violations(problem, offsets)] in (["overlap"], ["overlap"] * 2)


def test_require_valid_raises_the_first_violation():
    with pytest.raises(InvalidPlan, match="'a' at 0 and 'b' at 8"):
        require_valid(PAIR, [0, 8])
    require_valid(PAIR, [0, 10])


def test_the_naive_judge_refuses_large_problems():
    n = 5001
    with pytest.raises(UsageError):
        violations_naive(Problem.of([0] * n, [0] * n, [0] * n), [0] * n)
