"""Memory against parallelism: edges a plan adds between branches, and what each way costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from peakfold.analysis.parallel import Edge, Precedence, conflicts, graph_needs
from peakfold.planning.layouts import Layout, make_layout
from peakfold.planning.parallel import uses_of, way_of_running, with_added
from peakfold.planning.study import Study

_CANDIDATES = 200


def implied_edges(study: Study, layout: Layout) -> list[Edge]:
    """Edges ``(before, after)`` between ops that a layout adds by sharing memory (R36).

    A serial plan is safe for its own order only: where two buffers share bytes, every op that
    touches the first must be over before the second is written. Edges that the graph or other
    edges imply are left out, so each one listed really takes freedom away.
    """
    order = Precedence.of(graph_needs(study.index), study.order)
    uses = uses_of(study.index, layout.timeline)
    blocks = layout.timeline.blocks
    edges: set[Edge] = set()
    by_address = sorted(range(len(blocks)), key=lambda b: layout.offsets[b])
    open_: list[int] = []
    for b in by_address:
        open_ = [a for a in open_ if layout.offsets[a] + blocks[a].size > layout.offsets[b]]
        for a in open_:
            one, two = sorted((a, b), key=lambda n: blocks[n].pieces[0].start)
            first = uses[two].first
            if first >= 0:
                edges.update((op, first) for op in uses[one].touches if op != first)
        open_.append(b)
    new = [edge for edge in edges if not order.precedes(*edge)]
    return _reduced(order, new)


def _reduced(order: Precedence, edges: Iterable[Edge]) -> list[Edge]:
    """The edges without those that the others and the order imply, longest ones first out."""
    left = sorted(edges, key=lambda e: order.position[e[0]] - order.position[e[1]])
    for edge in list(left):
        others = [other for other in left if other != edge]
        if order.with_edges(others).precedes(*edge):
            left = others
    return sorted(left)


def with_chosen_edges(study: Study, count: int) -> Study:
    """The study with up to `count` edges added, each the one that saves most memory.

    An edge is a candidate if it alone takes a conflict away. Ties go to the shorter run, then
    to the lower op numbers; the search stops when no edge saves anything.
    """
    for _ in range(count):
        best: tuple[int, int, Edge] | None = None
        total = make_layout(study, "arena").total
        for edge in _candidates(study):
            tried = replace(study, running=with_added(study.index, study.running, [edge]))
            key = (make_layout(tried, "arena").total, tried.running.makespan, edge)
            best = key if best is None or key < best else best
        if best is None or best[0] >= total:
            break
        study = replace(study, running=with_added(study.index, study.running, [best[2]]))
    return study


def _candidates(study: Study) -> list[Edge]:
    guard = study.running.guard
    if guard is None:
        return []
    played = make_layout(study, "arena").timeline
    uses = uses_of(study.index, played)
    weight: dict[Edge, int] = {}
    for pair in conflicts(guard, uses):
        for a, b in (pair, pair[::-1]):
            first = uses[b].first
            if uses[a].kept or first < 0:
                continue
            missing = [op for op in uses[a].touches if not guard.precedes(op, first)]
            if len(missing) == 1 and guard.position[missing[0]] < guard.position[first]:
                size = min(played.blocks[a].size, played.blocks[b].size)
                edge = (missing[0], first)
                weight[edge] = weight.get(edge, 0) + size
    heaviest = sorted(weight, key=lambda edge: (-weight[edge], edge))
    return heaviest[:_CANDIDATES]


@dataclass(frozen=True, slots=True)
class TradeOff:
    """One way of running: what it costs in memory and how long it takes at best.

    Attributes:
        lanes: ops at once, or ``free``.
        makespan: estimate in units of cost (bytes of results).
        speedup: serial makespan over this one.
        arena_bytes, lower_bound_bytes, optimal: of its plan.
        edges: ``(before, after)`` op names: what the plan orders beyond the graph.
    """

    lanes: int | str
    makespan: int
    speedup: float
    arena_bytes: int
    lower_bound_bytes: int
    optimal: bool
    edges: tuple[tuple[str, str], ...]


def trade_offs(study: Study, lanes: Sequence[int], added_edges: int = 0) -> list[TradeOff]:
    """A row for each number of lanes (0 = free), then for free with 1, 2, ... added edges.

    Args:
        study: of one lane.
        lanes: numbers of lanes to try.
        added_edges: how many added edges to try for free runs, one at a time.
    """
    serial = way_of_running(study.index, study.order, 1).makespan
    rows: list[TradeOff] = []
    for count in lanes:
        running = way_of_running(study.index, study.order, count)
        rows.append(_row(replace(study, running=running, order=running.order), serial))
    free = replace(study, running=way_of_running(study.index, study.order, 0))
    for _ in range(added_edges):
        more = with_chosen_edges(free, 1)
        if more.running.added == free.running.added:
            break
        free = more
        rows.append(_row(free, serial))
    return rows


def _row(study: Study, serial: int) -> TradeOff:
    layout = make_layout(study, "arena")
    running = study.running
    if running.guard is None:
        edges = implied_edges(study, layout)
    else:
        order = Precedence.of(graph_needs(study.index), study.order)
        extra = [
            (before, after)
            for after, needs in enumerate(running.guard.needs)
            for before in needs
            if not order.precedes(before, after)
        ]
        edges = _reduced(order, extra)
    ops = study.graph.ops
    return TradeOff(
        running.lanes or "free", running.makespan,
        round(serial / running.makespan, 3) if running.makespan else 1.0,
        layout.total, layout.bound, layout.optimal,
        tuple((ops[before].name, ops[after].name) for before, after in edges),
    )  # fmt: skip
