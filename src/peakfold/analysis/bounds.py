"""A lower bound that holds for every order of a graph and every choice of sharing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peakfold.analysis.facts import Facts
from peakfold.analysis.index import Index
from peakfold.analysis.schedule import Policies
from peakfold.units import round_up


def any_order_bound(index: Index, policies: Policies, facts: Sequence[Facts]) -> int:
    """Bytes that no arena for this graph can go below.

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
        >>> any_order_bound(Index.of(g), Policies(align=1), facts)
        10
    """
    counted = [not static for static in index.static]
    for tensor in index.inputs:
        counted[tensor] = counted[tensor] and policies.inputs != "external"
    for tensor in index.outputs:
        counted[tensor] = counted[tensor] and policies.outputs != "external"
    family = _families(index, facts)
    # A family with a member outside the arena may lie outside it altogether.
    outside = {family[t] for t, inside in enumerate(counted) if not inside}

    def together(tensors: Iterable[int]) -> int:
        largest: dict[int, int] = {}
        for tensor in tensors:
            key = family[tensor]
            if key not in outside:
                largest[key] = max(largest.get(key, 0), index.nbytes[tensor])
        return sum(round_up(nbytes, policies.align) for nbytes in largest.values())

    def reaching_out(op: int, fact: Facts) -> int:
        """Bytes of result 0 outside the operands it may lie over, and of the other results."""
        record = index.graph.ops[op]
        names = dict.fromkeys(record.inputs[o.input] for o in fact.overlap)
        hosts = [index.id_of[name] for name in names if name]
        first, *others = index.results[op]
        size = round_up(index.nbytes[first], policies.align)
        under = together(hosts)
        if len(hosts) == 1 and family[hosts[0]] not in outside:
            distance = min(o.distance for o in fact.overlap)
            size = max(size, round_up(distance, policies.align) + under)
        return max(0, size - under) + together(others)

    bound = together(index.outputs)
    for op, fact in enumerate(facts):
        free = _runs_in_place(index, op, fact)
        results = index.results[op][1:] if free else index.results[op]
        needed = together((*index.operands[op], *results))
        if fact.overlap and not free and index.graph.ops[op].outputs[0]:
            needed = min(needed, together(index.operands[op]) + reaching_out(op, fact))
        bound = max(bound, needed + round_up(fact.workspace or 0, policies.align))
    return bound


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
