"""What is true of each op: the registry's row, overridden by what the graph states itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from peakfold.analysis.graph.index import Index
from peakfold.analysis.graph.workspace import table_workspace
from peakfold.ir import Graph, Op, OverlapFact, ViewFact
from peakfold.ops import context, lookup
from peakfold.target import Target


@dataclass(frozen=True, slots=True)
class Facts:
    """Alias facts of one op, filtered by a target.

    Attributes:
        inplace: input positions that output 0 may be written over, shapes permitting.
        views: outputs that are byte ranges of inputs.
        parts: inputs that are byte ranges of output 0.
        workspace: scratch bytes; `None` = not known.
        known: false for an op the registry has no row for.
        keeps_bytes: the op keeps every byte where it is, so in place asks for equal bytes only.
        overlap: inputs that output 0 may be written over at a distance.
        room: ops of the same number have their scratch in the same place, since they run the same
            body, whose tensors have one place; -1 = a place of its own.
    """

    inplace: tuple[int, ...] = ()
    views: tuple[ViewFact, ...] = ()
    parts: tuple[ViewFact, ...] = ()
    workspace: int | None = None
    known: bool = True
    keeps_bytes: bool = False
    overlap: tuple[OverlapFact, ...] = ()
    room: int = -1


def op_facts(graph: Graph, op: Op, target: Target) -> Facts:
    """The facts of one op under a target.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.target import load_target
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\n"
        ...                 "y: int8[4] = relu(x)\\noutput y")
        >>> op_facts(g, g.ops[0], load_target("generic")).inplace
        (0,)
    """
    spec = lookup(op.kind)
    stated = op.stated
    ctx = context(op, graph.by_name)
    inplace = spec.inplace_inputs(ctx)
    if op.kind in target.inplace_also and not inplace:
        inplace = (0,)
    if stated is not None and stated.inplace is not None:
        inplace = stated.inplace
    if not target.allows_inplace(op.kind):
        inplace = ()
    views = spec.views(ctx) if spec.views else ()
    parts = spec.parts(ctx) if spec.parts else ()
    overlap = spec.overlap(ctx) if spec.overlap and op.kind in target.overlap_kinds else ()
    workspace = table_workspace(ctx, target)  # what its kernels were seen to ask for comes first
    if workspace is None and spec.workspace:
        workspace = spec.workspace(ctx)
    if stated is not None and stated.views is not None:
        views = stated.views
    if stated is not None and stated.overlap is not None:
        overlap = stated.overlap
    if stated is not None and stated.workspace is not None:
        workspace = stated.workspace
    keeps_bytes = target.reshape == "inplace" and views == (ViewFact(0, 0, 0),)
    if keeps_bytes:
        views, inplace = (), (0,) if target.allows_inplace(op.kind) else ()
    known = spec.known or (op.kind == "opaque" and stated is not None)
    found = Facts(inplace, views, parts, workspace, known, keeps_bytes, overlap)
    return found if graph.bounded.isdisjoint(op.operands) else _of_any_size(graph, op, found)


def _of_any_size(graph: Graph, op: Op, facts: Facts) -> Facts:
    """What still holds where operands may be smaller than stated.

    Two that are stated alike may be of other sizes, so that one is broadcast and read again; and
    what lies behind a smaller one begins elsewhere.
    """
    bounded = graph.bounded
    alone = sum(name in bounded or graph[name].elements != 1 for name in set(op.operands)) == 1
    return replace(
        facts,
        inplace=facts.inplace if alone else (),
        parts=(),
        overlap=(),
        views=tuple(view for view in facts.views if view.offset == 0),
    )


def viewed(index: Index, op: Op, facts: Facts) -> Iterator[tuple[int, int, int]]:
    """The views of an op whose operand and result both exist: result, operand, bytes between.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.target import load_target
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\n"
        ...                 "y: int8[2] = slice(x, starts=[2], ends=[4])\\noutput y")
        >>> facts = op_facts(g, g.ops[0], load_target("generic"))
        >>> list(viewed(Index.of(g), g.ops[0], facts))
        [(1, 0, 2)]
    """
    for view in facts.views:
        result = op.outputs[view.output] if view.output < len(op.outputs) else ""
        operand = op.inputs[view.input] if view.input < len(op.inputs) else ""
        if result and operand:
            yield index.id_of[result], index.id_of[operand], view.offset
