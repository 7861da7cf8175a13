"""Sharing by reference counting: one simulated run with a free list of free objects (R29 to R33).

Every tensor starts with the number of its readers, plus one if it is an output. At each step,
in this order: try to run in place, take objects for the results (largest first), give back
what the step read for the last time. Taking before giving back matters: a result may never
land on an operand that is still being read. NNVM plans memory this way (Chen et al., 2016,
arXiv 1604.06174, section 3); its size window is R44 of the requirements.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from peakfold.analysis import Facts, Index, Policies, Schedule
from peakfold.analysis.graph.alias_facts import viewed
from peakfold.planning.aliasing.records import Alias, Storages
from peakfold.units import round_up

SharePolicy = Literal["any", "equal", "nnvm"]
SHARE_POLICIES: tuple[SharePolicy, ...] = ("any", "equal", "nnvm")
NNVM_WINDOW = 16


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One step of the simulated run.

    Attributes:
        step: position in the order; op: its id.
        given: per result ``(tensor, object, how)``; how is ``new``, ``free``, ``inplace``,
            ``view`` or ``external`` (object -1).
        counters: readers left after the step, of the tensors whose count changed.
        released: objects that went into the free list, in order.
        free: the free list after the step, oldest first.
    """

    step: int
    op: int
    given: tuple[tuple[int, int, str], ...]
    counters: tuple[tuple[int, int], ...]
    released: tuple[int, ...]
    free: tuple[int, ...]


