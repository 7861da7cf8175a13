"""Memory against parallelism: edges a plan adds between branches, and what each way costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from peakfold.analysis.graph.precedence import (
    Edge,
    Precedence,
    crowding,
    graph_needs,
    nearly_over,
    without_implied,
)
from peakfold.errors import TimeLimit
from peakfold.judges.value_memory import Memory
from peakfold.packing.deadline import Deadline
from peakfold.planning.aliasing.ranges import Ranges
from peakfold.planning.context import PlanningContext
from peakfold.planning.lanes.packing import MOST_PAIRS, execution_for, uses_of, with_added
from peakfold.planning.modes import Layout, make_layout

_CANDIDATES = 200
# All edges together are sought for as long as one search may take, and so many seconds at least.
_SECONDS = 1.0


def implied_edges(context: PlanningContext, layout: Layout) -> list[Edge]:
    """Edges ``(before, after)`` between ops that a layout adds by sharing memory (R36).

    A serial plan is safe for its own order only: an op that writes bytes, in place or not, must
    come after all that touches the values that lay there. Edges that the graph or other edges
    imply are left out, so each one listed really takes freedom away.
    """
    order = Precedence.of(graph_needs(context.index), context.order)
    new = {edge for edge in _overwrites(context, layout) if not order.precedes(*edge)}
    return without_implied(order, new)


def _overwrites(context: PlanningContext, layout: Layout) -> Iterator[Edge]:
    """Per write, edges from whatever touches the last values of those bytes."""
    index, timeline = context.index, layout.timeline
    storages, schedule = timeline.storages, timeline.schedule
    base = {
        b.storage: at
        for b, at in zip(timeline.buffers, layout.offsets, strict=True)
        if b.storage >= 0
    }
    scratch = {
        b.workspace: (at, b.size)
        for b, at in zip(timeline.buffers, layout.offsets, strict=True)
        if b.workspace >= 0
    }
    held = {storage: Ranges() for storage in base}
    for storage, ranges in held.items():
        for t in storages.members[storage]:
            low, size = _place(context, layout, base, t)
            ranges.add(low, low + size, t)
    shown = {a.output for a in storages.aliases if a.how in ("view", "concat")}
    memory = Memory()
    for step, op in enumerate(schedule.order):
        writes = [
            (str(t), *_place(context, layout, base, t))
            for t in index.results[op]
            if t not in shown and storages.of[t] in base
        ]
        if op in scratch:
            writes.insert(0, (f"-{op}", *scratch[op]))
        for name, start, length in writes:
            for owner in sorted({str(root) for root, _, _ in memory.under(start, length)}):
                touches = {int(owner[1:])} if owner[0] == "-" else set()
                if owner[0] != "-":
                    ranges = held[storages.of[int(owner)]]
                    for t in ranges.overlapping(start, start + length):
                        if schedule.born[t] <= step and str(t) != name:
                            touches |= {*index.users_of(t), index.producer[t]}
                            low, size = _place(context, layout, base, t)
                            if start <= low and low + size <= start + length:
                                # Whatever overwrites these bytes next comes after this op.
                                ranges.discard(low, low + size, t)
                yield from ((t, op) for t in touches if t not in (op, -1))
            memory.write(start, length, name)


def _place(
    context: PlanningContext, layout: Layout, base: dict[int, int], tensor: int
) -> tuple[int, int]:
    storages = layout.timeline.storages
    return base[storages.of[tensor]] + storages.offset[tensor], context.index.nbytes[tensor]


def with_chosen_edges(
    context: PlanningContext, count: int, deadline: Deadline | None = None
) -> PlanningContext:
    """The context with up to `count` edges added, each the one that saves most memory.

    An edge is a candidate if it alone takes a conflict away. Ties go to the shorter run, then
    to the lower op numbers; the search stops when no edge saves anything. When time is up the
    best edge tried by then is the last one, and the context is not `complete`.

    Args:
        context: of free lanes, or of several.
        count: how many edges at most.
        deadline: of all edges together; by default after the time limit.
    """
    deadline = deadline or _edges_clock(context.options.time_limit)
    total: int | None = None
    for _ in range(count):
        total = _tried(context, deadline) if total is None else total
        candidates, complete = _candidates(context, deadline)
        best: tuple[int, int, Edge] | None = None
        for edge in candidates:
            if deadline.expired():
                complete = False
                break
            tried = replace(context, execution=with_added(context.index, context.execution, [edge]))
            key = (_tried(tried, deadline), tried.execution.makespan, edge)
            best = key if best is None or key < best else best
        context = context if complete else replace(context, complete=False)
        if best is None or best[0] >= total:
            break
        total = best[0]
        context = replace(
            context, execution=with_added(context.index, context.execution, [best[2]])
        )
        if not complete:
            break
    return context


def _edges_clock(seconds: float) -> Deadline:
    return Deadline.after(max(seconds, _SECONDS))


def _tried(context: PlanningContext, deadline: Deadline) -> int:
    """Bytes of the arena, if all that is left of the time may go into finding it."""
    options = context.options
    limited = replace(options, time_limit=min(options.time_limit, deadline.left))
    return make_layout(replace(context, options=limited), "arena").total


def _candidates(context: PlanningContext, deadline: Deadline) -> tuple[list[Edge], bool]:
    """Edges that free conflicts, those between the largest buffers first, and whether all."""
    precedence = context.execution.precedence
    if precedence is None:
        return [], True
    timeline = context.timeline(context.full_aliasing)
    uses = uses_of(context.index, timeline)
    size = np.array([buffer.size for buffer in timeline.buffers], dtype=np.int64)
    first = np.array([use.first for use in uses], dtype=np.int64)
    ops = len(precedence.order)
    codes, weights = [first[:0]], [size[:0]]
    complete = True
    try:
        if int(crowding(precedence, uses, deadline.check).sum()) // 2 > MOST_PAIRS:
            return [], True
        for buffer, op, others in nearly_over(precedence, uses, deadline.check):
            codes.append(op * ops + first[others])
            weights.append(np.minimum(size[buffer], size[others]))
    except TimeLimit:
        complete = False
    code, at = np.unique(np.concatenate(codes), return_inverse=True)
    weight = np.zeros(len(code), dtype=np.int64)
    np.add.at(weight, at, np.concatenate(weights))
    heaviest = code[np.argsort(-weight, kind="stable")][:_CANDIDATES]
    return [divmod(edge, ops) for edge in heaviest.tolist()], complete


@dataclass(frozen=True, slots=True)
class TradeOff:
    """One way of execution: what it costs in memory and how long it takes at best.

    Attributes:
        lanes: ops at once, or ``free``.
        makespan: estimate in units of cost (bytes of results).
        speedup: serial makespan over this one.
        arena_bytes, lower_bound_bytes, optimal: of its plan.
        edges: ``(before, after)`` op names: what the plan orders beyond the graph.
        complete: False where a limit ended its search.
    """

    lanes: int | str
    makespan: int
    speedup: float
    arena_bytes: int
    lower_bound_bytes: int
    optimal: bool
    edges: tuple[tuple[str, str], ...]
    complete: bool = True


def trade_offs(
    context: PlanningContext, lanes: Sequence[int], added_edges: int = 0
) -> list[TradeOff]:
    """A row for each number of lanes (0 = free), then for free with 1, 2, ... added edges.

    Args:
        context: of one lane; its time limit is shared between the rows.
        lanes: numbers of lanes to try.
        added_edges: how many added edges to try for free runs, one at a time.
    """
    # The limit is of all rows together.
    share = context.options.time_limit / (len(lanes) + added_edges)
    context = replace(context, options=replace(context.options, time_limit=share))
    serial = execution_for(context.index, context.order, 1).makespan
    rows: list[TradeOff] = []
    for count in lanes:
        execution = execution_for(context.index, context.order, count)
        rows.append(_row(replace(context, execution=execution, order=execution.order), serial))
    free = replace(context, execution=execution_for(context.index, context.order, 0))
    deadline = _edges_clock(share * added_edges)
    for _ in range(added_edges):
        more = with_chosen_edges(free, 1, deadline)
        if more.execution.added == free.execution.added:
            rows[-1:] = [replace(row, complete=row.complete and more.complete) for row in rows[-1:]]
            break
        free = more
        rows.append(_row(free, serial))
    return rows


def _row(context: PlanningContext, serial: int) -> TradeOff:
    layout = make_layout(context, "arena")
    execution = context.execution
    if execution.precedence is None:
        edges = implied_edges(context, layout)
    else:
        order = Precedence.of(graph_needs(context.index), context.order)
        extra = [
            (before, after)
            for after, needs in enumerate(execution.precedence.needs)
            for before in set(needs).difference(order.needs[after])
            if not order.precedes(before, after)
        ]
        edges = without_implied(order, extra)
    ops = context.graph.ops
    return TradeOff(
        execution.lanes or "free",
        execution.makespan,
        round(serial / execution.makespan, 3) if execution.makespan else 1.0,
        layout.total,
        layout.bound,
        layout.optimal and not context.doubtful,
        tuple((ops[before].name, ops[after].name) for before, after in edges),
        layout.complete,
    )
