"""Which tensors live in the same bytes: views, in-place chains and zero-copy concatenation.

A storage is a run of bytes that several tensors share at fixed distances. Tensors are placed
one step at a time in schedule order, so that every decision sees only what was decided before
it, and each rule of reuse is a test of its own:

- A view aliases its input, unless the bytes belong to the caller or to another output; then
  the copy that the runtime must make is counted.
- In place needs equal shape and element width, no value in those bytes that is still to be
  read, and no other operand in them (`x - x[0:1]` is a trap), and bytes that are ours.
- An overlap needs the same of all that lies in the result's bytes, but operands of the op may
  lie there if they begin far enough above the result. It is taken only where it is asked for.
- A concatenation takes its parts in when each has one such home, nothing of it is external
  or pinned, and the offsets are legal.

Liveness is kept by byte range: a small slice does not keep all of its base alive.
"""

from __future__ import annotations

from collections.abc import Sequence

from peakfold.analysis.graph.alias_facts import Facts, viewed
from peakfold.analysis.graph.index import Index
from peakfold.analysis.graph.precedence import Precedence
from peakfold.analysis.graph.schedule import Policies, Schedule
from peakfold.interval import Interval
from peakfold.ir import Op
from peakfold.planning.aliasing.ranges import Ranges
from peakfold.planning.aliasing.records import Alias, Aliasing, Storages
from peakfold.units import round_up


