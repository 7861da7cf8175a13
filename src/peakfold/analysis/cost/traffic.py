"""Bytes that every op reads and writes: op by op, and with element-wise chains fused.

**Unfused**: an op reads each of its operands once and writes each of its results once, whatever
its kernel keeps in registers or reads again. Views move nothing, copies do. A gather reads the
rows it picks, a slice what it keeps, a scatter writes the rows it replaces while it may write
over its data operand (rule 3 of reuse), else it copies that, too. Operands whose values decide
shapes are known before the run and are not counted. State (a variable, a cache) is read and
written by the ops that say so.

**Fused**: an element-wise op joins the group of the op that made one of its operands, if that
operand has the result's elements and everything else it reads existed before the group began.
A group reads a tensor once, and writes it only if somebody outside reads it. The groups, taken
by their first op, are then in an order that respects every dependency: what a group reads
besides its own is older than its first op. Reductions, softmax and normalisations end a chain
and join none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peakfold.ir import Graph, Op, Role, Tensor, ViewFact
from peakfold.ops import VALUE_INPUTS, Context, OpSpec, context, lookup


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes one op moves; `None` where a size is not known."""

    read: int | None = 0
    written: int | None = 0

    @property
    def total(self) -> int | None:
        """Read and written together: the op's memory access."""
        return None if self.read is None or self.written is None else self.read + self.written


@dataclass(frozen=True, slots=True)
class Moves:
    """One op's memory access, unfused and fused."""

    unfused: Moved
    fused: Moved


def data_operands(op: Op) -> tuple[str, ...]:
    """The operands an op reads during the run, each once; those that decide shapes are left out.

    Example:
        >>> data_operands(Op("n", "reshape", ("x", "shape"), ("y",)))
        ('x',)
    """
    shapes = VALUE_INPUTS.get(op.kind)
    if not shapes:
        return tuple(dict.fromkeys(filter(None, op.inputs)))
    return tuple(
        dict.fromkeys(name for at, name in enumerate(op.inputs) if name and at not in shapes)
    )


def moves_of(
    graph: Graph, table: Mapping[str, OpSpec], contexts: Sequence[Context] | None = None
) -> list[Moves]:
    """Memory access of every op of a graph; ops with bodies move nothing themselves.

    Args:
        graph: sizes that are not known give `None`.
        table: the registry.
        contexts: of every op, where they exist already.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.ops import REGISTRY
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[4]\\nparameter w: float32[4]\\n"
        ...                 "y: float32[4] = add(x, w)\\nz: float32[4] = relu(y)\\noutput z")
        >>> [(m.unfused.total, m.fused.total) for m in moves_of(g, REGISTRY)]
        [(48, 32), (32, 16)]
    """
    facts = _facts(graph, table, contexts)
    users = _Users(graph, facts)
    unfused = [_unfused(fact, users) for fact in facts]
    fused = _fused(facts, unfused, users)
    return [Moves(one, two) for one, two in zip(unfused, fused, strict=True)]


def fusion_groups(graph: Graph, table: Mapping[str, OpSpec]) -> list[int]:
    """The first op of every op's group of fused ops, by position.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.ops import REGISTRY
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[4]\\n"
        ...                 "a: float32[4] = softmax(x)\\nb: float32[4] = relu(a)\\noutput b")
        >>> fusion_groups(g, REGISTRY)
        [0, 0]
    """
    facts = _facts(graph, table, None)
    return _groups(facts, _Users(graph, facts))


def _facts(
    graph: Graph, table: Mapping[str, OpSpec], contexts: Sequence[Context] | None
) -> list[_Fact]:
    if contexts is None:
        contexts = [context(op, graph.by_name) for op in graph.ops]
    return [_Fact(graph, ctx, lookup(ctx.op.kind, table)) for ctx in contexts]


