"""What a change of a graph costs: operations and time beside those of the graph before it.

Both are differences of sums over the ops. An op that nobody can count falls out of the difference
where both graphs run it over as many elements; otherwise the difference is not known, and the
answer says which kinds are in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from peakfold.analysis.cost.counting import cost_of
from peakfold.analysis.time.roofline import op_time
from peakfold.analysis.time.tasks import tasks_of
from peakfold.device import Device
from peakfold.ir import Graph

_NO_DEVICE = "times need a device (--device)"


@dataclass(frozen=True, slots=True)
class Spent:
    """What the ops of a graph ask for.

    Attributes:
        flops: operations, as far as they can be counted.
        uncounted: elements that ops make of which something cannot, by kind.
        time_s: the sum of roofline bounds; `None` = not known.
        why: why it is not; empty when it is.
    """

    flops: int
    uncounted: Mapping[str, int] = field(default_factory=dict)
    time_s: float | None = None
    why: str = _NO_DEVICE


@dataclass(frozen=True, slots=True)
class Extra:
    """What a change adds.

    Attributes:
        flops: operations, negative when it saves some; `None` = not known.
        time_s: seconds of roofline bounds, likewise.
        why: why one of them is not known; empty when both are.
    """

    flops: int | None
    time_s: float | None
    why: str = ""


def spent(
    graph: Graph, device: Device | None = None, runs: Callable[[int], int] = lambda _: 1
) -> Spent:
    """What a graph's ops ask for, one after the other.

    Args:
        graph: every dimension a number.
        device: where they run; without one there is no time.
        runs: how often an op runs, by its position.

    Example:
        >>> from peakfold.device import load_device
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[300]\\n"
        ...                 "y: float32[300] = relu(x)\\noutput y")
        >>> found = spent(g, load_device("t4"), runs=lambda _: 2)
        >>> found.flops, found.time_s == 2 * 2400 / 300e9
        (600, True)
    """
    flops, seconds, why = 0, 0.0, ""
    uncounted: dict[str, int] = {}
    cost = cost_of(graph)
    for task in tasks_of(graph, cost):
        work, times = task.work, runs(task.owner)
        if work.flops is None:
            made = cost.ops[task.owner].figures.elements or 0
            uncounted[work.kind] = uncounted.get(work.kind, 0) + times * made
        if work.macs is not None and work.other_ops is None:
            work = replace(work, other_ops=0)  # what is known of it bounds it all the same
        flops += times * (work.flops or 0) * work.runs
        if device is not None:
            found = op_time(work, device)
            if found.time_s is None:
                why = why or f"the time of {work.kind!r} is not known"
            elif work.macs and found.compute_s is None:
                why = why or f"{device.name} has no peak for {work.dtype}"
            seconds += times * (found.time_s or 0.0)
    if device is None:
        return Spent(flops, uncounted)
    return Spent(flops, uncounted, None if why else seconds, why)


def extra(before: Spent, after: Spent) -> Extra:
    """What the second graph asks for beyond the first.

    Example:
        >>> extra(Spent(10, {}, 0.5, ""), Spent(16, {}, 0.75, ""))
        Extra(flops=6, time_s=0.25, why='')
        >>> extra(Spent(10), Spent(16, {"sort": 9})).flops is None
        True
    """
    kinds = sorted(
        kind
        for kind in {*before.uncounted, *after.uncounted}
        if before.uncounted.get(kind, 0) != after.uncounted.get(kind, 0)
    )
    said = [f"the operations of {', '.join(kinds)} are not known"] if kinds else []
    if before.time_s is None or after.time_s is None:
        said.append(before.why if before.time_s is None else after.why)
        time_s = None
    else:
        time_s = after.time_s - before.time_s
    return Extra(None if kinds else after.flops - before.flops, time_s, "; ".join(said))