@dataclass(slots=True, eq=False)
class CounterPlan:
    """Storages, and the object each one is a tenant of.

    Attributes:
        storages: tensors that share bytes through views and in-place ops.
        object_of: object per storage; -1 for external storages.
        workspace_object: object per op that has scratch.
        sizes: bytes of each object.
        initial: counter of every tensor before the first step.
        rows: the step trace.
    """

    storages: Storages
    object_of: list[int] = field(default_factory=list)
    workspace_object: dict[int, int] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    initial: list[int] = field(default_factory=list)
    rows: list[TraceRow] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Bytes of all objects."""
        return sum(self.sizes)


class FreeList:
    """Free objects, found by size; equal sizes first in, first out."""

    def __init__(self, policy: SharePolicy, window: int) -> None:
        self.policy = policy
        self.window = window
        self.items: list[tuple[int, int, int]] = []
        self.clock = 0

    def put(self, size: int, obj: int) -> None:
        """Give an object back."""
        insort(self.items, (size, self.clock, obj))
        self.clock += 1

    def take(self, size: int) -> int | None:
        """The smallest sufficient object, else the largest smaller one, within the policy."""
        at = bisect_left(self.items, (size, -1, -1))
        most = {"any": None, "equal": size, "nnvm": size * self.window}[self.policy]
        if at < len(self.items) and (most is None or self.items[at][0] <= most):
            return self.items.pop(at)[2]
        if self.policy == "equal" or at == 0:
            return None
        largest = self.items[at - 1][0]
        # ">= size / window" without rounding; a window of 0 shares nothing.
        if self.policy == "nnvm" and largest * self.window < size:
            return None
        return self.items.pop(bisect_left(self.items, (largest, -1, -1)))[2]

    def contents(self) -> tuple[int, ...]:
        """The free objects, oldest first."""
        return tuple(obj for _, _, obj in sorted(self.items, key=lambda item: item[1]))


class _Run:
    def __init__(
        self,
        index: Index,
        schedule: Schedule,
        policies: Policies,
        facts: Sequence[Facts],
        free_lists: dict[int, FreeList],
        colour: Sequence[int],
        inplace: bool,
        views: bool,
        trace: bool,
    ) -> None:
        self.index = index
        self.schedule = schedule
        self.policies = policies
        self.facts = facts
        self.free_lists = free_lists
        self.colour = colour
        self.inplace = inplace
        self.views = views
        self.trace = trace
        count = len(index.nbytes)
        self.plan = CounterPlan(Storages([-1] * count, [0] * count))
        self.outputs = frozenset(index.outputs)
        self.counter = [len(index.users_of(t)) + (t in self.outputs) for t in range(count)]
        # Readers left of a whole storage: an object is free when nobody needs any of it.
        self.pending: list[int] = []
        self.gone: set[int] = set()

    def run(self) -> CounterPlan:
        self.plan.initial = list(self.counter)
        for tensor in self.index.inputs:
            if not self.index.static[tensor] and tensor not in self.index.opaque:
                external = self.policies.inputs == "external"
                self.counter[tensor] += self.policies.inputs == "pinned"
                self._open(tensor, -1 if external else self._new(tensor))
        for step, op in enumerate(self.schedule.order):
            self._step(step, op)
        return self.plan

    def _size(self, tensor: int) -> int:
        return round_up(self.index.nbytes[tensor], self.policies.align)

    def _new(self, tensor: int) -> int:
        self.plan.sizes.append(self._size(tensor))
        return len(self.plan.sizes) - 1

    def _open(self, tensor: int, obj: int) -> None:
        self.plan.storages.open(tensor, external=obj < 0)
        self.plan.object_of.append(obj)
        self.pending.append(self.counter[tensor])

    def _obtain(self, op: int, size: int) -> tuple[int, str]:
        obj = self.free_lists[self.colour[op]].take(size)
        if obj is None:
            self.plan.sizes.append(size)
            return len(self.plan.sizes) - 1, "new"
        self.plan.sizes[obj] = max(self.plan.sizes[obj], size)
        return obj, "free"

    def _step(self, step: int, op: int) -> None:
        given = self._alias(op)
        rest = [t for t in self.index.results[op] if self.plan.storages.of[t] < 0]
        rest = [t for t in rest if t not in self.index.opaque]
        for tensor in sorted(rest, key=lambda t: (-self.index.nbytes[t], t)):
            if tensor in self.outputs and self.policies.outputs == "external":
                self._open(tensor, -1)
                given.append((tensor, -1, "external"))
                continue
            obj, how = self._obtain(op, self._size(tensor))
            self._open(tensor, obj)
            given.append((tensor, obj, how))
        scratch = round_up(self.facts[op].workspace or 0, self.policies.align)
        if scratch:
            self.plan.workspace_object[op] = self._obtain(op, scratch)[0]
        released = self._release(op)
        if scratch:
            self._free(op, self.plan.workspace_object[op])
        if self.trace:
            changed = (*self.index.operands[op], *self.index.results[op])
            counters = tuple((t, self.counter[t]) for t in dict.fromkeys(changed))
            free = tuple(
                obj for free_list in self.free_lists.values() for obj in free_list.contents()
            )
            row = TraceRow(step, op, tuple(given), counters, tuple(released), free)
            self.plan.rows.append(row)

    def _alias(self, op: int) -> list[tuple[int, int, str]]:
        """Views, then an in-place result."""
        record, facts, storages = self.index.graph.ops[op], self.facts[op], self.plan.storages
        given: list[tuple[int, int, str]] = []
        for tensor, host, offset in viewed(self.index, record, facts) if self.views else ():
            owner = storages.of[host]
            if owner < 0 or offset % self.policies.align:
                continue
            if tensor in self.outputs and not self._may_keep(owner):
                continue
            self._share(op, tensor, host, offset, "view")
            given.append((tensor, self.plan.object_of[owner], "view"))
        first = record.outputs[0] if record.outputs else ""
        if self.inplace and first and storages.of[self.index.id_of[first]] < 0:
            tensor = self.index.id_of[first]
            for position in facts.inplace:
                name = record.inputs[position] if position < len(record.inputs) else ""
                if name and self._may_overwrite(op, tensor, self.index.id_of[name]):
                    host = self.index.id_of[name]
                    self._share(op, tensor, host, 0, "inplace")
                    obj = self.plan.object_of[storages.of[host]]
                    given.append((tensor, obj, "inplace"))
                    break
        return given

    def _may_keep(self, owner: int) -> bool:
        """Whether a view that is an output may stay in a storage until the end."""
        storages = self.plan.storages
        taken = any(member in self.outputs for member in storages.members[owner])
        return not (taken or storages.external[owner] or self.policies.outputs == "external")

    def _share(
        self, op: int, tensor: int, host: int, at: int, how: Literal["view", "inplace"]
    ) -> None:
        self.plan.storages.join(tensor, host, at)
        self.plan.storages.aliases.append(Alias(op, tensor, host, how))
        self.pending[self.plan.storages.of[host]] += self.counter[tensor]

    def _may_overwrite(self, op: int, tensor: int, host: int) -> bool:
        owner = self.plan.storages.of[host]
        if owner < 0 or self.plan.storages.external[owner]:
            return False
        if tensor in self.outputs and self.policies.outputs == "external":
            return False
        one, two = self.index.graph.tensors[tensor], self.index.graph.tensors[host]
        record, facts = self.index.graph.ops[op], self.facts[op]
        same = facts.keeps_bytes or one.shape == two.shape
        same = same and one.dtype.bits == two.dtype.bits
        same = same and self.index.nbytes[tensor] == self.index.nbytes[host]
        at = [p for p, name in enumerate(record.inputs) if name == two.name]
        # Only this op still needs the storage, and it reads it element by element.
        return same and self.pending[owner] == 1 and all(p in facts.inplace for p in at)

    def _release(self, op: int) -> list[int]:
        released: list[int] = []
        for tensor in self.index.operands[op]:
            self.counter[tensor] -= 1
            released += self._drop(op, tensor, 1)
        for tensor in self.index.results[op]:
            if self.counter[tensor] == 0:  # nobody will ever read it
                released += self._drop(op, tensor, 0)
        return released

    def _drop(self, op: int, tensor: int, readers: int) -> list[int]:
        owner = self.plan.storages.of[tensor]
        if owner < 0:
            return []
        self.pending[owner] -= readers
        obj = self.plan.object_of[owner]
        if self.pending[owner] or obj < 0 or owner in self.gone:
            return []
        self.gone.add(owner)  # unread views of one storage die with it, but free it once
        self._free(op, obj)
        return [obj]

    def _free(self, op: int, obj: int) -> None:
        self.free_lists[self.colour[op]].put(self.plan.sizes[obj], obj)


def count_references(
    index: Index,
    schedule: Schedule,
    policies: Policies,
    facts: Sequence[Facts],
    *,
    share: SharePolicy = "any",
    window: int = NNVM_WINDOW,
    inplace: bool = True,
    views: bool = True,
    trace: bool = False,
    colour: Sequence[int] | None = None,
) -> CounterPlan:
    """Run the reference-counting planner once.

    Args:
        index: the graph.
        schedule: the order.
        policies: where inputs and outputs live; the alignment.
        facts: per op, what registry and target allow.
        share: ``any`` size may follow any other; ``equal`` sizes only; ``nnvm`` within a
            factor of `window` (R43, R44).
        window: NNVM's match range; 0 shares nothing.
        inplace: allow in-place results.
        views: alias re-readings.
        trace: keep a row per step.
        colour: per op; an object goes only from an op to one of the same colour (R49).
    """
    colour = [0] * len(index.graph.ops) if colour is None else colour
    free_lists = {number: FreeList(share, window) for number in sorted({*colour, 0})}
    return _Run(index, schedule, policies, facts, free_lists, colour, inplace, views, trace).run()
