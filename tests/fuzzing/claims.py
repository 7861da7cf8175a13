"""Claims of optimality, falsified by something smaller that is found here.

A bound is false where a placement, an assignment to objects or a whole plan is smaller than it.
What cannot be beaten here may still be false: the oracle finds no fault, and says so.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.ir import Graph
from peakfold.planning.plan import Plan

from .placed import Fault
from .statements import uses

TRIES = 24
"""Orders of buffers that first fit is tried in; all of them, where there are no more."""


@dataclass(frozen=True, slots=True)
class Box:
    """Bytes that exist during steps ``[start, stop)``."""

    start: int
    stop: int
    size: int

    def meets(self, other: Box) -> bool:
        return max(self.start, other.start) < min(self.stop, other.stop)


@dataclass(frozen=True, slots=True)
class Witness:
    """A sound plan of the graph: no bound on any order is above its arena."""

    plan: Plan

    def speaks_of(self, other: Plan) -> bool:
        mine, its = self.plan.policies, other.policies
        return (
            self.plan.target == other.target
            and self.plan.lanes in (1, other.lanes)
            and (mine.inputs, mine.outputs) == (its.inputs, its.outputs)
            and mine.align >= its.align
            and mine.align % its.align == 0
            and self.plan.recipe == other.recipe
            and self.plan.profile == other.profile
        )


def boxes(graph: Graph, plan: Plan) -> list[Box]:
    """Buffers of a serial plan with lives that follow from graph and order alone."""
    step = {op: at for at, op in enumerate(plan.order)}
    copies = any(buffer.what == "copy" for buffer in plan.buffers)
    steps = max(len(plan.order) + copies, 1)
    used = uses(graph, plan, steps)
    found = []
    for buffer in plan.buffers:
        if buffer.what == "copy":
            span = (steps - 1, steps)
        elif buffer.what == "workspace":
            span = (step[buffer.op], step[buffer.op] + 1)  # type: ignore[index]
        elif not buffer.tensors:
            continue
        else:
            lives = [used[place.tensor] for place in buffer.tensors]
            span = (min(start for start, _ in lives), max(stop for _, stop in lives))
        found.append(Box(*span, buffer.size))
    return found


def first_fit(items: Sequence[Box], align: int, rng: random.Random) -> int:
    """The smallest arena that first fit finds for them, over several orders."""
    if len(items) <= 4:
        orders = list(itertools.permutations(range(len(items))))
    else:
        plain = range(len(items))
        orders = [
            tuple(sorted(plain, key=lambda n: (-items[n].size, items[n].start))),
            tuple(plain),
        ]
        orders += [tuple(rng.sample(plain, len(items))) for _ in range(TRIES - 2)]
    return min((_arena(items, order, align) for order in orders), default=0)


def _arena(items: Sequence[Box], order: Sequence[int], align: int) -> int:
    placed: list[tuple[int, Box]] = []
    top = 0
    for box in (items[n] for n in order):
        at = 0
        for low, other in sorted(placed, key=lambda pair: pair[0]):
            if box.meets(other) and at < low + other.size and low < at + box.size:
                at = -(-(low + other.size) // align) * align
        placed.append((at, box))
        top = max(top, at + box.size)
    return top


def objects(items: Sequence[Box]) -> int:
    """The bytes of shared objects that a greedy assignment needs."""
    shared: list[list[Box]] = []
    for box in sorted(items, key=lambda one: -one.size):
        home = next((h for h in shared if not any(box.meets(o) for o in h)), None)
        if home is None:
            shared.append([box])
        else:
            home.append(box)
    return sum(home[0].size for home in shared)


def claims(graph: Graph, plan: Plan, witnesses: Sequence[Witness]) -> list[Fault]:
    """Bounds and proofs of a plan that are beaten.

    Args:
        graph: after the recipe.
        plan: one in whose memory the oracle found no fault.
        witnesses: sound plans of the same graph.
    """
    arena, bound, proof = plan.arena_bytes, plan.bound, plan.proof
    if plan.lanes == 1:
        items = boxes(graph, plan)
        offsets = min(arena, first_fit(items, plan.policies.align, random.Random(0)))
        together = objects(items)
    else:
        offsets = together = arena
    any_order = min([arena, *(w.plan.arena_bytes for w in witnesses if w.speaks_of(plan))])
    family = offsets if plan.mode == "arena" else together
    tests = [
        ("bound.offsets", bound.offsets > offsets, offsets),
        ("bound.objects", bound.objects > together and plan.lanes == 1, together),
        ("bound.any_order", bound.any_order > any_order, any_order),
        ("proof.packing", proof.packing and arena > family, family),
        ("proof.order", proof.order and arena > any_order, any_order),
    ]
    return [
        Fault("claim", f"{name} is false: {enough} bytes are enough", name)
        for name, false, enough in tests
        if false
    ]
