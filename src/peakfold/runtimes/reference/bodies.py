"""Bodies of control flow, run as their own plans say inside the workspace of their op.

The workspace holds the body's arena first and then two slots for every value that a loop or scan
carries: one is read while the other is written. What a body captures is the very memory of the
op's operands; a branch of an If writes straight into the op's results. Slices that a scan reads,
rows that are collected and the loop's own counter and condition live outside, as temporaries.
Where a target keeps bodies' inputs and outputs, all of them are in the body's arena: values are
copied in and out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from peakfold.errors import InvalidPlan
from peakfold.ir import Op
from peakfold.judges.placement import Location
from peakfold.planning.plan import ExternalBuffer, Plan
from peakfold.runtimes.reference.arena import ArenaRun
from peakfold.runtimes.reference.control import run_control
from peakfold.runtimes.reference.kernels import Args
from peakfold.runtimes.reference.memory import POISON, Bytes, Memory, aligned_bytes
from peakfold.runtimes.reference.program import Program, Value, formals
from peakfold.units import round_up


def run_bodies(outer: ArenaRun, at: int, op: Op, args: Args) -> tuple[Value, ...]:
    """Results of a control-flow op whose bodies run in its workspace.

    Args:
        outer: the run around it.
        at: position of the op.
        op: the op.
        args: its operands.

    Raises:
        InvalidPlan: a body has no plan, or the workspace is too small for it.
    """
    scratch = outer.memory.places.scratch.get(at)
    room = aligned_bytes(0) if scratch is None else outer.memory.bytes_of(scratch)

    def body(region: int, given: Sequence[Value], trip: int) -> list[Value]:
        plan = outer.bodies.get((at, region))
        if plan is None:
            raise InvalidPlan(f"op {op.name!r} has a body {region} without a plan")
        if plan.arena_bytes > room.size:
            raise InvalidPlan(
                f"op {op.name!r} has {room.size} bytes of workspace for a body that needs "
                f"{plan.arena_bytes}"
            )
        program = outer.program.bodies[at, region]
        feeds = formals(op, region, given, args)
        kept = plan.policies.outputs == "pinned"
        homes = {} if kept else _captured(outer, op, region)
        homes |= {} if kept else _slots(outer, op, program, plan, room, trip)
        feeds = {name: np.array(value) for name, value in feeds.items()} if kept else feeds
        external = tuple(_memory(buffer, homes) for buffer in plan.external)
        memory = Memory.of(program.graph, plan, arena=room, external=external)
        room[: plan.arena_bytes] = POISON
        inner = ArenaRun(program, plan, memory, feeds)
        for step in inner.run_order():
            inner.step(step)
        made = inner.finish()
        outer.broken += [f"{op.name}/{name}" for name in inner.guards_broken()]
        results = [made[name] for name in program.graph.outputs]
        return [np.array(value) for value in results] if kept else results

    return run_control(op, args, body)


def _captured(outer: ArenaRun, op: Op, region: int) -> dict[str, Bytes]:
    """Memory of captured tensors, where the outer plan put them."""
    places = outer.memory.places.of
    names = [name for name in op.regions[region].captures if name in places]
    return {name: outer.memory.bytes_of(places[name]) for name in names}


def _slots(
    outer: ArenaRun, op: Op, program: Program, plan: Plan, room: Bytes, trip: int
) -> dict[str, Bytes]:
    """Memory of a body's results, and of the carried values it reads."""
    graph = program.graph
    if op.kind == "if":
        pairs = zip(op.outputs, graph.outputs, strict=False)
        places: Mapping[str, Location] = outer.memory.places.of
        return {
            inner: outer.memory.bytes_of(places[name]) for name, inner in pairs if name in places
        }
    skip = 2 if op.kind == "loop" else 0
    formal = [name for name in graph.inputs if name not in op.regions[0].captures]
    scanned = op.attrs.get("num_scan_inputs")
    stop = len(formal) - (scanned if isinstance(scanned, int) and op.kind == "scan" else 0)
    homes: dict[str, Bytes] = {}
    at, align = round_up(plan.arena_bytes, plan.policies.align), plan.policies.align
    results = graph.outputs[1 if op.kind == "loop" else 0 :]
    for name, result in zip(formal[skip:stop], results, strict=False):
        size = graph[name].nbytes or 0
        pair = [room[at : at + size], room[at + round_up(size, align) :][:size]]
        at += 2 * round_up(size, align)
        if pair[1].size < size:
            raise InvalidPlan(f"the workspace of op {op.name!r} has no slots for {name!r}")
        homes[name], homes[result] = pair[trip % 2], pair[1 - trip % 2]
    return homes


def _memory(buffer: ExternalBuffer, homes: Mapping[str, Bytes]) -> Bytes:
    """The memory of one external buffer of a body."""
    extent = max((place.offset + place.nbytes for place in buffer.tensors), default=0)
    for place in buffer.tensors:
        home = homes.get(place.tensor)
        if home is not None and place.offset == 0 and extent <= home.size:
            return home[:extent]
    return aligned_bytes(extent)
