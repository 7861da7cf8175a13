"""What a plan says of its graph and of itself, held against what the graph says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from peakfold.analysis import op_facts, unsupported
from peakfold.ir import Graph
from peakfold.planning.plan import Plan, PlannedBuffer
from peakfold.target import load_target

from .placed import Fault

target_of = cache(load_target)


def statements(work: Graph, plan: Plan, profile: dict[str, int]) -> list[Fault]:
    """What a plan says of its graph and of itself, where that can be told."""
    found = []
    target = target_of(plan.target)
    known = all(
        op_facts(work, op, target).workspace is not None or op.regions or op.name in plan.profile
        for op in work.ops
    )
    known = known and all(body.plan.workspace_known for body in plan.bodies)
    truths = {
        "workspace_known": plan.workspace_known == known,
        "unsupported": plan.unsupported == unsupported(work),
        "opaque": sorted(plan.opaque) == sorted(t.name for t in work.tensors if t.nbytes is None),
        "copies": _copies_told(work, plan),
        "object": _objects_told(plan),
        "graph.name": plan.graph.name == work.name,
        "graph.format": plan.graph.format == work.source,
        "live": not _life_problem(work, plan),
        "profile": plan.profile.items() <= profile.items(),
        "lane": plan.lanes != 1 or not (plan.lane or plan.added),
    }
    found += [Fault("statement", f"false: {name}", name) for name, ok in truths.items() if not ok]
    return found


def _copies_told(work: Graph, plan: Plan) -> bool:
    made = {p.tensor for b in plan.buffers if b.what == "copy" for p in b.tensors}
    told = set(plan.copies)
    return made <= told <= set(work.outputs) and len(told) == len(plan.copies)


def _objects_told(plan: Plan) -> bool:
    """Same object, same address; other objects, other addresses; no object in an arena."""
    if plan.mode == "arena":
        return all(buffer.object is None for buffer in plan.buffers)
    spans: dict[int, tuple[int, int]] = {}
    for buffer in plan.buffers:
        if buffer.object is None:
            return False
        low, high = spans.get(buffer.object, (buffer.offset, buffer.offset))
        if low != buffer.offset:
            return False
        spans[buffer.object] = (low, max(high, buffer.offset + buffer.size))
    ranges = sorted(span for span in spans.values() if span[0] < span[1])
    apart = all(one[1] <= two[0] for one, two in pairwise(ranges))
    alone = len(spans) == len(plan.buffers)
    return apart and (alone or plan.mode not in ("naive", "inplace"))


def _life_problem(work: Graph, plan: Plan) -> bool:
    """Whether some bytes are used outside their stated life, or are said to live when unused."""
    count = len(plan.order)
    steps = max(count + any(b.what == "copy" for b in plan.buffers), 1)
    used = uses(work, plan, steps)
    for buffer in plan.buffers:
        spans = list(_spans(plan, buffer, used, steps))
        first = min((start for _, _, start, _ in spans), default=0)
        last = max((stop for _, _, _, stop in spans), default=0)
        for piece in buffer.live:
            if piece.start < piece.stop and not first <= piece.start < piece.stop <= last:
                return True
        for low, high, start, stop in spans:
            cuts = {low, high, *(p.lower for p in buffer.live), *(p.upper for p in buffer.live)}
            for at in sorted(c for c in cuts if low <= c < high):
                alive = {
                    n
                    for p in buffer.live
                    if p.lower <= at < p.upper
                    for n in range(max(p.start, start), min(p.stop, stop))
                }
                if len(alive) < stop - start:
                    return True
    return False


def _spans(
    plan: Plan, buffer: PlannedBuffer, used: dict[str, tuple[int, int]], steps: int
) -> Iterator[tuple[int, int, int, int]]:
    """Bytes and steps that are in use: lower, upper, start, stop."""
    if buffer.what == "workspace":
        step = plan.order.index(buffer.op)  # type: ignore[arg-type] - the oracle has seen it
        yield 0, buffer.size, step, step + 1
    for place in buffer.tensors:
        start, stop = (steps - 1, steps) if buffer.what == "copy" else used[place.tensor]
        yield place.offset, place.offset + place.nbytes, start, stop


def uses(graph: Graph, plan: Plan, steps: int) -> dict[str, tuple[int, int]]:
    """Steps ``[start, stop)`` during which each tensor must exist, by order alone."""
    step = {op: at for at, op in enumerate(plan.order)}
    born = {name: step[at] for name, at in graph.producer.items()}
    last = {name: born.get(name, 0) for name in graph.by_name}
    for at, op in enumerate(graph.ops):
        for name in op.operands:
            last[name] = max(last[name], step[at])
    kept = {*graph.outputs, *(graph.inputs if plan.policies.inputs == "pinned" else ())}
    last |= dict.fromkeys(kept, steps - 1)
    return {name: (born.get(name, 0), stop + 1) for name, stop in last.items()}
