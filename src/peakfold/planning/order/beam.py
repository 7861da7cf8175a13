"""Beam search: the most promising sets of done ops, level by level."""

from __future__ import annotations

from peakfold.planning.order.budget import Effort
from peakfold.planning.order.forced_moves import Moves, State, run_all, settle
from peakfold.planning.order.fragment import Fragment, bits

WIDTHS = (16, 64, 256, 1024)


def search_beam(
    fragment: Fragment, floor: int, ceiling: int, width: int, effort: Effort
) -> tuple[int, ...] | None:
    """An order of a fragment whose peak is below the ceiling, if the beam meets one.

    States are sets of done ops, as in `ideals`, forced moves included. They are kept by the
    number of ops done; of each level the `width` states with the lowest peak so far, and
    among those the fewest bytes alive, go on.

    Args:
        fragment: the ops to order.
        floor: peaks below it count as equal.
        ceiling: states that reach it are dropped.
        width: states kept a level at most; fewer where the effort would not last.
        effort: when it ends, there is no result.

    Returns:
        Numbers of the fragment's ops in the order they run, or `None`.
    """
    moves = Moves.of(fragment)
    root = State(0, fragment.ready_at_first(), fragment.start, floor)
    first, ran_first = settle(fragment, moves, root, root, (), effort)
    came: dict[int, tuple[int, tuple[int, ...]]] = {first.done: (0, ran_first)}
    count = len(fragment.ops)
    levels: list[dict[int, State]] = [{} for _ in range(count + 1)]
    levels[first.done.bit_count()][first.done] = first
    begun, expanded = effort.left, 0
    for size in range(count):
        wide = width
        if expanded:
            # As wide as lets the beam reach the end with what is left.
            each = (begun - effort.left) / expanded
            wide = min(width, max(1, int(effort.left / (count - size) / each)))
        kept = sorted(levels[size].values(), key=lambda s: (s.peak, s.live, s.done))[:wide]
        levels[size] = {}
        for state in kept:
            if not effort.spend(state.ready.bit_count()):
                return None
            expanded += 1
            for after, ran in _children(fragment, moves, state, ceiling, effort):
                level = levels[after.done.bit_count()]
                known = level.get(after.done)
                if known is None or after.peak < known.peak:
                    level[after.done] = after
                    came[after.done] = (state.done, ran)
    return _path(came, fragment.full) if levels[count] else None


def _children(
    fragment: Fragment, moves: Moves, state: State, ceiling: int, effort: Effort
) -> list[tuple[State, tuple[int, ...]]]:
    found: list[tuple[State, tuple[int, ...]]] = []
    for op in bits(state.ready):
        ran = moves.runs[op]
        after = run_all(fragment, state, ran)
        if after.peak < ceiling:
            settled, more = settle(fragment, moves, state, after, ran, effort)
            found.append((settled, ran + more))
    return found


def _path(came: dict[int, tuple[int, tuple[int, ...]]], done: int) -> tuple[int, ...]:
    runs: list[tuple[int, ...]] = []
    while done:
        done, ran = came[done]
        runs.append(ran)
    return tuple(op for ran in reversed(runs) for op in ran)