class _Builder:
    def __init__(
        self,
        index: Index,
        schedule: Schedule,
        policies: Policies,
        facts: Sequence[Facts],
        aliasing: Aliasing,
        precedence: Precedence | None,
    ) -> None:
        self.precedence = precedence
        self.index = index
        self.schedule = schedule
        self.policies = policies
        self.facts = facts
        self.aliasing = aliasing
        self.outputs = frozenset(index.outputs)
        count = len(index.graph.tensors)
        self.result = Storages([-1] * count, [0] * count)
        # A view of a variable would change with it, so it is a copy where anything writes it.
        self.changing: dict[int, list[int]] = {}
        for step, op in enumerate(schedule.order):
            for name in index.graph.ops[op].writes:
                self.changing.setdefault(index.id_of[name], []).append(step)
        # Members whose value may still be needed, per storage: dead ones are dropped where they
        # are met, so that a chain of n in-place ops costs n checks and not n squared.
        self.pending: list[Ranges] = []
        # Per storage, its variables that are written.
        self.variables: dict[int, list[int]] = {}

    def run(self) -> Storages:
        for tensor in self.index.inputs:
            if not self.index.static[tensor]:
                self._own(tensor, self.policies.inputs == "external")
        for step, op in enumerate(self.schedule.order):
            self._place_op(step, op)
        self.result.settle()
        return self.result

    def _own(self, tensor: int, external: bool) -> None:
        if tensor not in self.index.opaque:
            self.result.open(tensor, external)
            self.pending.append(Ranges())
            self._note(tensor)

    def _join(self, tensor: int, host: int, at: int) -> None:
        self.result.join(tensor, host, at)
        self._note(tensor)

    def _note(self, tensor: int) -> None:
        storage = self.result.of[tensor]
        self.pending[storage].add(*self._window(tensor), tensor)
        if tensor in self.changing:
            self.variables.setdefault(storage, []).append(tensor)

    def _place_op(self, step: int, op: int) -> None:
        facts = self.facts[op]
        record = self.index.graph.ops[op]
        if facts.views and self.aliasing.views:
            self._place_views(op, record, facts)
        for position, tensor in enumerate(self.index.results[op]):
            if self.result.of[tensor] >= 0 or tensor in self.index.opaque:
                continue
            external = tensor in self.outputs and self.policies.outputs == "external"
            first = position == 0 and bool(record.outputs[0])
            if first and not external and self.aliasing.inplace and facts.inplace:
                host = self._inplace_host(step, record, tensor, facts)
                if host is not None:
                    self._replace(tensor, host)
                    self.result.aliases.append(Alias(op, tensor, host, "inplace"))
                    continue
            reaches = first and not external and op in self.aliasing.overlaps
            if reaches and self._place_over(step, op, record, tensor):
                continue
            self._own(tensor, external)
            if first and not external and op in self.aliasing.zero_copy_concats:
                self._take_parts(op, record, tensor, facts)

    def _place_views(self, op: int, record: Op, facts: Facts) -> None:
        for tensor, host, offset in viewed(self.index, record, facts):
            if self.result.of[tensor] >= 0 or host in self.index.opaque:
                continue
            if tensor in self.aliasing.copied or not self._stays(op, tensor, host):
                continue
            if self.result.of[host] < 0:
                self._own(host, True)  # a parameter: its bytes are nobody's arena
            if not self._may_view(tensor, host, offset):
                continue
            self._join(tensor, host, offset)
            self.result.aliases.append(Alias(op, tensor, host, "view"))

    def _stays(self, op: int, tensor: int, host: int) -> bool:
        """Whether a view keeps its value: nothing writes the variable behind it while it is read.

        An op that writes the variable through this very view (an update in place) may be its
        last reader.
        """
        owner = self.result.of[host]
        roots = [host] if owner < 0 and host in self.changing else self.variables.get(owner, [])
        if not roots:
            return True
        if self.precedence is not None:
            return False
        born, last = self.schedule.step[op], self.schedule.last_use[tensor]
        for root in roots:
            for step in self.changing[root]:
                if born < step < last or (step == last > born and not self._updates(step, tensor)):
                    return False
        return True

    def _updates(self, step: int, tensor: int) -> bool:
        """Whether the op of a step gives back this operand, all of it, as its result."""
        if step >= len(self.schedule.order):
            return False
        op = self.schedule.order[step]
        record, name = self.index.graph.ops[op], self.index.name(tensor)
        return any(
            record.inputs[view.input] == name
            and view.offset == 0
            and self.index.nbytes[self.index.id_of[record.outputs[view.output]]]
            == self.index.nbytes[tensor]
            for view in self.facts[op].views
        )

    def _may_view(self, tensor: int, host: int, at: int) -> bool:
        storage = self.result.of[host]
        if (self.result.offset[host] + at) % self.policies.align:
            return False
        if tensor not in self.outputs:
            return True
        taken = any(other in self.outputs for other in self._overlapping(tensor, host, at))
        if taken or self.result.external[storage] or self.policies.outputs == "external":
            self.result.copies.append(tensor)
            return False
        return True

    def _overlapping(self, tensor: int, host: int, at: int) -> list[int]:
        """Members of the host's storage in the bytes that `tensor` would take."""
        start = self.result.offset[host] + at
        stop = start + self.index.nbytes[tensor]
        return self.pending[self.result.of[host]].overlapping(start, stop)

    def _window(self, tensor: int) -> Interval:
        start = self.result.offset[tensor]
        return Interval(start, start + self.index.nbytes[tensor])

    def _inplace_host(self, step: int, record: Op, tensor: int, facts: Facts) -> int | None:
        for position in facts.inplace:
            name = record.inputs[position] if position < len(record.inputs) else ""
            if name and self._may_overwrite(step, tensor, self.index.id_of[name]):
                return self.index.id_of[name]
        return None

    def _may_overwrite(self, step: int, tensor: int, host: int) -> bool:
        op = self.schedule.order[step]
        record, facts = self.index.graph.ops[op], self.facts[op]
        storage = self.result.of[host]
        if storage < 0 or self.result.external[storage]:
            return False
        one, two = self.index.graph.tensors[tensor], self.index.graph.tensors[host]
        if (one.shape != two.shape and not facts.keeps_bytes) or one.dtype.bits != two.dtype.bits:
            return False
        if self.index.nbytes[tensor] != self.index.nbytes[host]:
            return False
        if self.precedence is None:
            clash = self._pending_over(tensor, host, step)
            over = all(self.schedule.last_use[other] <= step for other in clash)
        else:
            clash = self._overlapping(tensor, host, 0)
            over = all(self._surely_over(other, op, self.precedence) for other in clash)
        return over and all(self._harmless(record, facts, host, other) for other in clash)

    def _pending_over(self, tensor: int, host: int, step: int) -> list[int]:
        """What lies over the host and is still needed at a step; drops what is not."""
        storage, left = self.result.of[host], []
        for other in self._overlapping(tensor, host, 0):
            if self.schedule.last_use[other] >= step:
                left.append(other)
            else:
                self.pending[storage].discard(*self._window(other), other)
        return left

    def _replace(self, tensor: int, host: int) -> None:
        """Put a result over a host in place.

        Where a precedence decides what is over, whatever comes after the result comes after all
        that it has replaced, so its own bytes need no more checks of those.
        """
        if self.precedence is not None:
            window = self._window(host)
            for other in self._overlapping(tensor, host, 0):
                if window.contains(self._window(other)):
                    self.pending[self.result.of[host]].discard(*self._window(other), other)
        self._join(tensor, host, 0)

    def _place_over(self, step: int, op: int, record: Op, tensor: int) -> bool:
        """Put a result partly over an operand, if one can be lower than where it ends."""
        for fact in self.facts[op].overlap:
            name = record.inputs[fact.input] if fact.input < len(record.inputs) else ""
            distance = round_up(fact.distance, self.policies.align)
            if name and distance < self.index.nbytes[tensor]:
                host = self.index.id_of[name]
                if self._may_reach_over(step, op, tensor, host, distance):
                    self._join(tensor, host, -distance)
                    self.result.aliases.append(Alias(op, tensor, host, "overlap"))
                    return True
        return False

    def _may_reach_over(self, step: int, op: int, tensor: int, host: int, distance: int) -> bool:
        """Whether all in the bytes that a result would take is over, or bears the distance."""
        storage = self.result.of[host]
        if storage < 0 or self.result.external[storage] or self.precedence is not None:
            return False
        start = self.result.offset[host] - distance
        window = Interval(start, start + self.index.nbytes[tensor])
        clash = self.pending[storage].overlapping(*window)
        if any(self.schedule.last_use[other] > step for other in clash):
            return False
        record, facts = self.index.graph.ops[op], self.facts[op].overlap
        least = {fact.input: fact.distance for fact in facts}
        for other in clash:
            name, above = self.index.name(other), self.result.offset[other] - start
            places = [at for at, operand in enumerate(record.inputs) if operand == name]
            bears = bool(places) and all(at in least and least[at] <= above for at in places)
            if name in record.operands and not bears:
                return False
        return True

    def _surely_over(self, tensor: int, op: int, precedence: Precedence) -> bool:
        """Whether in every run all that touches a value is done, but for `op` itself."""
        if self.schedule.last_use[tensor] > self.schedule.step[op]:
            return False
        touches = [*self.index.users_of(tensor), self.index.producer[tensor]]
        return all(other in (op, -1) or precedence.precedes(other, op) for other in touches)

    def _harmless(self, record: Op, facts: Facts, host: int, other: int) -> bool:
        """Whether a value in the bytes to be overwritten is read element by element only."""
        name = self.index.name(other)
        if name not in record.operands:
            return True
        same = (
            self.result.offset[other] == self.result.offset[host]
            and self.index.graph.tensors[other].shape == self.index.graph.tensors[host].shape
        )
        positions = [at for at, operand in enumerate(record.inputs) if operand == name]
        return same and bool(positions) and all(at in facts.inplace for at in positions)

    def _take_parts(self, op: int, record: Op, whole: int, facts: Facts) -> None:
        parts: list[tuple[int, int]] = []
        for part in facts.parts:
            tensor = self.index.id_of[record.inputs[part.input]]
            if not self._may_move(tensor, part.offset):
                return
            parts.append((tensor, part.offset))
        storages = {self.result.of[tensor] for tensor, _ in parts}
        if len(storages) < len(parts) or len(parts) != sum(1 for name in record.inputs if name):
            return
        for tensor, offset in parts:
            source = self.result.of[tensor]
            self.result.absorb(tensor, whole, offset)
            for moved in self.pending[source].tensors():
                self.pending[self.result.of[whole]].add(*self._window(moved), moved)
            self.pending[source] = Ranges()
            self.result.aliases.append(Alias(op, whole, tensor, "concat"))
        self.result.built_in_place.append(op)

    def _may_move(self, tensor: int, at: int) -> bool:
        """Whether the storage of a part is exactly that part and may go to another place."""
        storage = self.result.of[tensor]
        if storage < 0 or self.result.external[storage] or at % self.policies.align:
            return False
        members = self.result.members[storage]
        extent = max(self._window(t).stop for t in members)
        first = min(self.result.offset[t] for t in members)
        exact = self.result.offset[tensor] == first == 0 and extent == self.index.nbytes[tensor]
        return exact and all(self.schedule.last_use[t] < self.schedule.steps for t in members)


def build_storages(
    index: Index,
    schedule: Schedule,
    policies: Policies,
    facts: Sequence[Facts],
    aliasing: Aliasing,
    precedence: Precedence | None = None,
) -> Storages:
    """Decide, step by step, which tensors share bytes.

    Args:
        index: the graph.
        schedule: the order and lifetimes.
        policies: where inputs and outputs live.
        facts: per op, what the registry and the target allow.
        aliasing: which kinds of sharing are wanted.
        precedence: where ops run in lanes, the partial order that decides what is over; by default
            the schedule does.
    """
    return _Builder(index, schedule, policies, facts, aliasing, precedence).run()