class _Fact:
    """One op with what the registry says of its bytes."""

    __slots__ = ("ctx", "elementwise", "op", "reads", "spec", "views", "writes")

    def __init__(self, graph: Graph, ctx: Context, spec: OpSpec) -> None:
        self.op = op = ctx.op
        self.ctx, self.spec = ctx, spec
        tensors = graph.by_name
        self.reads: list[Tensor] = [tensors[name] for name in data_operands(op)]
        self.views = self._views()
        # An op that writes state through a view of it is no re-reading.
        made = set() if op.writes else {op.outputs[view.output] for view in self.views}
        self.writes: list[Tensor] = [tensors[name] for name in op.results if name not in made]
        if op.reads or op.writes:
            self._touch_state(tensors)
        self.elementwise = self._elementwise()

    def _touch_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Add the state read beside the operands, and that written through no result."""
        op, seen = self.op, set(self.op.operands)
        self.reads += [tensors[name] for name in op.reads if name in tensors and name not in seen]
        if not self.views:
            self.writes += [tensors[name] for name in op.writes if name in tensors]

    def _views(self) -> tuple[ViewFact, ...]:
        stated = self.op.stated
        if stated is not None and stated.views is not None:
            return stated.views
        return self.spec.views(self.ctx) if self.spec.views else ()

    def _elementwise(self) -> tuple[Tensor, ...]:
        """Operands of an element-wise op that have the elements of its only result."""
        if (
            self.spec.engine != "vector"
            or len(self.writes) != 1
            or self.op.regions
            or self.op.writes
        ):
            return ()
        count = self.writes[0].elements
        found = (self.ctx.inputs[at] for at in self.spec.inplace_inputs(self.ctx))
        return tuple(t for t in found if t is not None and t.elements == count is not None)


class _Users:
    """Who makes and who reads the storage behind every tensor; whole views share one."""

    def __init__(self, graph: Graph, facts: list[_Fact]) -> None:
        self.graph = graph
        self.root: dict[str, str] = {}
        self.same: dict[str, str] = {}
        self.maker: dict[str, int] = {}
        self.readers: dict[str, set[int]] = {}
        for at, fact in enumerate(facts):
            self._add(at, fact)
        self.outputs = {self.of(name) for name in graph.outputs}

    def _add(self, at: int, fact: _Fact) -> None:
        for view in fact.views:
            base, made = fact.op.inputs[view.input], fact.op.outputs[view.output]
            if made:
                self.root[made] = self.of(base)
                if self.graph[made].elements == self.graph[base].elements:
                    self.same[made] = self.whole(base)
        for tensor in fact.writes:
            if tensor.role is not Role.STATE:
                self.maker[tensor.name] = at
        if (fact.writes and not fact.spec.shape_only) or fact.op.regions:
            for name in {*(t.name for t in fact.reads), *fact.op.operands}:
                self.readers.setdefault(self.of(name), set()).add(at)

    def of(self, name: str) -> str:
        """The tensor whose storage this one re-reads."""
        return self.root.get(name, name)

    def whole(self, name: str) -> str:
        """The tensor all of whose elements this one re-reads; a slice stands for itself."""
        return self.same.get(name, name)

    def may_overwrite(self, name: str, at: int) -> bool:
        """Whether op `at` may write over a tensor: the last reader of storage that is free."""
        tensor = self.graph[self.of(name)]
        if tensor.role is Role.STATE:
            return True
        external = tensor.role.static or tensor.name in self.graph.inputs
        return (
            not external
            and tensor.name not in self.outputs
            and (self.readers.get(tensor.name, set()) <= {at})
        )


def _unfused(fact: _Fact, users: _Users) -> Moved:
    if not fact.writes or fact.op.regions:
        return Moved()
    if fact.spec.shape_only:
        return Moved(0, _sum(fact.writes))
    rule = fact.spec.bytes_moved
    if rule is not None and _in_part(fact, users):
        found = rule(fact.ctx)
        return Moved(None, None) if found is None else Moved(*found)
    written = _sum(fact.writes)
    if fact.spec.engine == "copy" and fact.spec.views is not None and len(fact.reads) == 1:
        # A slice or a piece of a split that has to be copied: no more is read than is kept.
        whole = _sum(fact.reads)
        return Moved(None if None in (whole, written) else min(whole or 0, written or 0), written)
    return Moved(_sum(fact.reads), written)


def _in_part(fact: _Fact, users: _Users) -> bool:
    if 0 not in fact.spec.inplace_inputs(fact.ctx):
        return True
    at = users.maker.get(fact.writes[0].name, -1)
    return users.may_overwrite(fact.op.inputs[0], at)


def _sum(tensors: list[Tensor]) -> int | None:
    total = 0
    for tensor in tensors:
        nbytes = tensor.nbytes
        if nbytes is None:
            return None
        total += nbytes
    return total


def _fused(facts: list[_Fact], unfused: list[Moved], users: _Users) -> list[Moved]:
    group = _groups(facts, users)
    taken: dict[int, set[str]] = {}
    moved: list[Moved] = []
    for at, (fact, plain) in enumerate(zip(facts, unfused, strict=True)):
        inside = taken.setdefault(group[at], set())
        if not fact.writes or fact.op.regions or fact.spec.shape_only:
            moved.append(plain)
            continue
        alone = fact.spec.bytes_moved is not None or fact.spec.engine == "copy"
        read = plain.read
        if not alone:
            fresh = [t for t in fact.reads if users.whole(t.name) not in inside]
            read = plain.read if len(fresh) == len(fact.reads) else _sum(fresh)
        inside.update(users.whole(t.name) for t in fact.reads)
        written = plain.written
        leaving = [t for t in fact.writes if _leaves(t, group[at], group, users)]
        if len(leaving) < len(fact.writes):
            written = _sum(leaving)
        inside.update(t.name for t in fact.writes)
        moved.append(Moved(read, written))
    return moved


def _leaves(tensor: Tensor, home: int, group: list[int], users: _Users) -> bool:
    """Whether a result must reach memory: an output, read elsewhere, or read by nobody."""
    readers = users.readers.get(tensor.name, set())
    if tensor.name in users.outputs or tensor.role is Role.STATE or not readers:
        return True
    return any(group[at] != home for at in readers)


def _groups(facts: list[_Fact], users: _Users) -> list[int]:
    """The first op of every op's group; an op that only re-reads is where its base was made."""
    group = list(range(len(facts)))
    for at, fact in enumerate(facts):
        if not fact.writes and fact.views:
            maker = users.maker.get(users.of(fact.op.inputs[fact.views[0].input]))
            group[at] = at if maker is None else group[maker]
            continue
        makers = (users.maker.get(users.whole(t.name)) for t in fact.elementwise)
        for host in sorted({group[m] for m in makers if m is not None}, reverse=True):
            if not facts[host].op.regions and _joins(fact, host, group, users):
                group[at] = host
                break
    return group


def _joins(fact: _Fact, host: int, group: list[int], users: _Users) -> bool:
    """Whether all an op reads is older than the group, or one of its values element by element."""
    inside = {t.name for t in fact.elementwise}
    for name in fact.op.operands:
        maker = users.maker.get(users.of(name))
        old = maker is None or maker < host
        if not old and not (name in inside and group[maker or 0] == host):
            return False
    return True
