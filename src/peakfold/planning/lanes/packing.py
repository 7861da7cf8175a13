"""Plans for several lanes: buffers that conflict by the partial order instead of by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from peakfold.analysis import Index, Schedule
from peakfold.analysis.graph.precedence import (
    Edge,
    Precedence,
    Use,
    conflicts,
    crowding,
    graph_needs,
    lane_edges,
)
from peakfold.errors import TimeLimit, UsageError
from peakfold.packing import Packing, Problem, pack
from peakfold.packing.deadline import Deadline
from peakfold.packing.objects.assign import assign_related
from peakfold.packing.problem import Int64
from peakfold.packing.solve import GRACE
from peakfold.planning.aliasing.live_ranges import Piece
from peakfold.planning.lanes.schedule import assign_lanes, byte_costs, critical_path
from peakfold.planning.timeline import Buffer, Timeline

FREE_LANES = 0
MOST_PAIRS = 2_000_000
"""Pairs of buffers that a plan for lanes looks at; where there are more, buffers share nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """How a graph is run: lanes and what they guarantee.

    Attributes:
        lanes: ops at once; 0 = free, any run that the graph allows.
        lane: per op; empty for one lane or free.
        order: op ids; one run that is allowed, and the order inside each lane.
        precedence: what precedes what in every allowed run; `None` for one lane.
        makespan: estimated time in units of cost (bytes of results).
        added: edges on top of the graph's and the lanes'.
    """

    lanes: int
    lane: tuple[int, ...]
    order: tuple[int, ...]
    precedence: Precedence | None
    makespan: int
    added: tuple[Edge, ...] = ()


def execution_for(index: Index, order: Sequence[int], lanes: int) -> Execution:
    """Lanes for a graph.

    Args:
        index: the graph.
        order: the serial order; breaks ties.
        lanes: 1, more, or 0 for free.
    """
    cost = byte_costs(index)
    if lanes == 1:
        return Execution(1, (), tuple(order), None, sum(cost))
    needs = graph_needs(index)
    if lanes == FREE_LANES:
        precedence = Precedence.of(needs, order)
        return Execution(0, (), tuple(order), precedence, critical_path(needs, order, cost))
    plan = assign_lanes(needs, order, cost, lanes)
    for before, after in lane_edges(plan.order, plan.lane):
        needs[after].add(before)
    precedence = Precedence.of(needs, plan.order)
    return Execution(lanes, plan.lane, plan.order, precedence, plan.makespan)


def with_added(index: Index, execution: Execution, edges: Sequence[Edge]) -> Execution:
    """The same execution with further edges to keep."""
    if execution.precedence is None or not edges:
        return execution
    precedence = execution.precedence.with_edges(edges)
    cost = byte_costs(index)
    span = max(execution.makespan, critical_path(precedence.needs, precedence.order, cost))
    return replace(
        execution, precedence=precedence, makespan=span, added=(*execution.added, *edges)
    )


def whole_buffers(timeline: Timeline) -> Timeline:
    """The timeline with every buffer alive as a whole: strips have no meaning without steps."""

    def whole(buffer: Buffer) -> Buffer:
        start = min(piece.start for piece in buffer.pieces)
        stop = max(piece.stop for piece in buffer.pieces)
        return replace(buffer, pieces=(Piece(start, stop, 0, buffer.size),))

    buffers = tuple(whole(buffer) if buffer.pieces else buffer for buffer in timeline.buffers)
    return replace(timeline, buffers=buffers)


def uses_of(index: Index, timeline: Timeline) -> list[Use]:
    """When each buffer is in use, in terms of ops."""
    schedule = timeline.schedule
    return [_use(index, schedule, timeline, buffer) for buffer in timeline.buffers]


def _use(index: Index, schedule: Schedule, timeline: Timeline, buffer: Buffer) -> Use:
    if buffer.workspace >= 0:
        return Use(buffer.workspace, (buffer.workspace,))
    if buffer.copy >= 0:  # written behind the last op, so nothing that dies earlier matters
        return Use(schedule.order[-1] if schedule.order else -1, (), kept=True)
    members = timeline.storages.members[buffer.storage]
    touches = {user for tensor in members for user in index.users_of(tensor)}
    makers = [index.producer[tensor] for tensor in members]
    touches.update(maker for maker in makers if maker >= 0)
    first = -1 if -1 in makers else min(makers, key=lambda op: schedule.step[op])
    kept = any(schedule.last_use[tensor] >= schedule.steps for tensor in members)
    return Use(first, tuple(sorted(touches)), kept)


