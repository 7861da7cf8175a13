"""Ops in threads: which lane runs each op, what waits for what, and the run itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from peakfold.errors import InvalidPlan
from peakfold.ir import Graph, effect_edges
from peakfold.planning.plan import Plan, PlannedBuffer
from peakfold.runtimes.reference.arena import ArenaRun
from peakfold.runtimes.reference.memory import POISON

_FREE_LANES = 4
_LONGEST_DELAY = 0.002
"""Seconds before an op runs, so that the threads interleave differently every time."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """A lane for every op; each lane runs its ops in the plan's order, one after another.

    An op also waits for the makers of its operands, for effects, and for `edges`: nothing else
    holds it back, so a plan that leans on the serial order goes wrong.

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
    sorted_ops = set(_sorted(before, lambda count: count - 1))
    stuck = next((at for at in range(len(before)) if at not in sorted_ops), None)
    if stuck is not None:
        raise InvalidPlan(
            f"op {graph.ops[stuck].name!r} waits for itself",
            hint="lane order and added edges contradict the graph",
        )


def _sorted(before: list[set[int]], pick: Callable[[int], int]) -> list[int]:
    """Ops in an order that keeps all waits, short of those on a cycle or behind one.

    Args:
        before: what each op waits for.
        pick: which of so many ready ops comes next.
    """
    missing = [len(needs) for needs in before]
    after: list[list[int]] = [[] for _ in before]
    for at, needs in enumerate(before):
        for one in needs:
            after[one].append(at)
    ready = [at for at, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        at = ready.pop(pick(len(ready)))
        order.append(at)
        for two in after[at]:
            missing[two] -= 1
            if not missing[two]:
                ready.append(two)
    return order


class _Burial:
    """Poisons bytes once every op that touches a tensor in them is done, in whatever order."""

    def __init__(self, run: ArenaRun) -> None:
        self.run = run
        self.lock = threading.Lock()
        # Per byte range of the arena the ops still to come; per op the ranges it touches.
        self.pending: list[tuple[slice, set[int]]] = []
        self.touched: dict[int, list[int]] = {}
        kept = set(run.graph.outputs)
        kept |= set(run.graph.inputs) if run.plan.policies.inputs == "pinned" else set()
        users: dict[str, set[int]] = {}
        for at, op in enumerate(run.graph.ops):
            for name in (*op.operands, *op.results):
                users.setdefault(name, set()).add(at)
        for buffer in run.plan.buffers:
            if buffer.what == "workspace" and buffer.op is not None:
                self._watch(slice(buffer.offset, buffer.offset + buffer.size), {buffer.op})
            elif buffer.what == "tensor":
                self._watch_tensors(buffer, users, kept)

    def _watch_tensors(
        self, buffer: PlannedBuffer, users: Mapping[str, set[int]], kept: set[str]
    ) -> None:
        places = buffer.tensors
        edges = sorted({e for p in places for e in (p.offset, p.offset + p.nbytes)})
        for low, high in pairwise(edges):
            here = [p.tensor for p in places if p.offset <= low and high <= p.offset + p.nbytes]
            if here and not kept.intersection(here):
                ops = set().union(*(users.get(name, set()) for name in here))
                self._watch(slice(buffer.offset + low, buffer.offset + high), ops)

    def _watch(self, where: slice, ops: set[int]) -> None:
        for at in ops:
            self.touched.setdefault(at, []).append(len(self.pending))
        self.pending.append((where, ops))

    def done(self, at: int) -> None:
        """Note that an op is done; called before others may know."""
        with self.lock:
            for number in self.touched.get(at, ()):
                where, ops = self.pending[number]
                ops.discard(at)
                if not ops:
                    self.run.memory.arena[where] = POISON


def planned_lanes(graph: Graph, plan: Plan, seed: int) -> tuple[Lanes | None, list[int]]:
    """The lanes a plan asks for, and an order of its ops for them.

    A plan for free lanes must be right in any order that the graph (and what the plan added)
    allows: one such order and lanes for it are drawn by the seed.

    Args:
        graph: the planned graph.
        plan: the plan.
        seed: of the order and the lanes of a free plan.

    Returns:
        No lanes for a serial plan.
    """
    added = tuple((one, two) for one, two in plan.added)
    if plan.lanes != "free":
        serial = plan.lanes == 1 or not plan.lane
        return (None if serial else Lanes(tuple(plan.lane), added)), list(plan.order)
    rng = np.random.default_rng(seed)
    alone = Lanes(tuple(range(len(graph.ops))), added)
    before = predecessors(graph, list(plan.order), alone)
    order = _sorted(before, lambda count: int(rng.integers(count)))
    return Lanes(tuple(rng.integers(0, _FREE_LANES, len(graph.ops)).tolist()), added), order


def run_lanes(run: ArenaRun, lanes: Lanes, order: Sequence[int], seed: int) -> None:
    """Run every op in its lane's thread, each after a random delay.

    Args:
        run: the run, its inputs in place.
        lanes: the lanes and further waits.
        order: of the ops; each lane follows it.
        seed: of the delays.

    Raises:
        InvalidPlan: lanes that cannot run, see `predecessors`.
        Exception: the first that a kernel raised.
    """
    before = predecessors(run.graph, list(order), lanes)
    done = [threading.Event() for _ in run.graph.ops]
    failed: list[Exception] = []
    burial = _Burial(run)

    def work(lane: int, ops: list[int]) -> None:
        rng = np.random.default_rng([seed, lane])
        with np.errstate(all="ignore"):
            for at in ops:
                for one in before[at]:
                    done[one].wait()
                time.sleep(_LONGEST_DELAY * rng.random())
                try:
                    if not failed:
                        run.step(at)
                        burial.done(at)
                except Exception as error:  # handed to the caller's thread
                    failed.append(error)
                done[at].set()

    by_lane: dict[int, list[int]] = {}
    for at in order:
        by_lane.setdefault(lanes.lane[at], []).append(at)
    threads = [threading.Thread(target=work, args=item) for item in by_lane.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
