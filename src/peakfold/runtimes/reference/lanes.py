"""Which lane runs each op, and what must wait for what."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.errors import InvalidPlan
from peakfold.ir import Graph, effect_edges


@dataclass(frozen=True, slots=True)
class Lanes:
    """Ops in threads: each lane runs its ops in the plan's order.

    Attributes:
        lane: lane number by op position in the graph.
        edges: pairs ``(before, after)`` of op positions: further waits, on top of data and
            effects.
    """

    lane: tuple[int, ...]
    edges: tuple[tuple[int, int], ...] = ()


def predecessors(graph: Graph, order: list[int], lanes: Lanes) -> list[set[int]]:
    """For every op the ops that must be done before it starts, the lane's previous one included.

    Args:
        graph: the planned graph.
        order: the plan's order.
        lanes: lanes and further edges.

    Raises:
        InvalidPlan: a lane is missing, an edge names no op, or the waits form a cycle.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph('''peakfold-graph 1
        ... input x: int8[4]
        ... a: int8[4] = relu(x)
        ... b: int8[4] = neg(x)
        ... c: int8[4] = add(a, b)
        ... output c''')
        >>> predecessors(g, [0, 1, 2], Lanes((0, 1, 0)))
        [set(), set(), {0, 1}]
    """
    count = len(graph.ops)
    if len(lanes.lane) != count:
        raise InvalidPlan(f"{len(lanes.lane)} lanes are given for {count} ops")
    before: list[set[int]] = [set() for _ in range(count)]
    for at, op in enumerate(graph.ops):
        before[at] = {graph.producer[n] for n in op.operands if n in graph.producer}
    last: dict[int, int] = {}
    for at in order:
        lane = lanes.lane[at]
        if lane in last:
            before[at].add(last[lane])
        last[lane] = at
    for one, two in (*effect_edges(graph), *lanes.edges):
        if not (0 <= one < count and 0 <= two < count):
            raise InvalidPlan(f"the edge {one} -> {two} names no op")
        before[two].add(one)
    _require_no_cycle(graph, before)
    return before


def _require_no_cycle(graph: Graph, before: list[set[int]]) -> None:
    missing = [len(b) for b in before]
    after: list[list[int]] = [[] for _ in before]
    for at, needs in enumerate(before):
        for one in needs:
            after[one].append(at)
    ready = [at for at, count in enumerate(missing) if count == 0]
    done = 0
    while ready:
        at = ready.pop()
        done += 1
        for two in after[at]:
            missing[two] -= 1
            if missing[two] == 0:
                ready.append(two)
    if done < len(before):
        stuck = next(at for at, count in enumerate(missing) if count)
        raise InvalidPlan(
            f"op {graph.ops[stuck].name!r} waits for itself",
            hint="lane order and added edges contradict the graph",
        )
