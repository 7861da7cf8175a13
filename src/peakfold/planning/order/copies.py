"""Views: which to alias and which to copy, as one choice with the order.

An alias costs no bytes of its own, but it holds on to what it lies in. With offsets that is
little: liveness is kept by byte range, so a slice keeps alive the bytes it covers and no more.
It can still forbid an op to run in place: ``x + x[0:1]`` must not write over x if the slice lies
in it. Shared objects are whole: there a small slice keeps all of a large base alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.context import PlanningContext
from peakfold.planning.timeline import Timeline

Family = Literal["arena", "objects"]
# Peaks that are worked on, and copies tried at each.
_ROUNDS = 16
_TRIALS = 24


def choose_copies(
    context: PlanningContext, aliasing: Aliasing, family: Family = "arena"
) -> Aliasing:
    """Copy views instead of aliasing them where that lowers the peak of the context's order.

    At the first step of the peak, the views in each storage that is alive there are copied on
    trial, one by one and all together; the trial with the lowest peak is kept, and of equal
    peaks the one with the fewest steps at it. That goes on until no trial is better, for
    `_ROUNDS` rounds at most, so the result is never worse than `aliasing`.

    Args:
        context: the prepared graph and its order.
        aliasing: the sharing to start from.
        family: ``arena`` counts live bytes by byte range; ``objects`` counts every storage
            whole, from its first step to its last.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.planner import planning_context
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4,64]\\n"
        ...     "a: int8[4,64] = opaque(x)\\n"
        ...     "b: int8[1,64] = slice(a, starts=[0], ends=[1], axes=[0])\\n"
        ...     "c: int8[4,64] = opaque(x)\\nd: int8[1,64] = opaque(b, c)\\noutput d")
        >>> context = planning_context(g, PlanOptions())
        >>> found = choose_copies(context, context.full_aliasing, "objects")
        >>> [context.index.name(t) for t in sorted(found.copied)]
        ['b']
    """
    timeline = context.timeline(aliasing)
    best = _badness(timeline, family)
    for _ in range(_ROUNDS):
        better: tuple[tuple[int, int], Aliasing] | None = None
        for group in _groups(timeline, family):
            tried = replace(aliasing, copied=aliasing.copied | group)
            badness = _badness(context.timeline(tried), family)
            if badness < (best if better is None else better[0]):
                better = badness, tried
        if better is None:
            return aliasing
        best, aliasing = better
        timeline = context.timeline(aliasing)
    return aliasing


def _live(timeline: Timeline, family: Family) -> np.ndarray:
    """(steps,) bytes that the buffers of a family take at each step."""
    if family == "arena":
        return timeline.live
    change = np.zeros(len(timeline.live) + 1, dtype=np.int64)
    for buffer in timeline.buffers:
        if buffer.pieces:
            change[min(p.start for p in buffer.pieces)] += buffer.size
            change[max(p.stop for p in buffer.pieces)] -= buffer.size
    return np.cumsum(change)[:-1]


def _badness(timeline: Timeline, family: Family) -> tuple[int, int]:
    live = _live(timeline, family)
    peak = int(live.max(initial=0))
    return peak, int((live == peak).sum())


def _groups(timeline: Timeline, family: Family) -> Iterator[frozenset[int]]:
    """Views worth a trial: those of the storages alive at the peak, the largest first."""
    step = int(_live(timeline, family).argmax()) if len(timeline.live) else 0
    views: dict[int, list[int]] = {}
    for alias in timeline.storages.aliases:
        if alias.how == "view":
            views.setdefault(timeline.storages.of[alias.output], []).append(alias.output)
    around = [
        buffer
        for buffer in timeline.buffers
        if buffer.storage in views
        and buffer.pieces
        and min(p.start for p in buffer.pieces) <= step < max(p.stop for p in buffer.pieces)
    ]
    count = 0
    for buffer in sorted(around, key=lambda b: (-b.size, b.storage)):
        members = views[buffer.storage]
        groups = [frozenset({view}) for view in members]
        groups += [frozenset(members)] if len(members) > 1 else []
        for group in groups:
            count += 1
            if count > _TRIALS:
                return
            yield group
