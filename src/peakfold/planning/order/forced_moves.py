"""States of a search and the moves between them, forced ones included.

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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from peakfold.planning.order.budget import Effort
from peakfold.planning.order.fragment import Fragment
from peakfold.planning.order.uninterrupted_chains import closed_runs

# Longest forced run that is looked for at once; longer ones are found in parts.
_RUN = 24


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


@dataclass(frozen=True, slots=True)
class Moves:
    """What is worked out once for all states of a fragment.

    Attributes:
        runs: per op, what runs in one go when it is next; see `closed_runs`.
        near: per op, the ops whose own step it can make cheaper, as a set.
    """

    runs: tuple[tuple[int, ...], ...]
    near: tuple[int, ...]

    @classmethod
    def of(cls, fragment: Fragment) -> Moves:
        """Work them out."""
        near: list[int] = []
        for op, succs in enumerate(fragment.succs):
            close = sum(1 << after for after in succs)
            for others, _ in fragment.frees[op]:
                close |= others
            near.append(close)
        return cls(closed_runs(fragment), tuple(near))


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


def settle(
    fragment: Fragment,
    moves: Moves,
    before: State,
    state: State,
    ran: tuple[int, ...],
    effort: Effort,
) -> tuple[State, tuple[int, ...]]:
    """Make forced moves of a state; the state behind them, and the moves.

    A move that was not forced before, and that nothing run since is near to, is not looked at
    again unless there is more room now: that may miss a forced move, which costs time only.

    Args:
        fragment: the ops.
        moves: of the fragment.
        before: an earlier state without forced moves, or `state` itself.
        state: where to start.
        ran: what ran in between.
        effort: charged for the steps looked at; without any left, what is made by then is all.
    """
    made: list[int] = []
    roomier = state is before or state.live < before.live or state.peak > before.peak
    look = state.ready if roomier else _near(moves, ran) & state.ready
    while look and effort.left:
        op = (look & -look).bit_length() - 1
        look &= look - 1
        found = _forced_run(fragment, state, op, effort)
        if found is not None:
            lower = found[0].live < state.live
            state, more = found
            made += more
            look = (state.ready if lower else look | _near(moves, more)) & state.ready
    return state, tuple(made)


def _near(moves: Moves, ran: Iterable[int]) -> int:
    near = 0
    for op in ran:
        near |= moves.near[op]
    return near


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
