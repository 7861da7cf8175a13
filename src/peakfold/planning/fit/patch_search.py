"""Where to split a network into bands of rows, and into how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from peakfold.errors import PeakfoldError
from peakfold.ir import Graph
from peakfold.ops import context, lookup
from peakfold.planning.context import PlanningContext
from peakfold.planning.options import PlanOptions
from peakfold.planning.planner import planning_context
from peakfold.target import load_target
from peakfold.transform import Split
from peakfold.transform.split import exits

COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
_MOST = 400
_MISSES = 2
"""The whole result and the whole image may lie side by side: two bands may not be enough."""


@dataclass(frozen=True, slots=True)
class PatchChoice:
    """A split and what it does.

    Attributes:
        split: the step.
        live_bytes: highest sum of live bytes in file order; an arena needs this much or more.
        macs: multiply-accumulates of the split network; `None` when an op's are not known.
    """

    split: Split
    live_bytes: int
    macs: int | None


def total_macs(graph: Graph) -> int | None:
    """Multiply-accumulates of all ops, or `None` when those of one are not known."""
    total = 0
    for op in graph.ops:
        rule = lookup(op.kind).macs
        macs = rule(context(op, graph.by_name)) if rule is not None else None
        if macs is None:
            return None
        total += macs
    return total


def live_peak(context: PlanningContext) -> int:
    """Highest sum of live bytes in the context's order, with in-place results and views."""
    return context.timeline(context.full_aliasing).peak


def patch_choices(
    graph: Graph, options: PlanOptions, over: Callable[[], bool] = lambda: False
) -> list[PatchChoice]:
    """Splits that lower the live bytes, best trade-offs only: fewer bytes cost more work.

    Every exit behind the peak is tried with growing numbers of bands until the peak no longer
    falls twice in a row; `_MOST` splits in all.

    Args:
        graph: as loaded.
        options: of the plan; the order stays the file's.
        over: polled before each split; True ends the search.
    """
    options = replace(options, split=None, order="file", time_limit=0.0)
    context = planning_context(graph, options)
    timeline = context.timeline(context.full_aliasing)
    least, found, left = timeline.peak, [], _MOST
    peak_op = context.order[min(timeline.peak_step, len(context.order) - 1)]
    folded = context.graph
    for name in _behind(folded, peak_op, over):
        best, misses = least, 0
        for choice in _bands(graph, options, name):
            left -= 1
            if choice.live_bytes < best:
                best, misses = choice.live_bytes, 0
                found.append(choice)
            else:
                misses += 1
            if left <= 0 or over():
                return _front(found)
            if misses == _MISSES:
                break
    return _front(found)


def _behind(graph: Graph, peak_op: int, over: Callable[[], bool]) -> Iterator[str]:
    """Exits whose part holds the op of the peak."""
    for name in exits(graph, over):
        if graph.producer[name] >= peak_op:
            yield name


def _bands(graph: Graph, options: PlanOptions, name: str) -> Iterator[PatchChoice]:
    most = load_target(options.target).concat_operands or COUNTS[-1]
    for count in COUNTS:
        if count > most:
            return
        split = Split(name, count)
        try:
            context = planning_context(graph, replace(options, split=split))
        except PeakfoldError:
            return  # fewer rows than bands, or a band of nothing but padding
        yield PatchChoice(split, live_peak(context), total_macs(context.graph))


def _front(found: list[PatchChoice]) -> list[PatchChoice]:
    """Choices that no other beats in both bytes and work, least bytes first."""
    front: list[PatchChoice] = []
    for choice in sorted(found, key=lambda c: (c.live_bytes, c.macs or 0, c.split.patches)):
        if not front or (choice.macs or 0) < (front[-1].macs or 0):
            front.append(choice)
    return front
