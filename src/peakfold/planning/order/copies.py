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
from peakfold.planning.context import Study
from peakfold.planning.timeline import Timeline

Family = Literal["arena", "objects"]
# Peaks that are worked on, and copies tried at each.
_ROUNDS = 16
_TRIALS = 24


def sharing_of(study: Study) -> Aliasing:
    """The sharing inside storages that a study's options and target allow, all of it.

    Args:
        study: the prepared graph.
    """
    options = study.options
    return Aliasing(inplace=options.inplace, views=options.views and study.target.views)


def choose_copies(study: Study, aliasing: Aliasing, family: Family = "arena") -> Aliasing:
    """Copy views instead of aliasing them where that lowers the peak of the study's order.

    At the first step of the peak, the views in each storage that is alive there are copied on
    trial, one by one and all together; the trial with the lowest peak is kept, and of equal
    peaks the one with the fewest steps at it. That goes on until no trial is better, for
    `_ROUNDS` rounds at most, so the result is never worse than `aliasing`.

    Args:
        study: the prepared graph and its order.
        aliasing: the sharing to start from.
        family: ``arena`` counts live bytes by byte range; ``objects`` counts every storage
            whole, from its first step to its last.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.planner import study_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4,64]\\n"
        ...     "a: int8[4,64] = opaque(x)\\n"
        ...     "b: int8[1,64] = slice(a, starts=[0], ends=[1], axes=[0])\\n"
        ...     "c: int8[4,64] = opaque(x)\\nd: int8[1,64] = opaque(b, c)\\noutput d")
        >>> study = study_graph(g, PlanOptions())
        >>> found = choose_copies(study, sharing_of(study), "objects")
        >>> [study.index.name(t) for t in sorted(found.copied)]
        ['b']
    """
    played = study.play(aliasing)
    best = _badness(played, family)
    for _ in range(_ROUNDS):
        better: tuple[tuple[int, int], Aliasing] | None = None
        for group in _groups(played, family):
            tried = replace(aliasing, copied=aliasing.copied | group)
            badness = _badness(study.play(tried), family)
            if badness < (best if better is None else better[0]):
                better = badness, tried
        if better is None:
            return aliasing
        best, aliasing = better
        played = study.play(aliasing)
    return aliasing


def _live(played: Timeline, family: Family) -> np.ndarray:
    """(steps,) bytes that the buffers of a family take at each step."""
    if family == "arena":
        return played.live
    change = np.zeros(len(played.live) + 1, dtype=np.int64)
    for block in played.blocks:
        if block.pieces:
            change[min(p.start for p in block.pieces)] += block.size
            change[max(p.stop for p in block.pieces)] -= block.size
    return np.cumsum(change)[:-1]


def _badness(played: Timeline, family: Family) -> tuple[int, int]:
    live = _live(played, family)
    peak = int(live.max(initial=0))
    return peak, int((live == peak).sum())


def _groups(played: Timeline, family: Family) -> Iterator[frozenset[int]]:
    """Views worth a trial: those of the storages alive at the peak, the largest first."""
    step = int(_live(played, family).argmax()) if len(played.live) else 0
    views: dict[int, list[int]] = {}
    for alias in played.storages.aliases:
        if alias.how == "view":
            views.setdefault(played.storages.of[alias.output], []).append(alias.output)
    around = [
        block
        for block in played.blocks
        if block.storage in views
        and block.pieces
        and min(p.start for p in block.pieces) <= step < max(p.stop for p in block.pieces)
    ]
    count = 0
    for block in sorted(around, key=lambda b: (-b.size, b.storage)):
        members = views[block.storage]
        groups = [frozenset({view}) for view in members]
        groups += [frozenset(members)] if len(members) > 1 else []
        for group in groups:
            count += 1
            if count > _TRIALS:
                return
            yield group
