"""Where a plan puts each tensor, and whether it is one place that its policies allow."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.analysis.graph.index import is_opaque
from peakfold.interval import Interval
from peakfold.ir import Graph
from peakfold.planning.plan import ExternalBuffer, Plan, PlannedBuffer, PoliciesRecord

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
        twice: what has more than one place: tensors, and ops with several workspaces.
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
                twice += [f"the workspace of op {buffer.op}"] if buffer.op in scratch else []
                scratch[buffer.op] = Location(ARENA, buffer.offset, buffer.size, number)
            table = copies if buffer.what == "copy" else of
            for place in buffer.tensors:
                twice += [f"tensor {place.tensor!r}"] if place.tensor in table else []
                table[place.tensor] = Location(
                    ARENA, buffer.offset + place.offset, place.nbytes, number
                )
        for space, external in enumerate(plan.external):
            for place in external.tensors:
                twice += [f"tensor {place.tensor!r}"] if place.tensor in of else []
                of[place.tensor] = Location(space, place.offset, place.nbytes, -1)
        return cls(of, scratch, copies, tuple(twice))

    def problem(self, graph: Graph, plan: Plan) -> str | None:
        """The first rule about places that is broken, or `None`."""
        if self.twice:
            return f"{self.twice[0]} has two places"
        strangers = [name for name in (*self.of, *self.copies) if name not in graph.by_name]
        if strangers:
            return f"the graph has no tensor {strangers[0]!r}"
        for number, buffer in enumerate(plan.buffers):
            wrong = _buffer_problem(number, buffer, plan.policies.align)
            if buffer.op is not None and buffer.op >= len(graph.ops):
                wrong = f"buffer {number} is the workspace of op {buffer.op}, which does not exist"
            if wrong:
                return wrong
        return self._size_problem(graph, plan) or self.outside_problem(graph, plan)

    def _size_problem(self, graph: Graph, plan: Plan) -> str | None:
        for tensor in graph.tensors:
            where = self.of.get(tensor.name)
            if is_opaque(tensor):
                if where is not None or tensor.name in self.copies:
                    return f"tensor {tensor.name!r} has no size, and yet a place"
                continue
            if where is None:
                if tensor.role.static:
                    continue
                return f"tensor {tensor.name!r} has no place"
            if where.nbytes != tensor.nbytes:
                return f"tensor {tensor.name!r} needs {tensor.nbytes} bytes, not {where.nbytes}"
            if where.space == ARENA and where.address % plan.policies.align:
                return f"tensor {tensor.name!r} starts at {where.address}, which is not aligned"
            if where.space == ARENA and tensor.role.static:
                return f"the static tensor {tensor.name!r} lies in the arena"
        for name, where in self.copies.items():
            if where.nbytes != graph[name].nbytes:
                return f"the copy of {name!r} has {where.nbytes} bytes"
        return None

    def outside_problem(self, graph: Graph, plan: Plan) -> str | None:
        """What lies outside the arena and may not, or inside and may not; or `None`.

        Memory outside the arena is given by somebody: the caller holds inputs and outputs where
        the policies say so, and static tensors exist before the run. Each such buffer holds one
        of them, from its first byte on, and otherwise only tensors that lie in those bytes;
        whether they hold the right values is the interpreter's business.
        """
        for number, external in enumerate(plan.external):
            wrong = _external_problem(number, external, graph, plan.policies)
            if wrong:
                return wrong
        for name in graph.inputs:
            if graph[name].role.static or is_opaque(graph[name]):
                continue
            outside = self.of[name].space != ARENA
            if outside != (plan.policies.inputs == "external"):
                return f"input {name!r} lies where the policy {plan.policies.inputs!r} forbids"
        return self._output_problem(graph, plan)

    def _output_problem(self, graph: Graph, plan: Plan) -> str | None:
        outputs, missing = plan.policies.outputs, []
        for name in dict.fromkeys(graph.outputs):
            if is_opaque(graph[name]):
                continue
            made = name in graph.producer
            owned = name in self.of and self.of[name].space == ARENA
            if made and owned == (outputs == "external"):
                return f"output {name!r} lies where the policy {outputs!r} forbids"
            if not made and not owned and outputs == "pinned":
                missing.append(name)
        for name in missing:
            if name not in self.copies:
                return f"output {name!r} belongs to the caller and has no copy in the arena"
        for name in self.copies:
            if name not in missing:
                return f"{name!r} has a copy in the arena, but needs none"
        return None


def _external_problem(
    number: int, external: ExternalBuffer, graph: Graph, policies: PoliciesRecord
) -> str | None:
    """Whether memory outside the arena is rooted in something that somebody really holds."""
    given = {name for name in graph.inputs if policies.inputs == "external"}
    taken = {name for name in graph.outputs if policies.outputs == "external"}
    where = f"external buffer {number}"
    if not external.tensors:
        return f"{where} holds no tensor"
    roots = [
        place
        for place in external.tensors
        if place.tensor in given or graph[place.tensor].role.static
    ]
    if len(roots) > 1:
        return f"{where} holds both {roots[0].tensor!r} and {roots[1].tensor!r}"
    roots = roots or [place for place in external.tensors if place.tensor in taken]
    if not roots:
        return f"{where} holds {external.tensors[0].tensor!r}, which nobody keeps for the plan"
    root = max(roots, key=lambda place: place.nbytes)
    if root.offset != 0:
        return f"{where} begins before {root.tensor!r}, whose memory it is"
    for place in external.tensors:
        if place.offset + place.nbytes > root.nbytes:
            return f"{place.tensor!r} reaches out of the memory of {root.tensor!r}"
    return None


def _buffer_problem(number: int, buffer: PlannedBuffer, align: int) -> str | None:
    if buffer.offset % align or buffer.size % align:
        return f"buffer {number} breaks the alignment of {align} bytes"
    if any(p.stop < p.start or p.upper < p.lower or p.upper > buffer.size for p in buffer.live):
        return f"buffer {number} states a life that stops before it starts or leaves the buffer"
    if (buffer.what == "workspace") != (buffer.op is not None):
        return f"buffer {number} is {buffer.what!r} and of op {buffer.op}"
    if bool(buffer.tensors) == (buffer.what == "workspace"):
        return f"buffer {number} is {buffer.what!r} and holds {len(buffer.tensors)} tensors"
    if buffer.what == "copy" and (len(buffer.tensors) != 1 or buffer.tensors[0].offset):
        return f"buffer {number} is the copy of one output, at its first byte"
    for place in buffer.tensors:
        if place.offset + place.nbytes > buffer.size:
            return f"tensor {place.tensor!r} reaches out of buffer {number}"
    return None
