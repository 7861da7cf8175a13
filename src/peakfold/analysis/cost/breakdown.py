"""Who needs memory, by role and by op: the static and dynamic account of one graph.

Static bytes (parameters, constants that could not be folded, state, optimizer state) are
allocated once; dynamic bytes are results and kernel scratch, before any reuse. All figures are
exact and unpadded, and a tensor that several ops share is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from peakfold.analysis import Facts, Index, static_bytes
from peakfold.ir import Graph, Op, Role, walk_regions


@dataclass(frozen=True, slots=True, kw_only=True)
class OpAccount:
    """One op's share.

    Attributes:
        params: parameter elements that no earlier op reads; bodies included.
        static_bytes: bytes of the static tensors that no earlier op reads.
        output_bytes: bytes of its results; `None` when one of them is opaque.
        workspace: bytes of scratch; `None` = not known.
    """

    name: str
    kind: str
    scope: str
    params: int
    static_bytes: int
    output_bytes: int | None
    workspace: int | None


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Bytes by role.

    Attributes:
        static: bytes per static role, every tensor once.
        params: elements of all parameters, every tensor once.
        activation, gradient: bytes of results that are not outputs of the graph.
        workspace: bytes of the scratch of all ops together; `None` when one is not known.
        workspace_unknown: ops with unknown scratch, by kind.
        inputs, outputs: bytes of the signature's tensors; static ones are not inputs.
        elements: elements of the tensors counted in `activation`.
        opaque: tensors whose size no graph states.
    """

    static: dict[Role, int]
    params: int
    activation: int
    gradient: int
    workspace: int | None
    workspace_unknown: dict[str, int]
    inputs: int
    outputs: int
    elements: int
    opaque: tuple[str, ...]
    ops: tuple[OpAccount, ...]

    @property
    def static_total(self) -> int:
        """Bytes allocated once."""
        return sum(self.static.values())

    @cached_property
    def dynamic_total(self) -> int:
        """Bytes of results, outputs and known scratch, before any reuse."""
        known = sum(op.workspace or 0 for op in self.ops)
        return self.activation + self.gradient + self.outputs + known


def break_down(index: Index, facts: Sequence[Facts]) -> Breakdown:
    """The account of a graph.

    Args:
        index: of the graph.
        facts: per op; only the workspace is read.

    Example:
        >>> from peakfold.analysis import op_facts
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.target import load_target
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[4]\\nparameter w: float32[4]\\n"
        ...                 "y: float32[4] = add(x, w)\\nz: float32[4] = add(y, w)\\noutput z")
        >>> facts = [op_facts(g, op, load_target("generic")) for op in g.ops]
        >>> found = break_down(Index.of(g), facts)
        >>> found.params, found.activation, found.outputs, [op.params for op in found.ops]
        (4, 16, 16, [4, 0])
    """
    graph, outputs = index.graph, frozenset(index.outputs)
    inner = [t for t, maker in enumerate(index.producer) if maker >= 0 and t not in outputs]
    gradient = [t for t in inner if graph.tensors[t].role is Role.GRADIENT]
    other = [t for t in inner if graph.tensors[t].role is not Role.GRADIENT]
    unknown: dict[str, int] = {}
    for op, fact in zip(graph.ops, facts, strict=True):
        if fact.workspace is None:
            unknown[op.kind] = unknown.get(op.kind, 0) + 1
    return Breakdown(
        static=static_bytes(graph),
        params=sum(_parameters(g) for g in walk_regions(graph)),
        activation=sum(index.nbytes[t] for t in other),
        gradient=sum(index.nbytes[t] for t in gradient),
        workspace=None if unknown else sum(fact.workspace or 0 for fact in facts),
        workspace_unknown=dict(sorted(unknown.items())),
        inputs=sum(index.nbytes[t] for t in index.inputs if not index.static[t]),
        outputs=sum(index.nbytes[t] for t in outputs),
        elements=sum(graph.tensors[t].elements or 0 for t in other if t not in index.opaque),
        opaque=tuple(index.name(t) for t in sorted(index.opaque)),
        ops=_accounts(index, facts),
    )


def _parameters(graph: Graph) -> int:
    """Elements of the parameters a graph owns; what a body captures is its owner's."""
    own = (t for t in graph.tensors if t.role is Role.PARAMETER and t.name not in graph.inputs)
    return sum(tensor.elements or 0 for tensor in own)


def _accounts(index: Index, facts: Sequence[Facts]) -> tuple[OpAccount, ...]:
    seen: set[int] = set()
    accounts: list[OpAccount] = []
    for at, (op, fact) in enumerate(zip(index.graph.ops, facts, strict=True)):
        fresh = [t for t in index.operands[at] if index.static[t] and t not in seen]
        seen.update(fresh)
        weights = [index.graph.tensors[t] for t in fresh]
        inside = _inside(op)
        results = index.results[at]
        accounts.append(
            OpAccount(
                name=op.name,
                kind=op.kind,
                scope=op.scope,
                params=sum(t.elements or 0 for t in weights if t.role is Role.PARAMETER)
                + sum(_parameters(graph) for graph in inside),
                static_bytes=sum(index.nbytes[t] for t in fresh)
                + sum(sum(static_bytes(region.graph).values()) for region in op.regions),
                output_bytes=None
                if index.opaque.intersection(results)
                else sum(index.nbytes[t] for t in results),
                workspace=fact.workspace,
            )
        )
    return tuple(accounts)


def _inside(op: Op) -> list[Graph]:
    return [graph for region in op.regions for graph in walk_regions(region.graph)]
