"""Local search: exact search on windows around the peak, and random moves between them."""

from __future__ import annotations

import random

from peakfold.planning.order.beam import search_beam
from peakfold.planning.order.budget import Effort
from peakfold.planning.order.ideals import search_ideals
from peakfold.planning.order.order_state import OrderState

# Widths of windows in ops, and the steps the exact search of one may take.
_WIDTHS = (12, 24, 48, 96, 192)
_STEPS = 12_000
_BEAM = 16
# Random moves before windows are tried again, and how often that may fail in a row.
_MOVES = 40
_ROUNDS = 20
_REACH = 64


def improve_windows(
    state: OrderState, begin: int, end: int, floor: int, effort: Effort, seed: int
) -> None:
    """Lower the peak of positions ``[begin, end)`` by rearranging runs of ops around it.

    The ops of a window are ordered anew with all before and behind it held fixed: by
    `search_ideals`, or `search_beam` where that takes too long. Wider windows are tried where
    narrow ones do not help. When none helps, ops are moved at random within the room their
    neighbours leave, as long as the peak does not rise, and windows are tried again.

    Args:
        state: the order; changed in place, its peak never rises.
        begin: first of the positions, which every order fills with the same ops.
        end: one behind the last.
        floor: bytes; a peak of this much is not worked on.
        effort: when it ends, the search ends.
        seed: of the random moves.
    """
    rng = random.Random(seed)
    failed = 0
    best = state.peak(begin, end)
    while best > floor and effort.left and failed < _ROUNDS:
        if _lower_peak(state, begin, end, floor, effort):
            now = state.peak(begin, end)
            failed = 0 if now < best else failed
            best = now
        else:
            failed += 1
            _shake(state, begin, end, effort, rng)


def _lower_peak(state: OrderState, begin: int, end: int, floor: int, effort: Effort) -> bool:
    """Rearrange a window so that the first peak of ``[begin, end)`` is gone."""
    at = state.peak_at(begin, end)
    peak = state.cost[at]
    for width in _WIDTHS:
        # The peak is the end of what went wrong before it more often than the start.
        low = max(begin, at - (2 * width) // 3)
        high = min(end, low + width)
        fragment = state.fragment(low, high)
        with effort.at_most(_STEPS):
            order = search_ideals(fragment, floor, peak, effort).order
        if order is None and width > _WIDTHS[1]:
            with effort.at_most(_STEPS):
                order = search_beam(fragment, floor, peak, _BEAM, effort)
        if order is not None:
            state.rewrite(low, fragment, order)
            return True
        if (low, high) == (begin, end) or not effort.left:
            return False
    return False


def _shake(state: OrderState, begin: int, end: int, effort: Effort, rng: random.Random) -> None:
    """Move ops near the peak to random places, none of which may raise the peak."""
    peak = state.peak(begin, end)
    centre = state.peak_at(begin, end)
    for _ in range(_MOVES):
        low, high = max(begin, centre - 2 * _REACH), min(end, centre + _REACH)
        at = rng.randrange(low, high)
        first, last = _room(state, at, max(begin, at - _REACH), min(end, at + _REACH))
        to = rng.randrange(first, last)
        if to == at or not effort.spend(abs(to - at) + 1):
            continue
        low, high = min(at, to), max(at, to) + 1
        fragment = state.fragment(low, high)
        order = list(range(high - low))
        order.insert(to - low, order.pop(at - low))
        if fragment.peak(order) <= peak:
            state.rewrite(low, fragment, order)


def _room(state: OrderState, at: int, low: int, high: int) -> tuple[int, int]:
    """Positions ``[first, last)`` within ``[low, high)`` that the op at `at` may take."""
    op = state.order[at]
    before = [state.where[p] + 1 for p in state.model.preds[op]]
    behind = [state.where[s] for s in state.model.succs[op]]
    return max([low, *before]), min([high, *behind])
