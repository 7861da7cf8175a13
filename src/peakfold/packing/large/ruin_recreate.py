"""Many trials of first fit, then ruin and recreate: what `pack` does with large problems.

Trials
    Plain orders, shelves (`weight_classes`), then random members of the family, each given up
    once it is above the best so far.

Ruin and recreate
    What ends near the top of a packing came too late in its order: only there was room left.
    Such buffers move up in the order and everything is placed again. Taking out only the
    buffers around the peak and putting them back into the rest was tried and gains nothing
    once the orders are good: the gaps around a window are those of the packing that failed.

Both are decided by numbers of passes, and trials run in groups whose size depends on the
problem alone, so the result is the same on any number of cores; the clock is an outer stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from peakfold.packing.heuristics.orders import (
    order_by_area,
    order_by_length,
    order_by_load,
    order_by_size,
)
from peakfold.packing.heuristics.weight_classes import Traits, shelf_order, traits
from peakfold.packing.large.compiled_first_fit import NO_LIMIT, Fitter, Trial
from peakfold.packing.problem import Int64, Problem

WORK = 1_500_000
"""Buffers placed in all trials together; half as many again by ruin and recreate."""
TRIALS = 8, 400
"""Least and greatest number of trials."""
DRY = 16
"""Trials without gain after which the rest is skipped."""
ALONE = 300_000
"""Above this many buffers one trial runs at a time, for its memory."""
HASTE = (0.9, 0.6)
"""By what a buffer's place in the order shrinks, in the two chains of ruin and recreate."""

Offer = Callable[[Int64, str], None]
Done = Callable[[], bool]


def improve(problem: Problem, seed: int, height: int, bound: int, offer: Offer, done: Done) -> None:
    """Offer ever lower packings of a plain problem without a conflict relation.

    Args:
        problem: the buffers.
        seed: of the random orders.
        height: only packings below this are offered; `NO_LIMIT` if there is none yet.
        bound: no packing is lower.
        offer: called with offsets and a name.
        done: polled after each group of trials.
    """
    fitter = Fitter(problem)
    best: tuple[int, Int64, Int64, bool] | None = None
    tried = last_gain = 0
    many = min(max(WORK // max(problem.buffers, 1), TRIALS[0]), TRIALS[1])
    for group in _groups(trials(problem, seed), problem.buffers):
        for trial, (offsets, reached) in zip(group, fitter.race(group, height - 1), strict=True):
            tried += 1
            if reached < height:
                height, last_gain = reached, tried
                best = reached, offsets, trial.order, trial.best_gap
                offer(offsets, trial.name)
        if done() or tried >= many or tried - last_gain >= DRY:
            break
    if best is not None and not done() and problem.buffers <= ALONE:
        recreate(fitter, best, bound, max(many // 4, 2), offer, done)


def recreate(
    fitter: Fitter,
    best: tuple[int, Int64, Int64, bool],
    bound: int,
    rounds: int,
    offer: Offer,
    done: Done,
) -> None:
    """Move what ends near the top up in the order and place everything again, for `rounds`.

    Args:
        fitter: of the problem.
        best: height, offsets, order and best gap of the packing to start from.
        bound: no packing is lower; what ends above the middle between it and the height moves.
        rounds: of two passes each, which differ in how far buffers move; the lower one goes on.
            Half of `DRY` rounds in a row without gain end it sooner.
        offer: called with offsets and a name.
        done: polled after each round.
    """
    height, offsets, order, best_gap = best
    size = fitter.problem.size
    lowest, dry = height, 0
    for _ in range(rounds):
        late = offsets + size > (bound + min(height, lowest)) // 2
        group = []
        for haste in HASTE:
            place = np.empty(len(order))
            place[order] = np.arange(len(order))
            place[late] *= haste
            group.append(Trial("fast-recreate", np.argsort(place, kind="stable"), best_gap))
        results = fitter.race(group, NO_LIMIT)
        at = int(np.argmin([reached for _, reached in results]))
        (offsets, height), order = results[at], group[at].order
        dry += 1
        if height < lowest:
            lowest, dry = height, 0
            offer(offsets, "fast-recreate")
        if done() or dry >= DRY // 2:
            return


def _groups(found: Iterator[Trial], buffers: int) -> Iterator[list[Trial]]:
    """The first trial alone, as it often meets the bound; then two at a time."""
    yield [next(found)]
    while True:
        yield [next(found) for _ in range(1 if buffers > ALONE else 2)]


def trials(problem: Problem, seed: int) -> Iterator[Trial]:
    """Endless: the plain orders and the best shelves first, then random shelves."""
    yield Trial("fast-size-first", order_by_size(problem))
    found = traits(problem)
    yield Trial("fast-shelf", shelf_order(found))
    yield Trial("fast-load", order_by_load(problem), True)
    yield Trial("fast-shelf-reverse", shelf_order(found, reverse=True))
    yield Trial("fast-shelf-peak", shelf_order(found, length=0.0, by_mean=False))
    yield Trial("fast-load-first", order_by_load(problem))
    yield Trial("fast-size", order_by_size(problem), True)
    yield Trial("fast-length", order_by_length(problem), True)
    yield Trial("fast-area-first", order_by_area(problem))
    rng = np.random.default_rng(seed)
    while True:
        yield _random(found, rng)


def _random(found: Traits, rng: np.random.Generator) -> Trial:
    by_mean = bool(rng.integers(2))
    order = shelf_order(
        found,
        ratio=float(rng.choice([1.1, 1.2, 1.35, 1.5, 1.8, 2.0])),
        length=float(rng.choice([0.0, 0.25, 0.5, 0.75, 1.0])),
        load=float(rng.choice([4.0, 6.0, 8.0, 10.0, 12.0] if by_mean else [4.0, 8.0, 16.0, 32.0])),
        by_mean=by_mean,
        reverse=bool(rng.integers(2)),
    )
    return Trial("fast-shelf-random", order, bool(rng.random() < 0.25))
