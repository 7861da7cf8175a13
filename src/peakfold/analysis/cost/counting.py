"""Graph -> `Cost`: ask the registry about every op, bodies of control flow included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import get_args

from peakfold.analysis.cost.parameters import Ledger, Scope, open_ledger, place
from peakfold.analysis.cost.records import (
    BRANCHES,
    FIGURES,
    LOOPS,
    Causal,
    Cost,
    CostOptions,
    Figures,
    OpCost,
    runs,
)
from peakfold.analysis.cost.traffic import Moves, moves_of
from peakfold.arguments import mapping, whole, word
from peakfold.errors import UsageError
from peakfold.ir import Graph, Op, Role, Tensor, unbound, walk_regions
from peakfold.ops import REGISTRY, Context, Engine, OpSpec, context, lookup
from peakfold.ops.complexes import PARTS


def cost_of(
    graph: Graph,
    options: CostOptions | None = None,
    *,
    table: Mapping[str, OpSpec] = REGISTRY,
    original: Graph | None = None,
) -> Cost:
    """Count a graph.

    Args:
        graph: its ops are what runs; shapes that are not known leave figures unknown.
        options: see `CostOptions`.
        table: the registry, with rows of your own (`peakfold.ops.register`).
        original: the graph before it was folded: weights are counted as stored there.

    Raises:
        UsageError: an option that is none: a trip count for a loop that does not exist, a batch
            below 1.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[2,3]\\n"
        ...                 "parameter w: float32[3,4]\\n"
        ...                 "y: float32[2,4] = matmul(x, w)\\noutput y")
        >>> found = cost_of(g)
        >>> f = found.total().figures
        >>> f.macs, f.flops, f.params, f.bytes_moved, found.batch
        (24, 48, 12, 104, 2)
    """
    options = options or CostOptions()
    _check(graph, options)
    ledger, scope = open_ledger(graph, original)
    counter = _Counter(options, table, ledger)
    found = counter.count(graph, scope)
    return replace(
        found, unread_params=ledger.unread(), unbound=unbound(graph), halved=counter.halved
    )


def scope_of(op: Op) -> str:
    """The module path of an op: stated, or else the folder part of its name.

    Exporters write paths into names: ``/layer1/conv1/Conv`` lies in ``/layer1/conv1``.
    """
    return op.scope or op.name.rpartition("/")[0]


class _Counter:
    def __init__(self, options: CostOptions, table: Mapping[str, OpSpec], ledger: Ledger) -> None:
        self.options = options
        self.table = table
        self.ledger = ledger
        self.halved = 0

    def count(self, graph: Graph, scope: Scope) -> Cost:
        contexts = [context(op, graph.by_name) for op in graph.ops]
        moved = moves_of(graph, self.table, contexts)
        ops = tuple(self._op(ctx, one, scope) for ctx, one in zip(contexts, moved, strict=True))
        batch, batch_from = _batch(graph, self.options)
        return Cost(
            name=graph.name,
            ops=ops,
            param_bytes=_param_bytes(graph),
            statistics=sum(op.statistics for op in ops),
            trainable=self._trainable(ops),
            batch=batch,
            batch_from=batch_from,
            options=self.options,
            open_loops=_open_loops(ops),
        )

    def _trainable(self, ops: tuple[OpCost, ...]) -> int | None:
        if not self.ledger.stated:
            return None
        return sum((op.figures.params or 0) - op.frozen for op in ops)

    def _op(self, ctx: Context, moved: Moves, scope: Scope) -> OpCost:
        op = ctx.op
        spec = lookup(op.kind, self.table)
        stored = self.ledger.take(scope, op) if not op.regions else {}
        weights, frozen = stored.pop("weight", 0), stored.pop("frozen", 0)
        engine = spec.engine_if(ctx) if spec.engine_if is not None else spec.engine
        found = OpCost(
            name=op.name,
            kind=op.kind,
            scope=scope_of(op),
            engine=engine,
            dtype=_dtype(ctx, engine),
            figures=self._figures(ctx, spec, moved, weights),
            statistics=sum(stored.values()),
            frozen=frozen,
            known=spec.known,
        )
        return found if not op.regions else self._with_bodies(op, found, scope)

    def _figures(self, ctx: Context, spec: OpSpec, moved: Moves, weights: int) -> Figures:
        macs = spec.macs(ctx) if spec.macs is not None else None
        other = spec.other_ops(ctx) if spec.other_ops is not None else None
        if self.options.causal == "half" and spec.masked is not None:
            hidden, hidden_other = spec.masked(ctx)
            self.halved += hidden > 0
            macs = None if macs is None else macs - hidden
            other = None if other is None else other - hidden_other
        elements, output_bytes = _made(ctx)
        return Figures(
            macs=macs,
            other_ops=other,
            elements=elements,
            output_bytes=output_bytes,
            read=moved.unfused.read,
            written=moved.unfused.written,
            fused_read=moved.fused.read,
            fused_written=moved.fused.written,
            params=weights,
        )

    def _with_bodies(self, op: Op, found: OpCost, scope: Scope) -> OpCost:
        inner = scope.bodies.get(place(op), ())
        bodies = tuple(
            (region.label, self.count(region.graph, names))
            for region, names in zip(op.regions, inner, strict=True)
        )
        stored = self.ledger.take(scope, op)
        weights, frozen = stored.pop("weight", 0), stored.pop("frozen", 0)
        frozen += sum(op.frozen for _, body in bodies for op in body.ops)
        totals = [body.total().figures for _, body in bodies]
        statistics = sum(stored.values()) + sum(body.statistics for _, body in bodies)
        trips = self._trips(op)
        if op.kind in BRANCHES:
            sums = _largest(totals)
        else:
            sums = _added(
                one.times(runs(label, trips, op.kind))
                for (label, _), one in zip(bodies, totals, strict=True)
            )
        params = weights + sum(one.params or 0 for one in totals)
        return replace(
            found,
            figures=replace(sums, params=params),
            statistics=statistics,
            frozen=frozen,
            bodies=bodies,
            trips=trips,
        )

    def _trips(self, op: Op) -> int | None:
        given = self.options.trips.get(op.name)
        stated = op.attrs.get("trips")
        if given is not None:
            return given
        return max(stated, 0) if isinstance(stated, int) else None


def _largest(branches: list[Figures]) -> Figures:
    """The largest of every figure."""
    sums = {
        name: max((v for v in (getattr(b, name) for b in branches) if v is not None), default=None)
        for name in FIGURES
    }
    return Figures(**sums)


def _added(parts: Iterable[Figures]) -> Figures:
    parts = tuple(parts)
    sums: dict[str, int | None] = {}
    for name in FIGURES:
        known = [v for v in (getattr(part, name) for part in parts) if v is not None]
        sums[name] = sum(known) if known or not parts else None
    return Figures(**sums)


def _open_loops(ops: Iterable[OpCost]) -> tuple[str, ...]:
    found: list[str] = []
    for op in ops:
        if op.open_loop:
            found.append(op.name)
        for _, body in op.bodies:
            found += body.open_loops
    return tuple(found)


def _dtype(ctx: Context, engine: Engine) -> str:
    """The element type an op computes in.

    On a matrix engine its first operand's; else its result's, unless that is only a truth value
    or an index. That of its parts, where numbers are complex.
    """
    first: Tensor | None = next((t for t in ctx.inputs if t is not None), None)
    made: Tensor | None = next((t for t in ctx.outputs if t is not None), None)
    if engine != "matrix" and made is not None and made.dtype.name not in ("bool", "int64"):
        return PARTS.get(made.dtype.name, made.dtype.name)
    chosen = first or made
    return "" if chosen is None else PARTS.get(chosen.dtype.name, chosen.dtype.name)


def _made(ctx: Context) -> tuple[int | None, int | None]:
    """Elements and bytes of all results; `None` where one is not known."""
    elements: int | None = 0
    nbytes: int | None = 0
    for tensor in ctx.outputs:
        if tensor is not None:
            count, size = tensor.elements, tensor.nbytes
            elements = None if elements is None or count is None else elements + count
            nbytes = None if nbytes is None or size is None else nbytes + size
    return elements, nbytes


def _param_bytes(graph: Graph) -> dict[str, int]:
    """Bytes of stored parameters by element type, bodies included."""
    found: dict[str, int] = {}
    for body in walk_regions(graph):
        for tensor in body.tensors:
            if tensor.role is Role.PARAMETER and tensor.name not in body.inputs:
                name = tensor.dtype.name
                found[name] = found.get(name, 0) + (tensor.nbytes or 0)
    return dict(sorted(found.items()))


def _batch(graph: Graph, options: CostOptions) -> tuple[int | None, str]:
    """Samples in a run, and where that was read; a vector is one sample."""
    if options.batch is not None:
        return options.batch, "given"
    for name in graph.inputs:
        shape = graph[name].shape
        if shape is not None and len(shape) > 1 and not graph[name].role.static:
            lead = shape[0] if isinstance(shape[0], int) and shape[0] else None
            return lead, f"leading dimension of input {name!r}"
    return 1, "no input has a leading dimension to spare"


def _check(graph: Graph, options: CostOptions) -> None:
    word(options.causal, get_args(Causal), "way to count causal attention,")
    if options.batch is not None:
        whole(options.batch, "batch", 1)
    mapping(options.trips, "trips")
    loops = {op.name for body in walk_regions(graph) for op in body.ops if op.kind in LOOPS}
    for name, count in options.trips.items():
        if name not in loops:
            known = ", ".join(sorted(loops)) or "none"
            raise UsageError(f"no loop is called {name!r}", hint=f"loops: {known}")
        whole(count, f"the trip count of loop {name!r}")
