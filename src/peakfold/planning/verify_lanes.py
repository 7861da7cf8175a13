"""Judge 2 where ops run in lanes: whatever run is allowed, no value is lost.

The interpreter plays one order. Here every pair of buffers that share an address, and every
overwriting inside a buffer, must be put in order by the graph's edges, the lanes and the
edges that the plan adds, so that all other allowed runs agree with the one played.
"""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.ir import Graph, effect_edges
from peakfold.planning.memory import Memory
from peakfold.planning.plan import Plan, PlannedBuffer


@dataclass(frozen=True, slots=True)
class _Use:
    """Ops that touch a buffer, the one that first writes it (`None` = there before the run)."""

    first: int | None
    touches: frozenset[int]
    kept: bool


class LanesJudge:
    """One plan for several lanes under judgement; `problem` says what is wrong first."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph = graph
        self.plan = plan
        self.users: dict[str, set[int]] = {}
        for at, op in enumerate(graph.ops):
            for name in op.operands:
                self.users.setdefault(name, set()).add(at)
        self.step = {op: at for at, op in enumerate(plan.order)}
        kept = set(graph.outputs)
        kept |= set(graph.inputs) if plan.policies.inputs == "pinned" else set()
        self.kept = kept
        self.needs: list[set[int]] = []

    def problem(self) -> str | None:
        """The first rule that is broken, or `None`."""
        plan = self.plan
        if plan.lanes == 1:
            extra = plan.lane or plan.added
            return "a plan for one lane assigns lanes or adds edges" if extra else None
        if any(alias.how == "concat" for alias in plan.aliases):
            # Its parts have makers of their own, which need not be in any order.
            return "a plan for several lanes builds a concatenation in its place"
        return self._order_problem() or self._sharing_problem() or self._inside_problem()

    def _order_problem(self) -> str | None:
        plan, count = self.plan, len(self.graph.ops)
        if plan.lanes == "free" and plan.lane:
            return "a free plan assigns no lanes"
        if plan.lanes != "free" and (
            len(plan.lane) != count or any(not 0 <= n < plan.lanes for n in plan.lane)
        ):
            return f"not every op has one of the {plan.lanes} lanes"
        for before, after in plan.added:
            if not (0 <= before < count and 0 <= after < count):
                return f"the added edge {before} -> {after} names no op"
            if self.step[before] >= self.step[after]:
                return f"the added edge {before} -> {after} contradicts the order"
        self.needs = self._waits()
        return None

    def _waits(self) -> list[set[int]]:
        """Per op, the ops it waits for: producers, effects, added edges, its lane."""
        plan, maker = self.plan, self.graph.producer
        needs = [{maker[n] for n in op.operands if n in maker} for op in self.graph.ops]
        for before, after in (*effect_edges(self.graph), *plan.added):
            needs[after].add(before)
        last: dict[int, int] = {}
        for op in plan.order if plan.lane else ():
            if plan.lane[op] in last:
                needs[op].add(last[plan.lane[op]])
            last[plan.lane[op]] = op
        return needs

    def _over(self, touches: frozenset[int] | set[int], op: int | None) -> bool:
        """Whether all of `touches` are surely over when `op` starts."""
        if op is None or op in touches:
            return False
        missing = set(touches)
        floor = min((self.step[one] for one in missing), default=0)
        seen = {op}
        stack = [op]
        while stack and missing:
            for before in self.needs[stack.pop()]:
                if before not in seen and self.step[before] >= floor:
                    seen.add(before)
                    missing.discard(before)
                    stack.append(before)
        return not missing

    def _touches(self, name: str) -> set[int]:
        maker = self.graph.producer.get(name)
        return self.users.get(name, set()) | (set() if maker is None else {maker})

    def _use(self, buffer: PlannedBuffer) -> _Use:
        if buffer.what == "workspace" and buffer.op is not None:
            return _Use(buffer.op, frozenset({buffer.op}), False)
        names = [place.tensor for place in buffer.tensors]
        if buffer.what == "copy":
            # Made behind the last op: over everything that does not survive, under nothing.
            return _Use(None, frozenset(), True)
        touches = frozenset().union(*(self._touches(name) for name in names))
        makers = [self.graph.producer.get(name) for name in names]
        known = [maker for maker in makers if maker is not None]
        first = None if len(known) < len(makers) else min(known, key=lambda op: self.step[op])
        return _Use(first, touches, any(name in self.kept for name in names))

    def _sharing_problem(self) -> str | None:
        """A buffer must come after all that touches the buffers whose bytes it takes.

        Buffers are taken in the plan's order, so it is enough to look at the last owners of
        each byte: that owners before them were over has been seen when they were written.
        """
        buffers = [b for b in self.plan.buffers if b.size and b.live]
        uses = [self._use(buffer) for buffer in buffers]
        born = [self._born(buffer, use) for buffer, use in zip(buffers, uses, strict=True)]
        memory = Memory()
        for at in sorted(range(len(buffers)), key=lambda n: (born[n], n)):
            buffer = buffers[at]
            for owner in sorted(memory.roots(buffer.offset, buffer.size), key=int):
                one = uses[int(owner)]
                copied_last = buffer.what == "copy" and not one.kept
                if not copied_last and (one.kept or not self._over(one.touches, uses[at].first)):
                    return (
                        f"{_label(buffers[int(owner)])} and {_label(buffer)} share bytes, but in "
                        "some run both are needed at once"
                    )
            memory.write(buffer.offset, buffer.size, str(at))
        return None

    def _born(self, buffer: PlannedBuffer, use: _Use) -> int:
        if buffer.what == "copy":
            return len(self.step)
        return -1 if use.first is None else self.step[use.first]

    def _inside_problem(self) -> str | None:
        """What is written in place must find everything else in its bytes over and done."""
        places = {
            place.tensor: (number, place)
            for number, buffer in enumerate(self.plan.buffers)
            if buffer.what == "tensor"
            for place in buffer.tensors
        }
        for alias in self.plan.aliases:
            if alias.how not in ("inplace", "overlap") or alias.output not in places:
                continue
            number, here = places[alias.output]
            for place in self.plan.buffers[number].tensors:
                overlap = max(place.offset, here.offset) < min(
                    place.offset + place.nbytes, here.offset + here.nbytes
                )
                if overlap and place.tensor != alias.output:
                    problem = self._overwriting_problem(alias.op, alias.output, place.tensor)
                    if problem:
                        return problem
        return None

    def _overwriting_problem(self, op: int, output: str, other: str) -> str | None:
        maker = self.graph.producer.get(other)
        if maker is not None and self.step[maker] > self.step[op]:
            # Made later, over this result or as a view of it: that is an event of its own,
            # as long as it really comes later.
            later = self._over({op}, maker)
            return None if later else f"{other!r} may come before {output!r}"
        if other in self.kept or not self._over(self._touches(other) - {op}, op):
            return f"{output!r} is written over {other!r}, which some run still needs"
        return None


def _label(buffer: PlannedBuffer) -> str:
    if buffer.what == "workspace":
        return f"the workspace of op {buffer.op}"
    return f"the buffer of {buffer.tensors[0].tensor!r}" if buffer.tensors else "a buffer"
