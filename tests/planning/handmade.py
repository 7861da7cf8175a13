"""Plans written by hand from a colouring, as the lecture's figures give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from peakfold.analysis import op_facts
from peakfold.ir import Graph
from peakfold.judges.plan import verify_plan
from peakfold.planning.plan import (
    SCHEMA,
    BindingsRecord,
    Bound,
    ExternalBuffer,
    GraphId,
    Live,
    Place,
    Plan,
    PlannedAlias,
    PlannedBuffer,
    PoliciesRecord,
    Proof,
)
from peakfold.target import load_target

UNIT = 1


def topological_orders(graph: Graph) -> list[tuple[int, ...]]:
    """Every order of the ops that the data edges allow, by brute force."""
    needs = [{graph.producer[n] for n in op.operands if n in graph.producer} for op in graph.ops]
    return [
        order
        for order in permutations(range(len(graph.ops)))
        if all(needs[op] <= set(order[:at]) for at, op in enumerate(order))
    ]


def colour_plan(graph: Graph, colours: Mapping[str, int], order: Sequence[int]) -> Plan:
    """The plan a colouring means: equal colours share an object; in place where ops allow it."""
    target = load_target("generic")
    step = {op: at for at, op in enumerate(order)}
    last = {name: step[at] for name, at in graph.producer.items()}
    for op in sorted(step, key=lambda o: step[o]):
        for name in graph.ops[op].operands:
            if name in last:
                last[name] = step[op]
    last |= dict.fromkeys(graph.outputs, len(order) - 1)
    aliases: list[PlannedAlias] = []
    host: dict[str, str] = {}
    for at in order:
        op = graph.ops[at]
        inplace = op_facts(graph, op, target).inplace
        for position in inplace:
            operand = op.inputs[position]
            if colours.get(operand) == colours[op.outputs[0]] and op.outputs[0] not in host:
                host[op.outputs[0]] = operand
                aliases.append(
                    PlannedAlias(op=at, output=op.outputs[0], input=operand, how="inplace")
                )
    groups: dict[str, list[str]] = {}
    for at in order:
        name = graph.ops[at].outputs[0]
        root = name
        while root in host:
            root = host[root]
        groups.setdefault(root, []).append(name)
    buffers = [
        PlannedBuffer(
            what="tensor",
            offset=colours[root],
            size=UNIT,
            object=colours[root],
            live=[
                Live(
                    start=step[graph.producer[root]],
                    stop=max(last[n] for n in names) + 1,
                    lower=0,
                    upper=UNIT,
                )
            ],
            tensors=[Place(tensor=n, offset=0, nbytes=UNIT) for n in names],
        )
        for root, names in groups.items()
    ]
    objects = len(set(colours.values()))
    known = all(op_facts(graph, op, target).workspace is not None for op in graph.ops)
    return Plan(
        schema=SCHEMA,
        version="",
        graph=GraphId(name=graph.name, format="", source=graph.digest, digest=graph.digest),
        bindings=BindingsRecord(),
        recipe=[],
        target="generic",
        policies=PoliciesRecord(inputs="external", outputs="pinned", align=1),
        mode="both",
        strategy="by hand",
        order=list(order),
        lanes=1,
        arena_bytes=objects,
        buffers=buffers,
        external=[
            ExternalBuffer(tensors=[Place(tensor=n, offset=0, nbytes=UNIT)]) for n in graph.inputs
        ],
        aliases=aliases,
        copies=[],
        bound=Bound(offsets=0, objects=0, any_order=0),
        proof=Proof(packing=False, order=False),
        workspace_known=known,
        unsupported={},
        opaque=[],
    )


def accepted(graph: Graph, colours: Mapping[str, int], order: Sequence[int]) -> bool:
    """Whether the judges accept a colouring for an order."""
    return all(check.ok for check in verify_plan(graph, colour_plan(graph, colours, order)))
