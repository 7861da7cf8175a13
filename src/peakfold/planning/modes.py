"""The five modes: from a context to buffers with offsets.

naive    every result in a buffer of its own, views too
inplace  naive, with in-place results and views
share    objects handed from tenant to tenant; no views, nothing in place
both     share with in-place results and views
arena    offsets in one arena, with in-place results, views and zero-copy concatenation
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from peakfold.analysis import make_schedule
from peakfold.analysis.graph.alias_facts import viewed
from peakfold.analysis.graph.precedence import graph_needs
from peakfold.packing import Problem, pack
from peakfold.packing.deadline import Deadline
from peakfold.packing.objects.assign import Assignment, assign_objects, objects_bound
from peakfold.planning.aliasing.overlaps import overlap_choices
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.aliasing.reference_counting import CounterPlan, TraceRow, count_references
from peakfold.planning.context import PlanningContext
from peakfold.planning.lanes.packing import assign_lanes_objects, pack_lanes
from peakfold.planning.lanes.schedule import path_colours
from peakfold.planning.options import COUNTER, PATHS
from peakfold.planning.order import choose_copies
from peakfold.planning.plan import Mode
from peakfold.planning.timeline import Buffer, Timeline, make_timeline

# Up to this many buffers or ops several ways are tried and the best is kept; above it, one.
_MANY = 20_000
# How many concatenations are tried one by one when taking all of them in does not pay.
_HOME_TRIALS = 32
# Sets of overlaps that are packed, from the one with the lowest peak on.
_OVERLAP_TRIALS = 16
# All that is tried for one layout takes so many time limits together, and so many seconds at
# least: what needs no search is tried under a limit of 0, too.
_LIMITS = 3
_SECONDS = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Buffers with offsets: one finished way to lay a graph out.

    Attributes:
        total: bytes of the arena, or of all objects together.
        offsets: per buffer of the timeline.
        objects: per buffer, its shared object; `None` in mode `arena`.
        bound: no layout of this family for these buffers is smaller.
        optimal: `total` is proven to be the smallest of its family for these buffers.
        aliasing: the sharing that was wanted.
        complete: False where time, or the size of the graph, ended the search for a smaller one.
        apart: in mode `arena`, `total` if no result overlapped part of an operand.
        copying: in mode `arena`, `total` if every concatenation copied its parts; a runtime
            that cannot obey zero-copy needs this much.
    """

    mode: Mode
    strategy: str
    timeline: Timeline
    total: int
    offsets: tuple[int, ...]
    objects: tuple[int, ...] | None
    bound: int
    optimal: bool
    copying: int | None = None
    aliasing: Aliasing | None = None
    apart: int | None = None
    complete: bool = True


NOTHING = Aliasing(inplace=False, views=False)


def layout_clock(context: PlanningContext) -> Deadline:
    """When all that is tried for one layout has to end."""
    return Deadline.after(max(_LIMITS * context.options.time_limit, _SECONDS))


def make_layout(context: PlanningContext, mode: Mode, strategy: str = "best") -> Layout:
    """The layout of one mode.

    Args:
        context: the prepared graph.
        mode: which family and which sharing.
        strategy: ``best`` or a named algorithm of that family.
    """
    made = _layout(context, mode, strategy)
    return made if context.complete else replace(made, complete=False)


def _layout(context: PlanningContext, mode: Mode, strategy: str) -> Layout:
    if mode == "arena":
        return (
            _arena(context, strategy)
            if context.execution.precedence is None
            else _lanes_arena(context)
        )
    if mode in ("naive", "inplace"):
        timeline = context.timeline(NOTHING if mode == "naive" else context.full_aliasing)
        return _each_alone(timeline, mode)
    if context.execution.precedence is not None:
        return _lanes_objects(context, mode)
    deadline = layout_clock(context)
    if mode == "share":
        return _objects(context, mode, strategy, NOTHING, deadline)
    # More sharing inside storages can cost more between them, so less is tried, too; and a
    # size policy can forbid so much that sharing nothing but storages is better.
    full = context.full_aliasing
    choices = [full, replace(full, inplace=False), NOTHING]
    if context.options.order == "best" and full.views:
        # A whole object is alive as long as any view of it; a copy may be cheaper.
        choices.append(choose_copies(context, full, "objects"))
    choices = list(dict.fromkeys(choices))
    layouts = [
        _objects(context, mode, strategy, choice, deadline)
        for at, choice in enumerate(choices)
        if at == 0 or not deadline.expired()
    ]
    complete = len(layouts) == len(choices) and all(layout.complete for layout in layouts)
    alone = _each_alone(context.timeline(full), mode)
    bound = objects_bound(alone.timeline.hulls(context.policies.align))
    layouts.append(replace(alone, bound=bound, optimal=alone.total == bound))
    return replace(min(layouts, key=lambda layout: layout.total), complete=complete)


