"""The exact search: best first over the sets of ops that may have run (ideals).

What is alive follows from the set of done ops alone, so of all ways to reach a set only the
one with the lowest peak matters. This is dynamic programming over the ideals of the graph
(Liberis and Lane 2019, arXiv 1910.05110; Ahn et al. 2020, arXiv 2003.02369), taken in the
order of the peak so far (Dijkstra with maxima): sets whose peak is above the optimum are
never looked into, and when the budget ends the lowest peak still open is a proven bound.

Some moves are forced. From a state with peak so far p, let S = v1 .. vk be ready ops, each
needing the one before, whose steps cost at most p each, with no fewer bytes alive behind any
shorter part of S, the empty one included, than behind all of S. Then some best completion
starts with S. Take any completion and move S to its front. (1) The steps of S cost at most p.
(2) Another op u that ran after a set A, now runs after A | S. ``live`` is submodular (see
`model`), so live(A | S) <= live(A) + live(I | S) - live(I | (S & A)) <= live(A) for the state
I. (3) More readers have run before u, so u can be in place wherever it could before, and its
step costs no more than it did. (4) Where the prefix holds all of S anyway, nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from peakfold.planning.order.effort import Effort
from peakfold.planning.order.fragment import Fragment, bits
from peakfold.planning.order.runs import closed_runs

# Longest forced run that is looked for at once; longer ones are found in parts.
_RUN = 24


@dataclass(frozen=True, slots=True)
class Found:
    """What a search of a fragment gave.

    Attributes:
        order: the best order below the ceiling (numbers of the fragment), if one was found.
        peak: its peak in bytes; the ceiling if there is none.
        bound: bytes that no order of the fragment goes below, nor below the ceiling if none
            was found there.
    """

    order: tuple[int, ...] | None
    peak: int
    bound: int


class State(NamedTuple):
    """A set of done ops and how it was reached.

    Attributes:
        done, ready: as bit sets.
        live: bytes alive.
        peak: the most bytes in a step so far, or the floor of the search.
    """

    done: int
    ready: int
    live: int
    peak: int


def search_ideals(fragment: Fragment, floor: int, ceiling: int, effort: Effort) -> Found:
    """Find the order of a fragment with the lowest peak.

    Args:
        fragment: the ops to order.
        floor: bytes that no order goes below; orders that reach it are not told apart.
        ceiling: only orders below it are of interest.
        effort: when it ends, the search ends.

    Example:
        >>> from peakfold.planning.order.fragment import Fragment
        >>> two = Fragment(ops=(0, 1), need=(0, 0), succs=((), ()), extra=(9, 1),
        ...     hosts=((), ()), saving=(0, 0), gain=(1, 1), frees=((), ()), dying=(),
        ...     start=0, first=0)
        >>> search_ideals(two, 0, 100, Effort(1.0))
        Found(order=(0, 1), peak=9, bound=9)
    """
    return _Search(fragment, floor, ceiling, effort).run()


class _Search:
    def __init__(self, fragment: Fragment, floor: int, ceiling: int, effort: Effort) -> None:
        self.fragment = fragment
        self.runs = closed_runs(fragment)
        self.ceiling = ceiling
        self.effort = effort
        self.root = State(0, fragment.ready_at_first(), fragment.start, floor)
        self.best: dict[int, int] = {}
        self.came: dict[int, tuple[int, tuple[int, ...]]] = {}
        # Lowest peak first; of equals the one nearest to the end, then the one with least alive.
        self.heap: list[tuple[int, int, int, int, State]] = []

    def run(self) -> Found:
        full = self.fragment.full
        self._offer(self.root, 0, ())
        while self.heap:
            peak, _, _, _, state = heappop(self.heap)
            if peak > self.best[state.done]:
                continue
            if state.done == full:
                return Found(self._path(full), peak, peak)
            for op in bits(state.ready):
                after = run_all(self.fragment, state, self.runs[op])
                if after.peak < self.ceiling:
                    self._offer(after, state.done, self.runs[op])
            if not self.effort.spend(state.ready.bit_count()):
                bound = min((entry[0] for entry in self.heap), default=self.ceiling)
                return Found(None, self.ceiling, min(bound, self.ceiling))
        return Found(None, self.ceiling, self.ceiling)

    def _offer(self, state: State, before: int, ran: tuple[int, ...]) -> None:
        """Settle a new state and queue it unless its set was reached as cheaply before."""
        known = self.best.get(state.done)
        if known is not None and known <= state.peak:
            return
        self.best[state.done] = state.peak
        settled, more = settle(self.fragment, state, self.effort)
        if more:
            known = self.best.get(settled.done)
            if known is not None and known <= settled.peak:
                return
            self.best[settled.done] = settled.peak
        if settled.done:
            self.came[settled.done] = (before, ran + more)
        size = -settled.done.bit_count()
        heappush(self.heap, (settled.peak, size, settled.live, settled.done, settled))

    def _path(self, done: int) -> tuple[int, ...]:
        runs: list[tuple[int, ...]] = []
        while done:
            done, ran = self.came[done]
            runs.append(ran)
        return tuple(op for ran in reversed(runs) for op in ran)


def run_all(fragment: Fragment, state: State, ops: tuple[int, ...]) -> State:
    """The state behind some ops, each of which is ready when its turn comes.

    Args:
        fragment: the ops.
        state: where they start.
        ops: what runs.
    """
    done, ready, live, peak = state
    for op in ops:
        cost, live = fragment.step(done, live, op)
        peak = max(peak, cost)
        done |= 1 << op
        ready &= ~(1 << op)
        for after in fragment.succs[op]:
            if not fragment.need[after] & ~done:
                ready |= 1 << after
    return State(done, ready, live, peak)


def settle(fragment: Fragment, state: State, effort: Effort) -> tuple[State, tuple[int, ...]]:
    """Make all forced moves of a state; the state behind them, and the moves.

    Args:
        fragment: the ops.
        state: where to start.
        effort: charged for the steps looked at.
    """
    moves: list[int] = []
    looked = True
    while looked:
        looked = False
        for op in bits(state.ready):
            after = _forced_run(fragment, state, op, effort)
            if after is not None:
                state, ran = after
                moves += ran
                looked = True
                break
    return state, tuple(moves)


def _forced_run(
    fragment: Fragment, state: State, op: int, effort: Effort
) -> tuple[State, list[int]] | None:
    """The shortest forced run that begins with a ready op, if there is one."""
    done, ready, live, ran = state.done, state.ready, state.live, [op]
    need, succs = fragment.need, fragment.succs
    while True:
        cost, live = fragment.step(done, live, op)
        if cost > state.peak:
            break
        done |= 1 << op
        ready &= ~(1 << op)
        fresh = [after for after in succs[op] if not need[after] & ~done]
        for after in fresh:
            ready |= 1 << after
        if live <= state.live:
            effort.spend(len(ran))
            return State(done, ready, live, state.peak), ran
        if not fresh or len(ran) == _RUN:
            break
        op = fresh[0]
        ran.append(op)
    effort.spend(len(ran))
    return None
