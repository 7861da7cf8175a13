"""A lower bound that holds for every order of a graph and every choice of sharing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peakfold.analysis.graph.alias_facts import Facts
from peakfold.analysis.graph.index import Index
from peakfold.analysis.graph.overlap_bound import drift_bound, links
from peakfold.analysis.graph.schedule import Policies
from peakfold.units import round_up


def any_order_bound(index: Index, policies: Policies, facts: Sequence[Facts]) -> int:
    """Bytes that no arena for this graph can go below.

    What `op_bound` says of each op alone, and what chains of results over parts of their
    operands add to it (`overlap_bound`). Takes and returns what `op_bound` does.

    Example:
        >>> from peakfold.analysis import Index, Policies, op_facts
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.target import load_target
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[9]\\n"
        ...     'a: int8[9] = opaque(x) overlap=["0-1"]\\n'
        ...     'b: int8[9] = opaque(a) overlap=["0-1"]\\noutput b')
        >>> facts = [op_facts(g, op, load_target("generic")) for op in g.ops]
        >>> policies = Policies(inputs="reusable", align=1)
        >>> op_bound(Index.of(g), policies, facts), any_order_bound(Index.of(g), policies, facts)
        (10, 11)
    """
    needs = _Needs(index, policies, facts)
    bound = needs.bound()
    if not any(fact.overlap for fact in facts):
        return bound
    inside = [one not in needs.outside for one in needs.family]
    found = links(index, facts, needs.apart(), inside, policies.align)
    sizes = [round_up(nbytes, policies.align) for nbytes in index.nbytes]
    return drift_bound(found, sizes, bound)


def op_bound(index: Index, policies: Policies, facts: Sequence[Facts]) -> int:
    """Bytes that are alive in some step of every order, whatever is shared.

    While an op runs, its operands, its results and its workspace exist together, whatever ran
    before. Operands hold different values, so they need different bytes, unless one is a view
    or a part of another: those form a family that counts once, by its largest member, and not
    at all if it reaches into memory of the caller. A result that may be a view, or may run in
    place over an operand of its size, can lie in that operand's bytes and counts nothing beside
    them; one that may lie over part of an operand counts what reaches out of it at the smallest
    distance. After the last op all kept outputs exist together. Every tensor starts at a legal
    address, so each family is padded to the alignment.

    Args:
        index: the graph.
        policies: decide which tensors are in the arena, and the padding.
        facts: per op, what registry and target allow.

    Returns:
        Bytes.

    Example:
        >>> from peakfold.analysis import Index, Policies, op_facts
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.target import load_target
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\ny: int8[8] = tile(x)\\n"
        ...                 "z: int8[8] = relu(y)\\nw: int8[2] = opaque(z)\\noutput w")
        >>> facts = [op_facts(g, op, load_target("generic")) for op in g.ops]
        >>> op_bound(Index.of(g), Policies(align=1), facts)
        10
    """
    return _Needs(index, policies, facts).bound()


class _Needs:
    """What exists together while an op runs."""

    def __init__(self, index: Index, policies: Policies, facts: Sequence[Facts]) -> None:
        self.index, self.align, self.facts = index, policies.align, facts
        counted = [not static for static in index.static]
        for tensor in index.inputs:
            counted[tensor] = counted[tensor] and policies.inputs != "external"
        for tensor in index.outputs:
            counted[tensor] = counted[tensor] and policies.outputs != "external"
        self.family = _families(index, facts)
        # A family with a member outside the arena may lie outside it altogether.
        self.outside = {self.family[t] for t, inside in enumerate(counted) if not inside}

    def together(self, tensors: Iterable[int]) -> int:
        """Bytes that some tensors take at once, families counted by their largest member."""
        largest: dict[int, int] = {}
        for tensor in tensors:
            key = self.family[tensor]
            if key not in self.outside:
                largest[key] = max(largest.get(key, 0), self.index.nbytes[tensor])
        return sum(round_up(nbytes, self.align) for nbytes in largest.values())

    def apart(self) -> list[int]:
        """Per op, what it needs when its results share nothing with its operands."""
        return [
            self.together((*self.index.operands[op], *self.index.results[op]))
            + round_up(fact.workspace or 0, self.align)
            for op, fact in enumerate(self.facts)
        ]

    def bound(self) -> int:
        """The most that any op, or the outputs, need at least."""
        bound = self.together(self.index.outputs)
        for op, fact in enumerate(self.facts):
            scratch = round_up(fact.workspace or 0, self.align)
            bound = max(bound, self._least(op, fact) + scratch)
        return bound

    def _least(self, op: int, fact: Facts) -> int:
        operands, results = self.index.operands[op], self.index.results[op]
        free = _runs_in_place(self.index, op, fact)
        needed = self.together((*operands, *(results[1:] if free else results)))
        if fact.overlap and not free and self.index.graph.ops[op].outputs[0]:
            needed = min(needed, self.together(operands) + self._reaching_out(op, fact))
        return needed

    def _reaching_out(self, op: int, fact: Facts) -> int:
        """Bytes of result 0 outside the operands it may lie over, and of the other results."""
        record = self.index.graph.ops[op]
        names = dict.fromkeys(record.inputs[o.input] for o in fact.overlap)
        hosts = [self.index.id_of[name] for name in names if name]
        first, *others = self.index.results[op]
        size = round_up(self.index.nbytes[first], self.align)
        under = self.together(hosts)
        if len(hosts) == 1 and self.family[hosts[0]] not in self.outside:
            distance = min(o.distance for o in fact.overlap)
            size = max(size, round_up(distance, self.align) + under)
        return max(0, size - under) + self.together(others)


def _runs_in_place(index: Index, op: int, fact: Facts) -> bool:
    """Whether result 0 may ever take an operand's place: it has the bytes of one."""
    record = index.graph.ops[op]
    hosts = [record.inputs[at] for at in fact.inplace if at < len(record.inputs)]
    first = index.id_of.get(record.outputs[0], -1) if record.outputs else -1
    return first >= 0 and any(
        name and index.nbytes[index.id_of[name]] == index.nbytes[first] for name in hosts
    )


def _families(index: Index, facts: Sequence[Facts]) -> list[int]:
    """A representative per tensor; views and parts of a concatenation share one."""
    parent = list(range(len(index.nbytes)))

    def find(tensor: int) -> int:
        while parent[tensor] != tensor:
            parent[tensor] = parent[parent[tensor]]
            tensor = parent[tensor]
        return tensor

    for op, fact in zip(index.graph.ops, facts, strict=True):
        links = [(op.outputs[v.output], op.inputs[v.input]) for v in fact.views]
        links += [(op.outputs[0], op.inputs[p.input]) for p in fact.parts]
        for one, two in links:
            if one and two:
                a, b = find(index.id_of[one]), find(index.id_of[two])
                parent[max(a, b)] = min(a, b)
    return [find(tensor) for tensor in range(len(parent))]
