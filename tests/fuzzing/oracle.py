"""The oracle of the attack on the judges: is a plan safe, from the graph alone?

It shares no code with the planner or the judges; of the registry it asks what a kernel may do.
Per op it knows which ops are surely over when it starts, as a bit set. Per tensor it knows the
bytes and the ops that really wrote them, through views and parts. Every write over those bytes
must be surely before the writer, or surely after the writer and all readers, or come from the
last reader itself where its kernel bears that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from peakfold.analysis.facts import Facts, op_facts, unsupported
from peakfold.analysis.regions import slot_bytes
from peakfold.errors import PeakfoldError
from peakfold.ir import Graph, Op
from peakfold.planning.plan import Plan
from peakfold.target import load_target
from peakfold.transform import replay

START = -1
ARENA = "arena"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a plan.

    Attributes:
        kind: ``memory`` (a value is lost), ``external``, ``scratch``, ``place``, ``order``,
            ``alias``, ``claim`` or ``statement``.
        about: the field of the plan that says it, for what a judge may call claimed.
    """

    kind: str
    text: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes ``[low, high)`` of a space: the arena, or one external buffer by its number."""

    space: object
    low: int
    high: int

    def meets(self, other: Span) -> bool:
        return self.space == other.space and max(self.low, other.low) < min(self.high, other.high)

    def common(self, other: Span) -> Span:
        return Span(self.space, max(self.low, other.low), min(self.high, other.high))


@dataclass(frozen=True, slots=True)
class Write:
    """`op` writes `span`: the result or variable `name`, or its scratch (``""``)."""

    op: int
    span: Span
    name: str


Piece = tuple[int, Span]
"""The op that wrote some bytes, and the bytes."""


@dataclass(slots=True)
class Oracle:
    """One plan against its graph; `judge` fills `faults`."""

    graph: Graph
    plan: Plan
    profile: dict[str, int]
    faults: list[Fault] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)
    where: dict[str, Span] = field(default_factory=dict)
    copies: dict[str, Span] = field(default_factory=dict)
    scratch: dict[int, list[Span]] = field(default_factory=dict)
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)

    def judge(self) -> list[Fault]:
        """Everything that is wrong; after a fault of structure, what was found so far."""
        target = load_target(self.plan.target)
        self.facts = [op_facts(self.graph, op, target) for op in self.graph.ops]
        for stage in (self.order, self.places, self.homes, self.follow):
            stage()
            if self.faults:
                return self.faults
        self.memory()
        self.reserved()
        self.bodies()
        return self.faults

    def wrong(self, kind: str, text: str, about: str = "") -> None:
        self.faults.append(Fault(kind, text, about))

    # Which ops are surely over when an op starts.

    def order(self) -> None:
        plan, ops = self.plan, self.graph.ops
        if sorted(plan.order) != list(range(len(ops))):
            return self.wrong("order", "no permutation", "order")
        needs = needed_ops(self.graph)
        step = {op: at for at, op in enumerate(plan.order)}
        for op, before in enumerate(needs):
            if any(step[one] >= step[op] for one in before):
                return self.wrong("order", f"op {op} runs too early", "order")
        if plan.lanes == 1:
            needs = [set(plan.order[: step[op]]) for op in range(len(ops))]
        elif not self.lanes(needs, step):
            return self.wrong("order", "its lanes or added edges make no sense", "lanes")
        self.earlier = [0] * len(ops)
        for op in plan.order:
            for before in needs[op]:
                self.earlier[op] |= self.earlier[before] | 1 << before
        return None

    def lanes(self, needs: list[set[int]], step: dict[int, int]) -> bool:
        plan, count = self.plan, len(self.graph.ops)
        for before, after in plan.added:
            if not (before < count and after < count) or step[before] >= step[after]:
                return False
            needs[after].add(before)
        if plan.lanes == "free":
            return not plan.lane
        if len(plan.lane) != count or any(lane >= plan.lanes for lane in plan.lane):
            return False
        last: dict[int, int] = {}
        for op in plan.order:
            if plan.lane[op] in last:
                needs[op].add(last[plan.lane[op]])
            last[plan.lane[op]] = op
        return True

    def before(self, one: int, two: int) -> bool:
        """Whether `one` is surely over when `two` starts; copies run as op ``len(ops)``."""
        end = len(self.graph.ops)
        if one == START or two == end:
            return one != two
        if two == START or one == end:
            return False
        return bool(self.earlier[two] >> one & 1)

    # Where everything lies.

    def places(self) -> None:
        plan, align = self.plan, self.plan.policies.align
        for buffer in plan.buffers:
            span = Span(ARENA, buffer.offset, buffer.offset + buffer.size)
            if span.high > plan.arena_bytes or buffer.size < 0:
                self.wrong("place", f"{buffer.what} reaches out of the arena", "arena_bytes")
            if buffer.what == "workspace":
                self.scratch.setdefault(-1 if buffer.op is None else buffer.op, []).append(span)
            if buffer.what != "tensor" and buffer.offset % align:
                self.wrong("place", f"{buffer.what} is not aligned", "buffers")
            table = self.copies if buffer.what == "copy" else self.where
            for place in buffer.tensors:
                low = buffer.offset + place.offset
                here = Span(ARENA, low, low + place.nbytes)
                self.put(table, place.tensor, here)
                if here.high > span.high:
                    self.wrong("place", f"{place.tensor} reaches out of its buffer", "buffers")
                if low % align:
                    self.wrong("place", f"{place.tensor} is not aligned", "buffers")
        for number, external in enumerate(plan.external):
            for place in external.tensors:
                here = Span(number, place.offset, place.offset + place.nbytes)
                self.put(self.where, place.tensor, here)
        for tensor in self.graph.tensors:
            if not tensor.role.static and tensor.nbytes is not None and (
                tensor.name not in self.where
            ):  # fmt: skip
                self.wrong("place", f"{tensor.name} has no place", "buffers")

    def put(self, table: dict[str, Span], name: str, here: Span) -> None:
        tensor = self.graph.by_name.get(name)
        if tensor is None or tensor.nbytes is None or tensor.nbytes != here.high - here.low:
            return self.wrong("place", f"{name} has another size, or does not exist", "buffers")
        if name in table:
            return self.wrong("place", f"{name} has two places", "buffers")
        table[name] = here
        return None

    # Who may hold what.

    def homes(self) -> None:
        graph, policies = self.graph, self.plan.policies
        for name in graph.inputs:
            outside = name in self.where and self.where[name].space is not ARENA
            if name in self.where and not graph[name].role.static and (
                outside != (policies.inputs == "external")
            ):  # fmt: skip
                self.wrong("external", f"input {name} against the policy", "policies")
        for name in graph.outputs:
            made = name in graph.producer
            outside = name in self.where and self.where[name].space is not ARENA
            if made and name in self.where and outside != (policies.outputs == "external"):
                self.wrong("external", f"output {name} against the policy", "policies")
            foreign = not made and graph[name].nbytes is not None and (
                outside or name not in self.where
            )  # fmt: skip
            if foreign and policies.outputs == "pinned" and name not in self.copies:
                self.wrong("external", f"output {name} has no copy in the arena", "copies")
        for name, span in self.where.items():
            if graph[name].role.static and span.space is ARENA:
                self.wrong("external", f"static {name} in the arena", "buffers")
        for name in self.copies:
            if name not in graph.outputs:
                self.wrong("place", f"a copy of {name}, which is no output", "copies")

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
        self.writes += [Write(len(self.graph.ops), span, f"copy of {name}")
                        for name, span in self.copies.items()]  # fmt: skip

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
            found = self.viewed(at, op, name, inputs[0]) if kinds == {"view"} else (
                self.joined(at, op, name, inputs)
            )  # fmt: skip
            if found is None:
                return self.wrong("memory", f"{name} does not lie where it is said to", "aliases")
            mine = [w.span for w in self.writes if w.op == at and w.name in written_states(op)]
            self.pieces[name] = [
                (at if any(span.meets(s) for s in mine) else writer, span)
                for writer, span in found
            ]
            if here.space is not ARENA and name in self.graph.outputs and roots.get(
                here.space
            ) != name:  # fmt: skip
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
            if fits and there is not None and base in self.pieces and (
                here.space == there.space and here.low == there.low + view.offset
            ):  # fmt: skip
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
            pieces += self.pieces[op.inputs[part.input]]
        return _covered(here, pieces)

    # No value is lost.

    def memory(self) -> None:
        graph = self.graph
        kept = set(graph.outputs) - set(self.copies)
        if self.plan.policies.inputs != "reusable":
            kept |= set(graph.inputs)
        readers: dict[str, set[int]] = {name: set() for name in self.pieces}
        for at, op in enumerate(graph.ops):
            moved = {a.input for a in self.plan.aliases
                     if a.op == at and a.how in ("view", "concat")}  # fmt: skip
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
        alike = facts.renames or one.shape == two.shape
        return (
            all(n in facts.inplace for n in spots) and above == 0 and alike
            and one.dtype.bits == two.dtype.bits and one.nbytes == two.nbytes
        )  # fmt: skip

    # Scratch and bodies.

    def reserved(self) -> None:
        for at, op in enumerate(self.graph.ops):
            need = self.facts[at].workspace or 0
            if not op.regions:
                need = self.profile.get(op.name, need)
            have = max((s.high - s.low for s in self.scratch.get(at, ())), default=0)
            if need > have:
                self.wrong("scratch", f"op {at} needs {need} bytes of scratch, not {have}",
                           "profile" if op.name in self.plan.profile else "buffers")  # fmt: skip

    def bodies(self) -> None:
        align = self.plan.policies.align
        plans = {(body.op, body.region): body.plan for body in self.plan.bodies}
        for at, op in enumerate(self.graph.ops):
            have = max((s.high - s.low for s in self.scratch.get(at, ())), default=0)
            for number, region in enumerate(op.regions):
                body = plans.pop((at, number), None)
                if body is None:
                    self.wrong("place", f"body {number} of op {at} has no plan", "bodies")
                    continue
                inside = -(-body.arena_bytes // align) * align + slot_bytes(op, region, align)
                if have < inside:
                    self.wrong("scratch", f"op {at} has no room for body {number}", "bodies")
                policies = body.policies
                if (policies.inputs, policies.outputs) != ("external", "external"):
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


def written_states(op: Op) -> set[str]:
    """Variables an op writes, in its bodies too."""
    return {*op.writes, *(name for inner in _inner(op) for name in inner.writes)}


def _inner(op: Op) -> Iterator[Op]:
    for region in op.regions:
        for inner in region.graph.ops:
            yield inner
            yield from _inner(inner)


def needed_ops(graph: Graph) -> list[set[int]]:
    """Per op, the ops that must be over before it: makers of operands, and effects."""
    states = {t.name for t in graph.tensors if t.role.value == "state"}
    states |= {name for op in graph.ops for name in written_states(op)}
    needs: list[set[int]] = []
    wrote: dict[str, int] = {}
    readers: dict[str, set[int]] = {}
    for at, op in enumerate(graph.ops):
        mine = {graph.producer[name] for name in op.operands if name in graph.producer}
        inner = list(_inner(op))
        reads = {*op.reads, *(set(op.operands) & states), *(n for i in inner for n in i.reads)}
        mine |= {wrote[name] for name in reads if name in wrote}
        for name in written_states(op):
            mine |= readers.pop(name, set())
            mine |= {wrote[name]} if name in wrote else set()
            wrote[name] = at
        for name in reads:
            readers.setdefault(name, set()).add(at)
        needs.append(mine - {at})
    return needs


def faults(graph: Graph, plan: Plan, profile: dict[str, int]) -> list[Fault]:
    """What is wrong with a plan for a graph, as loaded.

    Args:
        graph: as loaded.
        plan: any plan that could be decoded.
        profile: measured scratch by op that the plan has to obey.
    """
    try:
        work = replay(graph, plan.recipe)
        load_target(plan.target)
    except PeakfoldError as error:
        return [Fault("statement", f"it cannot be judged: {error}", "recipe")]
    if (plan.graph.source, plan.graph.digest) != (graph.digest, work.digest):
        return [Fault("statement", "it is for another graph", "graph")]
    found = Oracle(work, plan, profile).judge()
    return found + statements(work, plan, profile)


def statements(work: Graph, plan: Plan, profile: dict[str, int]) -> list[Fault]:
    """What a plan says of its graph and of itself, where that can be told."""
    found = []
    target = load_target(plan.target)
    known = all(op_facts(work, op, target).workspace is not None or op.regions
                or op.name in plan.profile for op in work.ops)  # fmt: skip
    known = known and all(body.plan.workspace_known for body in plan.bodies)
    truths = {
        "workspace_known": plan.workspace_known == known,
        "unsupported": plan.unsupported == unsupported(work),
        "opaque": sorted(plan.opaque) == sorted(t.name for t in work.tensors if t.nbytes is None),
        "copies": _copies_told(work, plan),
        "object": _objects_told(plan),
        "bindings": set(plan.bindings.dims) <= set(work.symbols),
        "profile": plan.profile.items() <= profile.items(),
        "lane": plan.lanes != 1 or not (plan.lane or plan.added),
    }
    found += [Fault("statement", f"false: {name}", name) for name, ok in truths.items() if not ok]
    return found


def _copies_told(work: Graph, plan: Plan) -> bool:
    made = {p.tensor for b in plan.buffers if b.what == "copy" for p in b.tensors}
    told = set(plan.copies)
    return made <= told <= set(work.outputs) and len(told) == len(plan.copies)


def _objects_told(plan: Plan) -> bool:
    """Same object, same address; other objects, other addresses; no object in an arena."""
    if plan.mode == "arena":
        return all(buffer.object is None for buffer in plan.buffers)
    spans: dict[int, tuple[int, int]] = {}
    for buffer in plan.buffers:
        if buffer.object is None:
            return False
        low, high = spans.get(buffer.object, (buffer.offset, buffer.offset))
        if low != buffer.offset:
            return False
        spans[buffer.object] = (low, max(high, buffer.offset + buffer.size))
    ranges = sorted(span for span in spans.values() if span[0] < span[1])
    apart = all(one[1] <= two[0] for one, two in zip(ranges, ranges[1:], strict=False))
    alone = len(spans) == len(plan.buffers)
    return apart and (alone or plan.mode not in ("naive", "inplace"))