def _each_alone(timeline: Timeline, mode: Mode) -> Layout:
    """Every buffer an object of its own."""
    sizes = [buffer.size for buffer in timeline.buffers]
    offsets = np.cumsum([0, *sizes], dtype=np.int64).tolist()
    objects = tuple(range(len(sizes)))
    total = offsets.pop()
    return Layout(mode, "naive", timeline, total, tuple(offsets), objects, timeline.peak, False)


def _lanes_arena(context: PlanningContext) -> Layout:
    timeline = context.timeline(context.full_aliasing)
    packing = pack_lanes(
        context.index,
        timeline,
        context.execution,
        context.policies.align,
        time_limit=context.options.time_limit,
        seed=context.options.seed,
    )
    return Layout(
        "arena",
        packing.strategy,
        timeline,
        packing.height,
        tuple(packing.offsets.tolist()),
        None,
        packing.lower_bound,
        packing.optimal,
        packing.height,
        complete=packing.search == "complete",
    )


def _lanes_objects(context: PlanningContext, mode: Mode) -> Layout:
    choices = [NOTHING] if mode == "share" else [context.full_aliasing, NOTHING]
    layouts, deadline = [], layout_clock(context)
    for choice in choices:
        timeline = context.timeline(choice)
        sizes = [buffer.size for buffer in timeline.buffers]
        ids, complete = assign_lanes_objects(context.index, timeline, context.execution, deadline)
        objects: dict[int, int] = {}
        for obj, size in zip(ids, sizes, strict=True):
            objects[obj] = max(objects.get(obj, 0), size)
        sized = tuple(objects[obj] for obj in sorted(objects))
        assignment = Assignment(tuple(ids), sized, "by-size", complete)
        hulls = timeline.hulls(context.policies.align)
        layouts.append(_of_assignment(mode, timeline, hulls, assignment))
    complete = all(layout.complete for layout in layouts)
    return replace(min(layouts, key=lambda layout: layout.total), complete=complete)


def _objects(
    context: PlanningContext, mode: Mode, strategy: str, aliasing: Aliasing, deadline: Deadline
) -> Layout:
    share = context.options.share
    found: list[Layout] = []
    if strategy in ("best", COUNTER, PATHS):
        colour = _path_colours(context) if strategy == PATHS else None
        counted = _count(context, aliasing, trace=False, colour=colour)
        found.append(_of_counter(context, mode, counted))
    if (
        strategy not in (COUNTER, PATHS) and share != "nnvm"
    ):  # NNVM's window is a rule of the counter alone
        timeline = context.timeline(aliasing)
        problem = timeline.hulls(context.policies.align)
        if strategy == "best" and share == "equal":
            strategy = "equality"
        elif strategy == "best" and problem.buffers > _MANY:
            strategy = "in-order"
        assignment = assign_objects(problem, strategy, deadline)
        found.append(_of_assignment(mode, timeline, problem, assignment))
    complete = all(layout.complete for layout in found)
    return replace(min(found, key=lambda layout: layout.total), complete=complete)


def _of_assignment(
    mode: Mode, timeline: Timeline, problem: Problem, assignment: Assignment
) -> Layout:
    bound = objects_bound(problem)
    return Layout(
        mode,
        assignment.strategy,
        timeline,
        assignment.total,
        assignment.offsets(),
        assignment.ids,
        bound,
        assignment.total == bound,
        complete=assignment.complete or assignment.total == bound,
    )


def _path_colours(context: PlanningContext) -> list[int]:
    """Two colours, NNVM's choice: the longest path, and the branches beside it (R39, R49)."""
    return path_colours(graph_needs(context.index), context.order, 2)


def _count(
    context: PlanningContext, aliasing: Aliasing, *, trace: bool, colour: list[int] | None = None
) -> CounterPlan:
    schedule = make_schedule(context.index, context.order, context.policies)
    return count_references(
        context.index,
        schedule,
        context.policies,
        context.facts,
        share=context.options.share,
        inplace=aliasing.inplace,
        views=aliasing.views,
        trace=trace,
        colour=colour,
    )


def trace_rows(context: PlanningContext, mode: Mode) -> tuple[CounterPlan, list[TraceRow]]:
    """The step table of the reference-counting planner for a mode."""
    aliasing = NOTHING if mode in ("naive", "share") else context.full_aliasing
    counted = _count(context, aliasing, trace=True)
    return counted, counted.rows


