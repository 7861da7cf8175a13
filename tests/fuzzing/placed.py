"""First half of the oracle: what is surely over when an op starts, and where everything lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from peakfold.analysis.graph.alias_facts import Facts
from peakfold.ir import Graph, Op
from peakfold.planning.plan import Plan

START = -1
ARENA = "arena"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a plan.

    Attributes:
        kind: ``memory`` (a value is lost), ``external``, ``scratch``, ``place``, ``order``,
            ``alias``, ``claim`` or ``statement``.
        about: the field of the plan that says it, for what a judge may call claimed.
    """

    kind: str
    text: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes ``[low, high)`` of a space: the arena, or one external buffer by its number."""

    space: object
    low: int
    high: int

    def meets(self, other: Span) -> bool:
        return self.space == other.space and max(self.low, other.low) < min(self.high, other.high)

    def common(self, other: Span) -> Span:
        return Span(self.space, max(self.low, other.low), min(self.high, other.high))


@dataclass(frozen=True, slots=True)
class Write:
    """`op` writes `span`: the result or variable `name`, or its scratch (``""``)."""

    op: int
    span: Span
    name: str


Piece = tuple[int, Span]
"""The op that wrote some bytes, and the bytes."""


@dataclass(slots=True)
class Placed:
    """One plan against its graph: the stages fill `faults`."""

    graph: Graph
    plan: Plan
    profile: dict[str, int]
    faults: list[Fault] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)
    where: dict[str, Span] = field(default_factory=dict)
    copies: dict[str, Span] = field(default_factory=dict)
    scratch: dict[int, list[Span]] = field(default_factory=dict)
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)

    def wrong(self, kind: str, text: str, about: str = "") -> None:
        self.faults.append(Fault(kind, text, about))

    # Which ops are surely over when an op starts.

    def order(self) -> None:
        plan, ops = self.plan, self.graph.ops
        if sorted(plan.order) != list(range(len(ops))):
            return self.wrong("order", "no permutation", "order")
        needs = needed_ops(self.graph)
        step = {op: at for at, op in enumerate(plan.order)}
        for op, before in enumerate(needs):
            if any(step[one] >= step[op] for one in before):
                return self.wrong("order", f"op {op} runs too early", "order")
        if plan.lanes == 1:
            needs = [set(plan.order[: step[op]]) for op in range(len(ops))]
        elif not self.lanes(needs, step):
            return self.wrong("order", "its lanes or added edges make no sense", "lanes")
        self.earlier = [0] * len(ops)
        for op in plan.order:
            for before in needs[op]:
                self.earlier[op] |= self.earlier[before] | 1 << before
        return None

    def lanes(self, needs: list[set[int]], step: dict[int, int]) -> bool:
        plan, count = self.plan, len(self.graph.ops)
        for before, after in plan.added:
            if not (before < count and after < count) or step[before] >= step[after]:
                return False
            needs[after].add(before)
        if plan.lanes == "free":
            return not plan.lane
        if len(plan.lane) != count or any(lane >= plan.lanes for lane in plan.lane):
            return False
        last: dict[int, int] = {}
        for op in plan.order:
            if plan.lane[op] in last:
                needs[op].add(last[plan.lane[op]])
            last[plan.lane[op]] = op
        return True

    def before(self, one: int, two: int) -> bool:
        """Whether `one` is surely over when `two` starts; copies run as op ``len(ops)``."""
        end = len(self.graph.ops)
        if one == START or two == end:
            return one != two
        if two == START or one == end:
            return False
        return bool(self.earlier[two] >> one & 1)

    # Where everything lies.

    def places(self) -> None:
        plan, align = self.plan, self.plan.policies.align
        for buffer in plan.buffers:
            span = Span(ARENA, buffer.offset, buffer.offset + buffer.size)
            if span.high > plan.arena_bytes or buffer.size < 0:
                self.wrong("place", f"{buffer.what} reaches out of the arena", "arena_bytes")
            if buffer.what == "workspace":
                self.scratch.setdefault(-1 if buffer.op is None else buffer.op, []).append(span)
            if buffer.what != "tensor" and buffer.offset % align:
                self.wrong("place", f"{buffer.what} is not aligned", "buffers")
            table = self.copies if buffer.what == "copy" else self.where
            for place in buffer.tensors:
                low = buffer.offset + place.offset
                here = Span(ARENA, low, low + place.nbytes)
                self.put(table, place.tensor, here)
                if here.high > span.high:
                    self.wrong("place", f"{place.tensor} reaches out of its buffer", "buffers")
                if low % align:
                    self.wrong("place", f"{place.tensor} is not aligned", "buffers")
        for number, external in enumerate(plan.external):
            for place in external.tensors:
                here = Span(number, place.offset, place.offset + place.nbytes)
                self.put(self.where, place.tensor, here)
        for tensor in self.graph.tensors:
            if (
                not tensor.role.static
                and tensor.nbytes is not None
                and (tensor.name not in self.where)
            ):
                self.wrong("place", f"{tensor.name} has no place", "buffers")

    def put(self, table: dict[str, Span], name: str, here: Span) -> None:
        tensor = self.graph.by_name.get(name)
        if tensor is None or tensor.nbytes is None or tensor.nbytes != here.high - here.low:
            return self.wrong("place", f"{name} has another size, or does not exist", "buffers")
        if name in table:
            return self.wrong("place", f"{name} has two places", "buffers")
        table[name] = here
        return None

    # Who may hold what.

    def homes(self) -> None:
        graph, policies = self.graph, self.plan.policies
        for name in graph.inputs:
            outside = name in self.where and self.where[name].space is not ARENA
            if (
                name in self.where
                and not graph[name].role.static
                and (outside != (policies.inputs == "external"))
            ):
                self.wrong("external", f"input {name} against the policy", "policies")
        for name in graph.outputs:
            made = name in graph.producer
            outside = name in self.where and self.where[name].space is not ARENA
            if made and name in self.where and outside != (policies.outputs == "external"):
                self.wrong("external", f"output {name} against the policy", "policies")
            foreign = (
                not made and graph[name].nbytes is not None and (outside or name not in self.where)
            )
            if foreign and policies.outputs == "pinned" and name not in self.copies:
                self.wrong("external", f"output {name} has no copy in the arena", "copies")
        for name, span in self.where.items():
            if graph[name].role.static and span.space is ARENA:
                self.wrong("external", f"static {name} in the arena", "buffers")
        for name in self.copies:
            if name not in graph.outputs:
                self.wrong("place", f"a copy of {name}, which is no output", "copies")


def written_states(op: Op) -> set[str]:
    """Variables an op writes, in its bodies too."""
    return {*op.writes, *(name for inner in _inner(op) for name in inner.writes)}


def _inner(op: Op) -> Iterator[Op]:
    for region in op.regions:
        for inner in region.graph.ops:
            yield inner
            yield from _inner(inner)


def needed_ops(graph: Graph) -> list[set[int]]:
    """Per op, the ops that must be over before it: makers of operands, and effects."""
    states = {t.name for t in graph.tensors if t.role.value == "state"}
    states |= {name for op in graph.ops for name in written_states(op)}
    needs: list[set[int]] = []
    wrote: dict[str, int] = {}
    readers: dict[str, set[int]] = {}
    for at, op in enumerate(graph.ops):
        mine = {graph.producer[name] for name in op.operands if name in graph.producer}
        inner = list(_inner(op))
        reads = {*op.reads, *(set(op.operands) & states), *(n for i in inner for n in i.reads)}
        mine |= {wrote[name] for name in reads if name in wrote}
        for name in written_states(op):
            mine |= readers.pop(name, set())
            mine |= {wrote[name]} if name in wrote else set()
            wrote[name] = at
        for name in reads:
            readers.setdefault(name, set()).add(at)
        needs.append(mine - {at})
    return needs
