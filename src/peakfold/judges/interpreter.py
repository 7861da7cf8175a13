"""The interpreter of judge 2: runs a plan's steps on a memory of values instead of bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from peakfold.analysis.graph.alias_facts import Facts
from peakfold.analysis.graph.index import is_opaque
from peakfold.ir import Graph, Op
from peakfold.judges.placement import Location, Places
from peakfold.judges.value_memory import Memory, Part, Root, cut
from peakfold.planning.plan import Plan, PlannedAlias


@dataclass(frozen=True, slots=True)
class Trace:
    """What a run did to memory, for rules about other runs than the one that was played.

    Attributes:
        writes: op (-1 = before the run), where, and the value that lies there from then on.
        reads: per value, who reads which of its bytes: op, first byte, first byte behind.
        kept: per value, its bytes that must survive the run.
    """

    writes: list[tuple[int, Location, Root]] = field(default_factory=list)
    reads: dict[Root, list[tuple[int, int, int]]] = field(default_factory=dict)
    kept: dict[Root, list[tuple[int, int]]] = field(default_factory=dict)


class Interpreter:
    """One run of a plan; `run` says what is wrong first, or nothing.

    Args:
        graph: the planned graph.
        plan: the plan.
        facts: per op.
        places: where the plan puts things.
        trace: is filled with what the run does, where one is given.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        facts: tuple[Facts, ...],
        places: Places,
        trace: Trace | None = None,
    ) -> None:
        self.graph = graph
        self.plan = plan
        self.facts = facts
        self.places = places
        self.spaces: dict[int, Memory] = {}
        self.aliases: dict[str, list[PlannedAlias]] = {}
        for alias in plan.aliases:
            self.aliases.setdefault(alias.output, []).append(alias)
        # What a tensor's bytes are, in terms of values that some op really wrote.
        self.content: dict[str, list[Part]] = {}
        self.owned: set[int] = set()
        self.trace = trace
        external = plan.policies.outputs == "external"
        self.given_out = frozenset(graph.outputs if external else ())

    def run(self) -> str | None:
        """Play all steps; the first thing that goes wrong, or `None`."""
        self._put_inputs()
        for at in self.plan.order:
            op = self.graph.ops[at]
            problem = self._reads(at, op) or self._step(at, op)
            if problem:
                return f"op {op.name!r} ({op.kind}) {problem}"
        return self._end()

    def _space(self, where: Location) -> Memory:
        return self.spaces.setdefault(where.space, Memory())

    def _put_inputs(self) -> None:
        given = [t.name for t in self.graph.tensors if t.role.static]
        for name in dict.fromkeys((*self.graph.inputs, *given)):
            where = self.places.of.get(name)
            if where is not None:
                self._write(-1, name, where)
                self.owned.add(where.space)

    def _write(self, at: int, name: str, where: Location) -> None:
        self.content[name] = [Part(name, 0, where.nbytes)]
        self._fill(at, where, name)

    def _fill(self, at: int, where: Location, root: Root) -> None:
        """Bytes hold a new value, which op `at` writes."""
        self._space(where).write(where.address, where.nbytes, root)
        if self.trace is not None:
            self.trace.writes.append((at, where, root))

    def _holds(self, name: str) -> Root | None:
        """What lies in a tensor's place instead of it, or `None` if it is there."""
        where = self.places.of.get(name)
        if where is None:
            return None  # static or opaque: outside every space
        at = where.address
        for part in self.content[name]:
            wrong = self._space(where).wrong(at, part)
            if wrong is not None:
                return wrong
            at += part.length
        return None

    def _reads(self, at: int, op: Op) -> str | None:
        for name in op.operands:
            wrong = self._holds(name)
            if wrong is not None:
                return f"reads {name!r}, but its bytes hold {wrong!r}"
            if self.trace is not None:
                for part in self.content.get(name, ()):
                    read = (at, part.offset, part.offset + part.length)
                    self.trace.reads.setdefault(part.root, []).append(read)
        return None

    def _step(self, at: int, op: Op) -> str | None:
        facts = self.facts[at]
        operands = {n: self.places.of[n] for n in op.operands if n in self.places.of}
        written: list[str] = []
        for name in op.results:
            if is_opaque(self.graph[name]):
                continue
            aliases = self.aliases.get(name, [])
            kinds = {alias.how for alias in aliases}
            if len(aliases) > 1 and kinds != {"concat"}:
                return f"is said to lay {name!r} into {len(aliases)} tensors"
            if kinds == {"view"}:
                problem = self._view(op, facts, aliases[0])
            elif kinds == {"concat"}:
                problem = self._concat(op, facts, name, aliases)
            else:
                written.append(name)
                written_over = aliases[0] if kinds in ({"inplace"}, {"overlap"}) else None
                problem = self._overwrites(op, facts, name, written_over, operands)
            if problem:
                return problem
        return self._commit(at, operands, written)

    def _commit(self, at: int, operands: dict[str, Location], written: list[str]) -> str | None:
        places = {name: self.places.of[name] for name in written}
        for number, name in enumerate(written):
            clash = next((n for n in written[:number] if places[n].overlaps(places[name])), None)
            if clash is not None:
                return f"writes {name!r} and {clash!r} to the same bytes"
        scratch = self.places.scratch.get(at)
        if scratch is not None:
            for name, where in (*operands.items(), *places.items()):
                if where.overlaps(scratch):
                    return f"has workspace over {name!r}"
            self._fill(at, scratch, ("workspace of op", at))
        for name in self.graph.ops[at].writes:
            self._change(at, name)
        self._updated(at, written)
        for name, where in places.items():
            if where.space >= 0:
                if where.space in self.owned:
                    return f"writes {name!r} into memory that is not its own"
                if name not in self.given_out:
                    return f"writes {name!r} into memory that nobody gives it"
                self.owned.add(where.space)
            self._write(at, name, where)
        return None

    def _updated(self, at: int, written: list[str]) -> None:
        """Results that are views of a variable the op wrote hold what it wrote."""
        op = self.graph.ops[at]
        for name in op.results if op.writes else ():
            here = self.places.of.get(name)
            if name in written or here is None:
                continue
            for root in op.writes:
                base = self.places.of.get(root)
                if base is not None and base.space == here.space and here.overlaps(base):
                    label = (root, at)
                    self.content[name] = [Part(label, here.address - base.address, here.nbytes)]

    def _change(self, at: int, name: str) -> None:
        """A variable has a new value; views of it that are still read hold the wrong one."""
        where = self.places.of.get(name)
        if where is not None:
            root = (name, at)
            self.content[name] = [Part(root, 0, where.nbytes)]
            self._fill(at, where, root)

    def _view(self, op: Op, facts: Facts, alias: PlannedAlias) -> str | None:
        here, there = self.places.of[alias.output], self.places.of.get(alias.input)
        for view in facts.views:
            if (
                there is not None
                and op.outputs[view.output] == alias.output
                and op.inputs[view.input] == alias.input
                and here.space == there.space
                and here.address == there.address + view.offset
            ):
                content = cut(self.content[alias.input], view.offset, here.nbytes)
                self.content[alias.output] = content
                if sum(part.length for part in content) == here.nbytes:
                    return None
        return f"cannot make {alias.output!r} a view of {alias.input!r} there"

    def _concat(self, op: Op, facts: Facts, name: str, aliases: list[PlannedAlias]) -> str | None:
        here = self.places.of[name]
        parts = {op.inputs[part.input]: part.offset for part in facts.parts}
        named = {alias.input for alias in aliases}
        if op.outputs[0] != name or named != set(parts) or len(parts) != len(op.operands):
            return f"cannot find all parts of {name!r} in place"
        content: list[Part] = []
        for part, offset in sorted(parts.items(), key=lambda item: item[1]):
            there = self.places.of.get(part)
            if there is None or there.space != here.space:
                return f"has its part {part!r} in another memory"
            if there.address != here.address + offset:
                return f"has its part {part!r} at the wrong address"
            content += self.content[part]
        if sum(part.length for part in content) != here.nbytes:
            return f"has parts that do not fill {name!r}"
        self.content[name] = content
        return None

    def _overwrites(
        self,
        op: Op,
        facts: Facts,
        name: str,
        over: PlannedAlias | None,
        operands: dict[str, Location],
    ) -> str | None:
        """Whether a result lies over an operand in a way that its kernel cannot bear."""
        here = self.places.of[name]
        if over is not None and (op.outputs[0] != name or over.input not in operands):
            return f"cannot write {name!r} in place of {over.input!r}"
        for other, there in operands.items():
            if not here.overlaps(there):
                continue
            positions = [at for at, operand in enumerate(op.inputs) if operand == other]
            if over is None or not positions:
                return f"writes {name!r} over its operand {other!r}"
            if over.how == "overlap":
                problem = _too_near(facts, positions, there.address - here.address)
                if problem:
                    return f"writes {name!r} over its operand {other!r}, {problem}"
                continue
            elementwise = all(at in facts.inplace for at in positions)
            same = self._same_layout(name, other, facts) and here.address == there.address
            if not elementwise or not same:
                return f"writes {name!r} over its operand {other!r}"
        if over is not None and here.nbytes and not here.overlaps(operands[over.input]):
            return f"is said to write {name!r} in place of {over.input!r}, but does not"
        return None

    def _same_layout(self, one: str, two: str, facts: Facts) -> bool:
        a, b = self.graph[one], self.graph[two]
        shapes = facts.keeps_bytes or a.shape == b.shape
        return shapes and a.dtype.bits == b.dtype.bits and a.nbytes == b.nbytes

    def _end(self) -> str | None:
        for name, where in self.places.copies.items():
            if self._holds(name) is not None:
                return f"output {name!r} is gone before it is copied"
            self._space(where).write(where.address, where.nbytes, ("copy of", name))
        kept = list(self.graph.outputs)
        kept += self.graph.inputs if self.plan.policies.inputs == "pinned" else ()
        for name in kept:
            wrong = self._holds(name) if name in self.content else None
            if wrong is not None:
                return f"{name!r} must survive the run, but its bytes hold {wrong!r}"
            for part in self.content.get(name, ()):
                if self.trace is not None:
                    held = (part.offset, part.offset + part.length)
                    self.trace.kept.setdefault(part.root, []).append(held)
        for name, where in self.places.copies.items():
            part = Part(("copy of", name), 0, where.nbytes)
            if self._space(where).wrong(where.address, part) is not None:
                return f"the copy of output {name!r} is overwritten"
        return None


def _too_near(facts: Facts, positions: list[int], above: int) -> str | None:
    """What forbids a result to start `above` bytes below an operand; `None` if nothing does.

    The kernel reads the operand once for each position at which the op names it, so each of
    them needs its distance.
    """
    for at in positions:
        distances = [fact.distance for fact in facts.overlap if fact.input == at]
        if not distances:
            return "which its kernel may not overwrite"
        if above < min(distances):
            return f"{above} bytes below it; its kernel needs {min(distances)}"
    return None
