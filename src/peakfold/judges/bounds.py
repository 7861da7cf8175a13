"""Lower bounds that the judges derive themselves, to hold a plan's claims against.

Nothing here is shared with the planner, and nothing of what the plan states of lives, sizes or
bounds is used: only who lies in which buffer, in which order, and the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from peakfold.analysis.graph.alias_facts import Facts
from peakfold.interval import Interval
from peakfold.ir import Graph
from peakfold.judges.live_ranges import Lives
from peakfold.planning.plan import Plan
from peakfold.units import round_up

_CELLS = 500_000_000
"""Steps times distinct sizes up to which the bound of shared objects is derived."""


def load_bound(plan: Plan, lives: Lives) -> int:
    """The most bytes that must exist at one step of the plan's order, in its buffers."""
    change = np.zeros(lives.steps + 1, dtype=np.int64)
    for buffer in plan.buffers:
        for window, alive in lives.strips(buffer, plan.policies.align):
            for life in alive:
                change[life.start] += window.length
                change[life.stop] -= window.length
    return int(np.cumsum(change).max(initial=0))


def objects_bound(plan: Plan, lives: Lives) -> int | None:
    """The least that any shared objects for the plan's buffers add up to; `None` = too many.

    Of the live buffers of a step the k-th largest needs an object of its own beside the k - 1
    larger ones, so the k-th largest object is at least the largest k-th size of any step. There
    are as many objects of at least s bytes as there are buffers of at least s bytes at once.
    """
    spans = []
    for buffer in plan.buffers:
        hull = [life for _, alive in lives.strips(buffer, plan.policies.align) for life in alive]
        if hull:
            first, last = min(life.start for life in hull), max(life.stop for life in hull)
            spans.append((buffer.size, Interval(first, last)))
    sizes = sorted({size for size, _ in spans}, reverse=True)
    if len(sizes) * lives.steps > _CELLS:
        return None
    by_size: dict[int, list[Interval]] = {}
    for size, span in spans:
        by_size.setdefault(size, []).append(span)
    change = np.zeros(lives.steps + 1, dtype=np.int64)
    total = before = 0
    for size in sizes:
        for span in by_size[size]:
            change[span.start] += 1
            change[span.stop] -= 1
        count = int(np.cumsum(change).max(initial=0))
        total += size * (count - before)
        before = count
    return total


def any_order_bound(graph: Graph, plan: Plan, facts: Sequence[Facts]) -> int:
    """The least that any order of the graph needs, however it shares.

    While an op runs, its operands, results and scratch exist together; after the last op the
    outputs do. Tensors that may share bytes because one is a view or a part of the other form a
    family, which counts by its largest member, and not at all where a member lies outside the
    arena. A result that may be written over one of the operands counts nothing, and one that
    may only reach over part of an operand counts what is left.
    """
    families = _Families.of(graph, plan, facts)
    most = families.together(graph.outputs)
    for op, fact in zip(graph.ops, facts, strict=True):
        first = op.outputs[0] if op.outputs else ""
        over = {op.inputs[at] for at in fact.inplace if at < len(op.inputs)} - {""}
        near = {op.inputs[one.input] for one in fact.overlap if one.input < len(op.inputs)} - {""}
        results, extra = op.results, 0
        if first and (near or any(graph[n].nbytes == graph[first].nbytes for n in over)):
            results = tuple(name for name in results if name != first)
            if not over and families.find(first) not in families.outside:
                extra = families.left_out(graph[first].nbytes or 0, near, fact)
        scratch = round_up(fact.workspace or 0, plan.policies.align)
        most = max(most, families.together((*op.operands, *results)) + extra + scratch)
    return most


class _Families:
    """Tensors that may lie in each other's bytes."""

    def __init__(self, graph: Graph, align: int) -> None:
        self.graph, self.align = graph, align
        self.parent = {tensor.name: tensor.name for tensor in graph.tensors}
        self.outside: set[str] = set()

    @classmethod
    def of(cls, graph: Graph, plan: Plan, facts: Sequence[Facts]) -> _Families:
        made = cls(graph, plan.policies.align)
        for op, fact in zip(graph.ops, facts, strict=True):
            pairs = [(op.outputs[v.output], op.inputs[v.input]) for v in fact.views]
            pairs += [(op.outputs[0], op.inputs[p.input]) for p in fact.parts]
            for one, two in pairs:
                if one and two:
                    made.parent[made.find(one)] = made.find(two)
        outside = {tensor.name for tensor in graph.tensors if tensor.role.static}
        outside |= set(graph.inputs) if plan.policies.inputs == "external" else set()
        outside |= set(graph.outputs) if plan.policies.outputs == "external" else set()
        made.outside = {made.find(name) for name in outside}
        return made

    def find(self, name: str) -> str:
        while self.parent[name] != name:
            self.parent[name] = self.parent[self.parent[name]]
            name = self.parent[name]
        return name

    def together(self, names: Iterable[str]) -> int:
        """Bytes that these tensors take at once at the least."""
        largest: dict[str, int] = {}
        for name in names:
            family = self.find(name)
            if family not in self.outside:
                largest[family] = max(largest.get(family, 0), self.graph[name].nbytes or 0)
        return sum(round_up(nbytes, self.align) for nbytes in largest.values())

    def left_out(self, nbytes: int, under: set[str], fact: Facts) -> int:
        """Bytes of a result that cannot lie within the operands it may reach over.

        Over a single operand it starts at least the smallest distance below that.
        """
        host = self.together(under)
        size = round_up(nbytes, self.align)
        if len(under) == 1 and host:
            nearest = min(one.distance for one in fact.overlap)
            size = max(size, round_up(nearest, self.align) + host)
        return max(0, size - host)
