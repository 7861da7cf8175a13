"""Judge 2 where ops run in lanes: whatever run is allowed, no value is lost.

The interpreter plays one order and keeps a trace. Here every write of that trace must find that
the values it takes bytes from are over in each allowed run: their writer and all their readers
are put before it by the graph's edges, the lanes and the edges that the plan adds. Then all
other allowed runs agree with the one that was played. Only bytes count: what the plan says of
buffers, lives and aliases is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.ir import Graph, effect_edges
from peakfold.judges.interpreter import Trace
from peakfold.judges.value_memory import Memory, Root
from peakfold.planning.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class LanesJudge:
    """One plan for several lanes under judgement; `problem` says what is wrong first.

    Attributes:
        graph: the planned graph.
        plan: the plan; its order is known to be one that data and effects allow.
        trace: of the interpreter's run.
    """

    graph: Graph
    plan: Plan
    trace: Trace

    def problem(self) -> str | None:
        """The first rule that is broken, or `None`."""
        plan = self.plan
        if plan.lanes == 1:
            extra = plan.lane or plan.added
            return "a plan for one lane assigns lanes or adds edges" if extra else None
        if plan.lanes == 0:
            return "it runs on no lane at all"
        if any(alias.how == "concat" for alias in plan.aliases):
            # Its parts have makers of their own, which need not be in any order.
            return "a plan for several lanes builds a concatenation in its place"
        return self._order_problem() or self._overwriting_problem()

    def _order_problem(self) -> str | None:
        plan, count = self.plan, len(self.graph.ops)
        step = {op: at for at, op in enumerate(plan.order)}
        if plan.lanes == "free" and plan.lane:
            return "a free plan assigns no lanes"
        if plan.lanes != "free" and (
            len(plan.lane) != count or any(n >= plan.lanes for n in plan.lane)
        ):
            return f"not every op has one of the {plan.lanes} lanes"
        for before, after in plan.added:
            if not (before < count and after < count):
                return f"the added edge {before} -> {after} names no op"
            if step[before] >= step[after]:
                return f"the added edge {before} -> {after} contradicts the order"
        return None

    def _overwriting_problem(self) -> str | None:
        """A write takes bytes from values that are over in every allowed run.

        Writes are taken in the plan's order, so the last owner of each byte is enough: that the
        owners before it were over was seen when it took the byte.
        """
        waits = _Waits.of(self.graph, self.plan)
        writer: dict[Root, int] = {}
        spaces: dict[int, Memory] = {}
        for at, where, root in self.trace.writes:
            memory = spaces.setdefault(where.space, Memory())
            if at >= 0:
                for owner, low, high in memory.under(where.address, where.nbytes):
                    if not self._over(waits, writer[owner], owner, (low, high), at):
                        name = self.graph.ops[at].name
                        return (
                            f"op {name!r} takes bytes of {owner!r}, but in some run both are "
                            "needed at once"
                        )
            memory.write(where.address, where.nbytes, root)
            writer[root] = at
        return None

    def _over(self, waits: _Waits, writer: int, root: Root, part: tuple[int, int], op: int) -> bool:
        """Whether a part of a value is no longer needed when an op starts, or by it alone."""
        low, high = part
        if any(a < high and low < b for a, b in self.trace.kept.get(root, ())):
            return False
        touching = {at for at, a, b in self.trace.reads.get(root, ()) if a < high and low < b}
        touching.add(writer)
        return waits.over(touching - {op, -1}, op)


@dataclass(frozen=True, slots=True, eq=False)
class _Waits:
    """Per op the ops it waits for: producers, effects, added edges, its lane; and its step."""

    needs: list[set[int]]
    step: list[int]

    @classmethod
    def of(cls, graph: Graph, plan: Plan) -> _Waits:
        maker = graph.producer
        needs = [{maker[n] for n in op.operands if n in maker} for op in graph.ops]
        for before, after in (*effect_edges(graph), *plan.added):
            needs[after].add(before)
        last: dict[int, int] = {}
        for op in plan.order if plan.lane else ():
            if plan.lane[op] in last:
                needs[op].add(last[plan.lane[op]])
            last[plan.lane[op]] = op
        step = [0] * len(needs)
        for at, op in enumerate(plan.order):
            step[op] = at
        return cls(needs, step)

    def over(self, ops: set[int], op: int) -> bool:
        """Whether all these ops are surely over when `op` starts."""
        missing = set(ops)
        floor = min((self.step[one] for one in missing), default=0)
        seen, stack = {op}, [op]
        while stack and missing:
            for before in self.needs[stack.pop()]:
                if before not in seen and self.step[before] >= floor:
                    seen.add(before)
                    missing.discard(before)
                    stack.append(before)
        return not missing
