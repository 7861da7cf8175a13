"""The oracle of the attack on the judges: is a plan safe, from the graph alone?

It shares no code with the planner or the judges; of the registry it asks what a kernel may do.
Per op it knows which ops are surely over when it starts, as a bit set. Per tensor it knows the
bytes and the ops that really wrote them, through views and parts. Every write over those bytes
must be surely before the writer, or surely after the writer and all readers, or come from the
last reader itself where its kernel bears that.
"""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.analysis.graph.alias_facts import op_facts
from peakfold.analysis.graph.region_slots import slot_bytes
from peakfold.errors import PeakfoldError
from peakfold.ir import Graph, Op
from peakfold.planning.plan import Plan
from peakfold.transform import replay

from .placed import ARENA, START, Fault, Piece, Placed, Span, Write, written_states
from .statements import statements, target_of


@dataclass(slots=True)
class Oracle(Placed):
    """One plan against its graph; `judge` fills `faults`."""

    def judge(self) -> list[Fault]:
        """Everything that is wrong; after a fault of structure, what was found so far."""
        target = target_of(self.plan.target)
        self.facts = [op_facts(self.graph, op, target) for op in self.graph.ops]
        for stage in (self.order, self.places, self.homes, self.follow):
            stage()
            if self.faults:
                return self.faults
        self.memory()
        self.reserved()
        self.bodies()
        return self.faults

    # Who wrote what.

    def follow(self) -> None:
        """Play the order once: which op wrote the bytes of every tensor."""
        stories: dict[str, set[tuple[str, str]]] = {}
        for alias in self.plan.aliases:
            stories.setdefault(alias.output, set()).add((alias.how, alias.input))
            if self.graph.producer.get(alias.output) != alias.op:
                self.wrong("alias", f"op {alias.op} does not make {alias.output}", "aliases")
        for tensor in self.graph.tensors:
            if tensor.name not in self.graph.producer and tensor.name in self.where:
                self.pieces[tensor.name] = [(START, self.where[tensor.name])]
        roots: dict[object, str] = {}
        for name in self.pieces:
            self.root(roots, name)
        for at in self.plan.order:
            op = self.graph.ops[at]
            for name in written_states(op):
                if name in self.where:
                    self.writes.append(Write(at, self.where[name], name))
                    self.pieces[name] = [(at, self.where[name])]
            for name in op.results:
                if name in self.where:
                    self.result(at, op, name, stories.get(name, set()), roots)
        for at, spans in self.scratch.items():
            if not 0 <= at < len(self.graph.ops):
                self.wrong("scratch", f"workspace of op {at}", "buffers")
            self.writes += [Write(at, span, "") for span in spans]
        self.writes += [
            Write(len(self.graph.ops), span, f"copy of {name}")
            for name, span in self.copies.items()
        ]

    def root(self, roots: dict[object, str], name: str) -> None:
        """Memory outside the arena belongs to one input, static tensor or output alone."""
        space = self.where[name].space
        if space is ARENA:
            return
        graph = self.graph
        owner = graph[name].role.static or name in graph.inputs or name in graph.outputs
        if not owner:
            self.wrong("external", f"{name} is written outside the arena", "external")
        if space in roots:
            self.wrong("external", f"{name} in the memory of {roots[space]}", "external")
        roots[space] = name

    def result(
        self, at: int, op: Op, name: str, story: set[tuple[str, str]], roots: dict[object, str]
    ) -> None:
        kinds = {how for how, _ in story}
        if len(kinds) > 1 or (len(story) > 1 and kinds != {"concat"}):
            return self.wrong("alias", f"{name} has two stories", "aliases")
        here = self.where[name]
        if kinds in ({"view"}, {"concat"}):
            inputs = [base for _, base in story]
            found = (
                self.viewed(at, op, name, inputs[0])
                if kinds == {"view"}
                else (self.joined(at, op, name, inputs))
            )
            if found is None:
                return self.wrong("memory", f"{name} does not lie where it is said to", "aliases")
            mine = [w.span for w in self.writes if w.op == at and w.name in written_states(op)]
            self.pieces[name] = [
                (at if any(span.meets(s) for s in mine) else writer, span) for writer, span in found
            ]
            if (
                here.space is not ARENA
                and name in self.graph.outputs
                and roots.get(here.space) != name
            ):
                self.wrong("external", f"output {name} in memory of another", "external")
            return None
        for how, base in story:
            if base not in op.operands or base not in self.where:
                return self.wrong("alias", f"{name} over {base}, no operand", "aliases")
            if here.high > here.low and not here.meets(self.where[base]):
                return self.wrong("alias", f"{name} is not over {base}", "aliases")
            if not self.bears(at, base, name, how):
                return self.wrong("alias", f"{name} may not be {how} over {base}", "aliases")
        self.root(roots, name)
        self.pieces[name] = [(at, here)]
        self.writes.append(Write(at, here, name))
        return None

    def viewed(self, at: int, op: Op, name: str, base: str) -> list[Piece] | None:
        here, there = self.where[name], self.where.get(base)
        for view in self.facts[at].views:
            if view.output >= len(op.outputs) or view.input >= len(op.inputs):
                continue
            fits = op.outputs[view.output] == name and op.inputs[view.input] == base
            if (
                fits
                and there is not None
                and base in self.pieces
                and (here.space == there.space and here.low == there.low + view.offset)
            ):
                return _covered(here, self.pieces[base])
        return None

    def joined(self, at: int, op: Op, name: str, inputs: list[str]) -> list[Piece] | None:
        here = self.where[name]
        parts = self.facts[at].parts
        if {op.inputs[part.input] for part in parts} != set(inputs) or op.outputs[0] != name:
            return None
        pieces: list[Piece] = []
        for part in parts:
            there = self.where.get(op.inputs[part.input])
            if there is None or (there.space, there.low) != (here.space, here.low + part.offset):
                return None
            pieces += self.pieces.get(op.inputs[part.input], [])  # none after another fault
        return _covered(here, pieces)

    # No value is lost.

    def memory(self) -> None:
        graph = self.graph
        kept = set(graph.outputs) - set(self.copies)
        if self.plan.policies.inputs != "reusable":
            kept |= set(graph.inputs)
        readers: dict[str, set[int]] = {name: set() for name in self.pieces}
        for at, op in enumerate(graph.ops):
            moved = {
                a.input for a in self.plan.aliases if a.op == at and a.how in ("view", "concat")
            }
            for name in op.operands:
                if name in readers and not (name in moved and not self.written(at)):
                    readers[name].add(at)
        for name in self.copies:
            readers.setdefault(name, set()).add(len(graph.ops))
        for name, pieces in self.pieces.items():
            if (name in kept or readers[name]) and not graph[name].role.static:
                self.survives(name, pieces, name in kept, readers[name])
        self.apart()

    def written(self, at: int) -> bool:
        return any(w.op == at and w.name for w in self.writes)

    def survives(self, name: str, pieces: list[Piece], kept: bool, readers: set[int]) -> None:
        for writer, span in pieces:
            for write in self.writes:
                other = write.op
                if other == writer or not span.meets(write.span) or self.before(other, writer):
                    continue
                if not self.before(writer, other):
                    self.wrong("memory", f"{name}: op {other} writes at the same time")
                elif kept:
                    self.wrong("memory", f"{name} is kept, and op {other} overwrites it")
                elif any(r != other and not self.before(r, other) for r in readers):
                    self.wrong("memory", f"{name} is still read, and op {other} overwrites it")
                elif other in readers and not self.may_overwrite(other, name, write):
                    self.wrong("memory", f"op {other} overwrites its operand {name}")

    def apart(self) -> None:
        """What one op writes at once must not meet."""
        by_op: dict[int, list[Write]] = {}
        for write in self.writes:
            for other in by_op.setdefault(write.op, []):
                if write.span.meets(other.span):
                    self.wrong("memory", f"op {write.op} writes the same bytes twice")
            by_op[write.op].append(write)

    def may_overwrite(self, at: int, name: str, write: Write) -> bool:
        if at >= len(self.graph.ops) or not write.name:
            return False
        op = self.graph.ops[at]
        if write.name in written_states(op):  # an update in place of a variable, through a view
            return any(op.inputs[v.input] == name and v.offset == 0 for v in self.facts[at].views)
        return any(self.bears(at, name, write.name, how) for how in ("inplace", "overlap"))

    def bears(self, at: int, operand: str, result: str, how: str) -> bool:
        """Whether the kernel may write `result` over `operand` where both lie."""
        op, facts, graph = self.graph.ops[at], self.facts[at], self.graph
        spots = [n for n, given in enumerate(op.inputs) if given == operand]
        if not spots or op.outputs[0] != result:
            return False
        above = self.where[operand].low - self.where[result].low
        if how == "overlap":
            least = {fact.input: fact.distance for fact in facts.overlap}
            return all(n in least and above >= least[n] for n in spots)
        one, two = graph[operand], graph[result]
        alike = facts.keeps_bytes or one.shape == two.shape
        return (
            all(n in facts.inplace for n in spots)
            and above == 0
            and alike
            and one.dtype.bits == two.dtype.bits
            and one.nbytes == two.nbytes
        )

    # Scratch and bodies.

    def reserved(self) -> None:
        for at, op in enumerate(self.graph.ops):
            need = self.facts[at].workspace or 0
            if not op.regions:
                need = self.profile.get(op.name, need)
            have = max((s.high - s.low for s in self.scratch.get(at, ())), default=0)
            if need > have:
                self.wrong(
                    "scratch",
                    f"op {at} needs {need} bytes of scratch, not {have}",
                    "profile" if op.name in self.plan.profile else "buffers",
                )

    def bodies(self) -> None:
        align, target = self.plan.policies.align, target_of(self.plan.target)
        plans = {(body.op, body.region): body.plan for body in self.plan.bodies}
        for at, op in enumerate(self.graph.ops):
            have = max((s.high - s.low for s in self.scratch.get(at, ())), default=0)
            for number, region in enumerate(op.regions):
                body = plans.pop((at, number), None)
                if body is None:
                    self.wrong("place", f"body {number} of op {at} has no plan", "bodies")
                    continue
                slots = slot_bytes(op, region, align, target)
                inside = -(-body.arena_bytes // align) * align + slots
                if have < inside:
                    self.wrong("scratch", f"op {at} has no room for body {number}", "bodies")
                policies = body.policies
                if (policies.inputs, policies.outputs) != target.body_policies:
                    self.wrong("external", f"body {number} of op {at} owns nothing", "bodies")
                if policies.align > align:
                    self.wrong("place", f"body {number} of op {at} is not aligned", "bodies")
                inner = faults(region.graph, body, self.profile)
                self.faults += [Fault(f.kind, f"body: {f.text}", f.about) for f in inner]
        for op, number in plans:
            self.wrong("statement", f"a plan for body {number} of op {op}, which is none", "bodies")


def _covered(here: Span, pieces: list[Piece]) -> list[Piece] | None:
    """The pieces inside `here`, if they fill it."""
    found = [(writer, span.common(here)) for writer, span in pieces if span.meets(here)]
    at = here.low
    for _, span in sorted(found, key=lambda piece: piece[1].low):
        if span.low > at:
            return None
        at = max(at, span.high)
    return found if at >= here.high else None


def faults(graph: Graph, plan: Plan, profile: dict[str, int]) -> list[Fault]:
    """What is wrong with a plan for a graph, as loaded.

    Args:
        graph: as loaded.
        plan: any plan that could be decoded.
        profile: measured scratch by op that the plan has to obey.
    """
    try:
        work = replay(graph, plan.recipe)
        target_of(plan.target)
    except PeakfoldError as error:
        return [Fault("statement", f"it cannot be judged: {error}", "recipe")]
    if (plan.graph.source, plan.graph.digest) != (graph.digest, work.digest):
        return [Fault("statement", "it is for another graph", "graph")]
    return Oracle(work, plan, profile).judge() or statements(work, plan, profile)
