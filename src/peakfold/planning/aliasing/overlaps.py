"""Which results to write over part of an operand: as few as a lower peak needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.context import PlanningContext
from peakfold.planning.timeline import Timeline


def with_all_overlaps(context: PlanningContext, aliasing: Aliasing) -> Aliasing:
    """The sharing with every overlap that the facts allow.

    Args:
        context: the prepared graph.
        aliasing: the rest of the sharing.
    """
    return replace(aliasing, overlaps=frozenset(_candidates(context)))


def overlap_choices(
    context: PlanningContext, aliasing: Aliasing, over: Callable[[], bool] = lambda: False
) -> list[tuple[Aliasing, Timeline]]:
    """Sets of overlaps, each with a lower peak than the one before it, and what they do.

    An overlap ties two tensors to a fixed distance, which costs the packer freedom, and it
    lowers the live bytes of the step of its op and of no other. So the op at the peak must
    overlap for any lower peak, and others need not: overlaps are added at the peak until an
    op there has none to offer.

    Args:
        context: the prepared graph and its order.
        aliasing: the sharing to start from.
        over: polled before each set; True ends the search.

    Returns:
        Choices from the highest to the lowest peak; none where overlaps do not help.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.planner import planning_context
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\na: int8[640] = opaque(x)\\n"
        ...     'b: int8[320] = opaque(a) overlap=["0-64"]\\n'
        ...     'c: int8[64] = opaque(b) overlap=["0-0"]\\noutput c')
        >>> found = overlap_choices(planning_context(g, PlanOptions()), Aliasing())
        >>> [(sorted(chosen.overlaps), timeline.peak) for chosen, timeline in found]
        [([1], 704)]
    """
    candidates = _candidates(context)
    chosen: frozenset[int] = frozenset()
    found: list[tuple[Aliasing, Timeline]] = []
    timeline = context.timeline(aliasing) if candidates else None
    while timeline is not None:
        at_peak = {
            context.order[step] for step in _peak_steps(timeline) if step < len(context.order)
        }
        if not at_peak <= candidates - chosen or over():
            break
        chosen |= at_peak
        tried = replace(aliasing, overlaps=chosen)
        lower = context.timeline(tried)
        if lower.peak >= timeline.peak:
            break
        found.append((tried, lower))
        timeline = lower
    return found


def _candidates(context: PlanningContext) -> frozenset[int]:
    return frozenset(op for op, fact in enumerate(context.facts) if fact.overlap)


def _peak_steps(timeline: Timeline) -> Iterator[int]:
    return (int(step) for step in np.flatnonzero(timeline.live == timeline.peak))