def _of_counter(context: PlanningContext, mode: Mode, counted: CounterPlan) -> Layout:
    schedule = make_schedule(context.index, context.order, context.policies)
    timeline = make_timeline(
        context.index, schedule, counted.storages, context.policies, context.facts
    )
    sizes = list(counted.sizes)
    ids = [_object_of(buffer, counted, sizes) for buffer in timeline.buffers]
    assignment = Assignment(tuple(ids), tuple(sizes), COUNTER)
    return _of_assignment(mode, timeline, timeline.hulls(context.policies.align), assignment)


def _object_of(buffer: Buffer, counted: CounterPlan, sizes: list[int]) -> int:
    if buffer.storage >= 0:
        return counted.object_of[buffer.storage]
    if buffer.workspace >= 0:
        return counted.workspace_object[buffer.workspace]
    sizes.append(buffer.size)  # a copy made after the last step
    return len(sizes) - 1


class _Tries:
    """Ways to share inside storages, packed one after the other; the smallest arena is kept."""

    def __init__(self, context: PlanningContext, strategy: str, aliasing: Aliasing) -> None:
        self.context, self.strategy = context, strategy
        self.deadline = layout_clock(context)
        self.complete = True
        self.best = self._packed(aliasing, context.timeline(aliasing))

    def better(self, aliasing: Aliasing, timeline: Timeline | None = None) -> bool:
        """Whether other sharing gives a smaller arena, which is then kept."""
        if self.best.total <= self.context.any_order:
            return False
        if self.over():
            return False
        timeline = self.context.timeline(aliasing) if timeline is None else timeline
        if timeline.peak >= self.best.total:
            return False
        tried = self._packed(aliasing, timeline)
        smaller = tried.total < self.best.total
        self.best = tried if smaller else self.best
        return smaller

    def over(self) -> bool:
        """Whether there is no time for more, which is noted."""
        self.complete = self.complete and not self.deadline.expired()
        return self.deadline.expired()

    def _packed(self, aliasing: Aliasing, timeline: Timeline) -> Layout:
        options = self.context.options
        packing = pack(
            timeline.problem(self.context.policies.align),
            strategy=self.strategy,
            time_limit=min(options.time_limit, self.deadline.left),
            seed=options.seed,
        )
        self.complete = self.complete and packing.search == "complete"
        return Layout(
            "arena",
            packing.strategy,
            timeline,
            packing.height,
            tuple(packing.offsets.tolist()),
            None,
            packing.lower_bound,
            packing.optimal,
            aliasing=aliasing,
        )


def _arena(context: PlanningContext, strategy: str) -> Layout:
    aliasing = context.full_aliasing
    tries = _Tries(context, strategy, aliasing)
    copying = tries.best.total
    wanted = aliasing.views and context.options.zero_copy and context.target.zero_copy_concat
    candidates = [op for op, fact in enumerate(context.facts) if fact.parts] if wanted else []
    # Taking parts in costs freedom, so it is done only where the packed peak really falls:
    # all concatenations together, or else one after the other.
    if candidates:
        tries.better(replace(aliasing, zero_copy_concats=frozenset(candidates)))
    if len(candidates) <= _HOME_TRIALS and not tries.best.timeline.storages.built_in_place:
        taken: frozenset[int] = frozenset()
        for op in candidates:
            taken |= (
                {op} if tries.better(replace(aliasing, zero_copy_concats=taken | {op})) else set()
            )
    apart = None
    if len(context.graph.ops) <= _MANY:
        for less in (replace(aliasing, inplace=False), NOTHING):
            tries.better(less)
        if slices := slices_of(context):
            # A slice pins its bytes inside its base; a copy may lie where it disturbs nobody.
            tries.better(replace(aliasing, copied=frozenset(slices)))
        apart = tries.best.total
        _overlap(tries, context)
        copying = copying if tries.best.timeline.storages.built_in_place else tries.best.total
    complete = tries.complete or tries.best.total <= context.any_order
    return replace(tries.best, copying=copying, apart=apart, complete=complete)


def _overlap(tries: _Tries, context: PlanningContext) -> None:
    """Results over parts of operands, where that makes the arena smaller."""
    choices = overlap_choices(context, tries.best.aliasing or context.full_aliasing, tries.over)
    for chosen, timeline in choices[: -_OVERLAP_TRIALS - 1 : -1]:
        tries.better(chosen, timeline)


def slices_of(context: PlanningContext) -> dict[int, int]:
    """Results that are views of a part of an operand, and that operand (tensor ids)."""
    index = context.index
    return {
        tensor: host
        for op, fact in zip(context.graph.ops, context.facts, strict=True)
        for tensor, host, _ in viewed(index, op, fact)
        if index.nbytes[tensor] < index.nbytes[host]
    }
