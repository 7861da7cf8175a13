"""The walk through orders, for pieces of partial height."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from peakfold.packing import FREE, Problem, pack
from peakfold.packing.bounds import lower_bound
from peakfold.packing.heuristics.order_walk import wander
from peakfold.packing.verify import violations

from .strategies import composite_problems


def least(problem: Problem) -> int:
    """The least height by trying every offset of every buffer below a height known to do."""
    live = [b for b in range(problem.buffers) if problem.alive[b]]
    best = pack(problem).height
    offsets = np.maximum(problem.fixed, 0)

    def try_from(depth: int, height: int) -> None:
        nonlocal best
        if height >= best:
            return
        if depth == len(live):
            best = height
            return
        b = live[depth]
        free = problem.fixed[b] == FREE
        spots = range(0, best, int(problem.align[b])) if free else [int(problem.fixed[b])]
        for spot in spots:
            offsets[b] = spot
            if all(apart(problem, offsets, b, c) for c in live[:depth]):
                try_from(depth + 1, max(height, spot + int(problem.size[b])))

    try_from(0, 0)
    return best


def apart(problem: Problem, offsets: np.ndarray, b: int, c: int) -> bool:
    return not any(
        max(problem.start[p], problem.start[q]) < min(problem.stop[p], problem.stop[q])
        and max(offsets[b] + problem.lower[p], offsets[c] + problem.lower[q])
        < min(offsets[b] + problem.upper[p], offsets[c] + problem.upper[q])
        for p in range(problem.first[b], problem.first[b + 1])
        for q in range(problem.first[c], problem.first[c + 1])
    )


@settings(max_examples=60)
@given(composite_problems(max_buffers=4))
def test_small_problems_reach_the_optimum(problem: Problem) -> None:
    found: list[np.ndarray] = []
    bound = lower_bound(problem)
    wander(problem, bound, lambda offsets, _: found.append(offsets), lambda: False, 0)
    assert all(not violations(problem, offsets) for offsets in found)
    heights = [problem.height(offsets) for offsets in found]
    assert heights == sorted(heights, reverse=True)
    assert bound <= heights[-1]
    assert pack(problem).height <= heights[-1]
    assert heights[-1] == bound or heights[-1] == least(problem)


# A storage of three tensors that lie over each other, and what lives beside it: the first layers
# of a MobileNet of 96 x 96 pixels, whose greedy packings are a quarter too high.
LADDER = Problem.of_pieces(
    size=[2305, 1152, 1152, 1152, 1152, 576],
    first=[0, 4, 5, 6, 7, 8, 9],
    start=[2, 2, 1, 1, 0, 4, 5, 6, 0],
    stop=[5, 4, 4, 3, 2, 6, 7, 8, 1],
    lower=[0, 576, 1153, 2304, 0, 0, 0, 0, 0],
    upper=[576, 1153, 2304, 2305, 1152, 1152, 1152, 1152, 576],
)


def test_where_every_greedy_is_too_high_the_walk_meets_the_bound() -> None:
    from peakfold.packing.heuristics.orders import STRATEGIES

    # Shelves happen to meet this one; no plain order does.
    plain = [run for name, run in STRATEGIES.items() if "shelf" not in name]
    assert min(LADDER.height(run(LADDER)) for run in plain) > 2305
    found: list[int] = []
    wander(LADDER, 2305, lambda at, _: found.append(LADDER.height(at)), lambda: False, 0)
    assert found[-1] == 2305
    packed = pack(LADDER)
    assert (packed.height, packed.optimal) == (2305, True)
    assert packed.offsets.tolist() == pack(LADDER).offsets.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_pins_stay_and_the_clock_ends_it(seed: int) -> None:
    pinned = Problem.of_pieces(
        size=[8, 8],
        first=[0, 2, 3],
        start=[0, 1, 0],
        stop=[2, 2, 1],
        lower=[0, 4, 0],
        upper=[4, 8, 8],
        fixed=[4, FREE],
    )
    found: list[np.ndarray] = []
    wander(pinned, 0, lambda offsets, _: found.append(offsets), lambda: False, seed)
    assert found[-1].tolist() == [4, 8]
    once: list[np.ndarray] = []
    wander(LADDER, 0, lambda offsets, _: once.append(offsets), lambda: True, seed)
    assert len(once) == 1
    only = Problem.of_pieces(
        size=[8], first=[0, 2], start=[0, 1], stop=[2, 2], lower=[0, 4], upper=[4, 8], fixed=[16]
    )
    wander(only, 0, lambda offsets, _: once.append(offsets), lambda: False, seed)
    assert once[-1].tolist() == [16]
