"""Ops in threads: which lane runs each op, what waits for what, and the run itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from peakfold.errors import InvalidPlan
from peakfold.ir import Graph, effect_edges
from peakfold.planning.plan import PlannedBuffer
from peakfold.runtimes.reference.arena import ArenaRun
from peakfold.runtimes.reference.memory import POISON


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


class _Burial:
    """Poisons a buffer once every op that touches it is done, in whatever order that was."""

    def __init__(self, run: ArenaRun) -> None:
        self.run = run
        self.lock = threading.Lock()
        self.pending: dict[int, set[int]] = {}
        self.touched: dict[int, list[int]] = {}
        kept = set(run.graph.outputs)
        kept |= set(run.graph.inputs) if run.plan.policies.inputs == "pinned" else set()
        for number, buffer in enumerate(run.plan.buffers):
            names = {place.tensor for place in buffer.tensors}
            if buffer.what != "copy" and not names & kept:
                self._watch(number, buffer, names)

    def _watch(self, number: int, buffer: PlannedBuffer, names: set[str]) -> None:
        graph = self.run.graph
        ops = {
            at for at, op in enumerate(graph.ops)
            if names.intersection(op.operands) or names.intersection(op.results)
        }  # fmt: skip
        ops |= set() if buffer.op is None else {buffer.op}
        self.pending[number] = ops
        for at in ops:
            self.touched.setdefault(at, []).append(number)

    def done(self, at: int) -> None:
        """Note that an op is done; called before others may know."""
        with self.lock:
            for number in self.touched.get(at, ()):
                self.pending[number].discard(at)
                if not self.pending[number]:
                    buffer = self.run.plan.buffers[number]
                    self.run.memory.arena[buffer.offset : buffer.offset + buffer.size] = POISON


def run_lanes(run: ArenaRun, lanes: Lanes, seed: int, delay: float = 0.002) -> None:
    """Run every op in its lane's thread, each after a random delay.

    Args:
        run: the run, its inputs in place.
        lanes: the lanes and further waits.
        seed: of the delays.
        delay: the longest delay, seconds.

    Raises:
        InvalidPlan: lanes that cannot run, see `predecessors`.
        Exception: the first that a kernel raised.
    """
    before = predecessors(run.graph, run.plan.order, lanes)
    done = [threading.Event() for _ in run.graph.ops]
    failed: list[Exception] = []
    burial = _Burial(run)

    def work(lane: int, ops: list[int]) -> None:
        rng = np.random.default_rng([seed, lane])
        with np.errstate(all="ignore"):
            for at in ops:
                for one in before[at]:
                    done[one].wait()
                time.sleep(delay * rng.random())
                try:
                    if not failed:
                        run.step(at)
                        burial.done(at)
                except Exception as error:  # handed to the caller's thread
                    failed.append(error)
                done[at].set()

    by_lane: Mapping[int, list[int]] = {
        lane: [at for at in run.plan.order if lanes.lane[at] == lane]
        for lane in sorted(set(lanes.lane))
    }
    threads = [threading.Thread(target=work, args=item) for item in by_lane.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