@dataclass(frozen=True, slots=True, eq=False)
class _Crowd:
    """Who must keep apart from whom, in an execution.

    Attributes:
        alone: buffers that share with nobody, because they may be needed with all others, or
            because the pairs are too many to be looked at in time.
        rest: the others.
        pairs: (k, 2) conflicts among `rest`, in places of it.
        complete: whether all pairs were looked at.
    """

    alone: list[int]
    rest: list[int]
    pairs: Int64
    complete: bool

    @classmethod
    def of(
        cls, index: Index, timeline: Timeline, execution: Execution, deadline: Deadline
    ) -> _Crowd:
        if execution.precedence is None:
            raise UsageError("one lane has no partial order to pack by")
        uses = uses_of(index, timeline)
        everyone, others = list(range(len(uses))), len(uses) - 1
        try:
            count = crowding(execution.precedence, uses, deadline.check)
        except TimeLimit:
            return cls(everyone, [], np.zeros((0, 2), dtype=np.int64), complete=False)
        rest = np.flatnonzero(count < others).tolist()
        # Every pair of the rest is counted from both sides.
        complete = int((count - (others + 1 - len(rest)))[rest].sum()) // 2 <= MOST_PAIRS
        rest = rest if complete else []
        pairs = conflicts(execution.precedence, [uses[at] for at in rest])
        alone = sorted(set(everyone).difference(rest))
        return cls(alone, rest, pairs, complete)


def assign_lanes_objects(
    index: Index, timeline: Timeline, execution: Execution, deadline: Deadline
) -> tuple[list[int], bool]:
    """Shared objects for whole buffers under the partial order of an execution.

    Args:
        index: the graph.
        timeline: the buffers.
        execution: lanes, and what they guarantee.
        deadline: when to end; each buffer that is left gets an object of its own.

    Returns:
        Object of each buffer, and whether the search was complete.
    """
    crowd = _Crowd.of(index, timeline, execution, deadline)
    size = [timeline.buffers[at].size for at in crowd.rest]
    shared, complete = assign_related(size, crowd.pairs, deadline)
    ids = [-1] * len(timeline.buffers)
    for at, obj in zip(crowd.rest, shared, strict=True):
        ids[at] = obj
    for obj, at in enumerate(crowd.alone, start=max(shared, default=-1) + 1):
        ids[at] = obj
    return ids, complete and crowd.complete


def pack_lanes(
    index: Index,
    timeline: Timeline,
    execution: Execution,
    align: int,
    *,
    time_limit: float,
    seed: int,
) -> Packing:
    """Pack whole buffers under the partial order of an execution; the rest as for `pack`.

    A buffer that may be needed together with all others has rows of its own in any packing, so
    such buffers are put above the packing of the rest.
    """
    # As for a first greedy pass: what comes before the search has more time than the search.
    clock = Deadline.after(max(time_limit, GRACE))
    crowd = _Crowd.of(index, timeline, execution, clock)
    size = np.array([buffer.size for buffer in timeline.buffers], dtype=np.int64)
    inner = size[crowd.rest]
    problem = Problem.of(
        np.zeros(len(inner)), np.ones(len(inner)), inner, align=align, conflicts=crowd.pairs
    )
    found = pack(problem, time_limit=time_limit, seed=seed)
    offsets = np.zeros(len(size), dtype=np.int64)
    offsets[crowd.rest] = found.offsets
    above = size[crowd.alone]
    offsets[crowd.alone] = found.height + np.cumsum(above) - above
    beside = int(above.sum())
    height = found.height + beside
    bound = found.lower_bound + beside if crowd.complete else int(size.max(initial=0))
    return Packing(
        offsets,
        height,
        bound,
        height == bound,
        found.strategy,
        found.search if crowd.complete else "time limit",
    )
