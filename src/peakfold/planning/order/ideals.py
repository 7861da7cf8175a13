"""The exact search: best first over the sets of ops that may have run (ideals).

What is alive follows from the set of done ops alone, so of all ways to reach a set only the
one with the lowest peak matters. This is dynamic programming over the ideals of the graph
(Liberis and Lane 2019, arXiv 1910.05110; Ahn et al. 2020, arXiv 2003.02369), taken in the
order of the peak so far (Dijkstra with maxima): sets whose peak is above the optimum are
never looked into, and when the budget ends the lowest peak still open is a proven bound.

Two more facts keep the sets few: forced moves (see `moves`) and closed runs (see `runs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from peakfold.planning.order.budget import Effort
from peakfold.planning.order.forced_moves import Moves, State, run_all, settle
from peakfold.planning.order.fragment import Fragment, bits

# States held at most, some hundred bytes each.
_STATES = 600_000


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
        self.moves = Moves.of(fragment)
        self.ceiling = ceiling
        self.effort = effort
        self.root = State(0, fragment.ready_at_first(), fragment.start, floor)
        self.best: dict[int, int] = {}
        self.came: dict[int, tuple[int, tuple[int, ...]]] = {}
        # Lowest peak first; of equals the one nearest to the end, then the one with least alive.
        self.heap: list[tuple[int, int, int, int, State]] = []

    def run(self) -> Found:
        full = self.fragment.full
        self._offer(self.root, self.root, ())
        while self.heap:
            peak, _, _, _, state = heappop(self.heap)
            if peak > self.best[state.done]:
                continue
            if state.done == full:
                return Found(self._path(full), peak, peak)
            if not self._expand(state) or len(self.best) > _STATES:
                bound = min((entry[0] for entry in self.heap), default=self.ceiling)
                return Found(None, self.ceiling, min(bound, self.ceiling))
        return Found(None, self.ceiling, self.ceiling)

    def _expand(self, state: State) -> bool:
        """Queue what may follow a state; false, with the state queued again, without effort."""
        for op in bits(state.ready):
            ran = self.moves.runs[op]
            after = run_all(self.fragment, state, ran)
            if after.peak < self.ceiling:
                self._offer(after, state, ran)
            if not self.effort.spend(1):
                self._queue(state)
                return False
        return True

    def _offer(self, state: State, before: State, ran: tuple[int, ...]) -> None:
        """Settle a new state and queue it unless its set was reached as cheaply before."""
        known = self.best.get(state.done)
        if known is not None and known <= state.peak:
            return
        self.best[state.done] = state.peak
        settled, more = settle(self.fragment, self.moves, before, state, ran, self.effort)
        if more:
            known = self.best.get(settled.done)
            if known is not None and known <= settled.peak:
                return
            self.best[settled.done] = settled.peak
        if settled.done:
            self.came[settled.done] = (before.done, ran + more)
        self._queue(settled)

    def _queue(self, state: State) -> None:
        size = -state.done.bit_count()
        heappush(self.heap, (state.peak, size, state.live, state.done, state))

    def _path(self, done: int) -> tuple[int, ...]:
        runs: list[tuple[int, ...]] = []
        while done:
            done, ran = self.came[done]
            runs.append(ran)
        return tuple(op for ran in reversed(runs) for op in ran)
