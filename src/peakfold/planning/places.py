"""Where a plan puts each tensor, and whether it is one place that its policies allow."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.analysis.index import is_opaque
from peakfold.interval import Interval
from peakfold.ir import Graph
from peakfold.planning.plan import Plan, PlannedBuffer

ARENA = -1
"""The address space of the arena; external buffers are spaces 0, 1, 2, ..."""


@dataclass(frozen=True, slots=True)
class Location:
    """An address space, the address in it, and the buffer (arena) it belongs to."""

    space: int
    address: int
    nbytes: int
    buffer: int

    def overlaps(self, other: Location) -> bool:
        """Whether both cover a common byte."""
        return self.space == other.space and self.extent.overlaps(other.extent)

    @property
    def extent(self) -> Interval:
        """Its bytes, as addresses."""
        return Interval(self.address, self.address + self.nbytes)


@dataclass(frozen=True, slots=True)
class Places:
    """Locations by tensor, of op scratch, and of output copies.

    Attributes:
        twice: tensors with more than one place.
    """

    of: dict[str, Location]
    scratch: dict[int, Location]
    copies: dict[str, Location]
    twice: tuple[str, ...]

    @classmethod
    def of_plan(cls, plan: Plan) -> Places:
        """Read the places out of a plan."""
        of: dict[str, Location] = {}
        scratch: dict[int, Location] = {}
        copies: dict[str, Location] = {}
        twice: list[str] = []
        for number, buffer in enumerate(plan.buffers):
            if buffer.what == "workspace" and buffer.op is not None:
                scratch[buffer.op] = Location(ARENA, buffer.offset, buffer.size, number)
            table = copies if buffer.what == "copy" else of
            for place in buffer.tensors:
                twice += [place.tensor] if place.tensor in table else []
                table[place.tensor] = Location(
                    ARENA, buffer.offset + place.offset, place.nbytes, number
                )
        for space, external in enumerate(plan.external):
            for place in external.tensors:
                twice += [place.tensor] if place.tensor in of else []
                of[place.tensor] = Location(space, place.offset, place.nbytes, -1)
        return cls(of, scratch, copies, tuple(twice))

    def problem(self, graph: Graph, plan: Plan) -> str | None:
        """The first rule about places that is broken, or `None`."""
        if self.twice:
            return f"tensor {self.twice[0]!r} has two places"
        strangers = [name for name in (*self.of, *self.copies) if name not in graph.by_name]
        if strangers:
            return f"the graph has no tensor {strangers[0]!r}"
        for number, buffer in enumerate(plan.buffers):
            wrong = _buffer_problem(number, buffer, plan.policies.align)
            if buffer.op is not None and buffer.op >= len(graph.ops):
                wrong = f"buffer {number} is the workspace of op {buffer.op}, which does not exist"
            if wrong:
                return wrong
        for tensor in graph.tensors:
            if tensor.role.static or is_opaque(tensor):
                continue
            where = self.of.get(tensor.name)
            if where is None:
                return f"tensor {tensor.name!r} has no place"
            if where.nbytes != tensor.nbytes:
                return f"tensor {tensor.name!r} needs {tensor.nbytes} bytes, not {where.nbytes}"
            if where.space == ARENA and where.address % plan.policies.align:
                return f"tensor {tensor.name!r} starts at {where.address}, which is not aligned"
        return self._policy_problem(graph, plan)

    def _policy_problem(self, graph: Graph, plan: Plan) -> str | None:
        for name in graph.inputs:
            if graph[name].role.static or is_opaque(graph[name]):
                continue
            external = self.of[name].space != ARENA
            if external != (plan.policies.inputs == "external"):
                return f"input {name!r} lies where the policy {plan.policies.inputs!r} forbids"
        for name in graph.outputs:
            if is_opaque(graph[name]):
                continue
            made = name in graph.producer
            if made and (self.of[name].space != ARENA) != (plan.policies.outputs == "external"):
                return f"output {name!r} lies where the policy {plan.policies.outputs!r} forbids"
            owned = name in self.of and self.of[name].space == ARENA
            needs_copy = not made and not owned and plan.policies.outputs == "pinned"
            if needs_copy and name not in self.copies:
                return f"output {name!r} belongs to the caller and has no copy in the arena"
        for name, where in self.of.items():
            if graph[name].role.static and where.space == ARENA:
                return f"the static tensor {name!r} lies in the arena"
        return None


def _buffer_problem(number: int, buffer: PlannedBuffer, align: int) -> str | None:
    if buffer.offset < 0 or buffer.offset % align or buffer.size % align:
        return f"buffer {number} breaks the alignment of {align} bytes"
    if any(p.stop < p.start or p.upper < p.lower or p.upper > buffer.size for p in buffer.live):
        return f"buffer {number} states a life that stops before it starts or leaves the buffer"
    if buffer.what == "workspace" and buffer.op is None:
        return f"buffer {number} is the workspace of no op"
    for place in buffer.tensors:
        if place.offset < 0 or place.offset + place.nbytes > buffer.size:
            return f"tensor {place.tensor!r} reaches out of buffer {number}"
    return None
