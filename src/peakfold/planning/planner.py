"""Graph in, plan out: studies the graph, lays it out in every mode, writes the asked one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import metadata

import msgspec

from peakfold.analysis import file_order, static_bytes, unsupported
from peakfold.ir import Graph, check_graph
from peakfold.ir.bindings import Bindings
from peakfold.packing.objects.assign import objects_bound
from peakfold.planning.aliasing.order_and_layout import with_best_order
from peakfold.planning.aliasing.reference_counting import CounterPlan
from peakfold.planning.context import PlanningContext, prepare
from peakfold.planning.fit.needing import Runtime, need_of
from peakfold.planning.fit.total import Budgets, Need
from peakfold.planning.lanes.tradeoff import with_chosen_edges
from peakfold.planning.modes import Layout, make_layout, trace_rows
from peakfold.planning.options import COUNTER, PlanOptions
from peakfold.planning.plan import (
    MODES,
    SCHEMA,
    BindingsRecord,
    BodyPlan,
    Bound,
    ExternalBuffer,
    GraphId,
    Live,
    Mode,
    Place,
    Plan,
    PlannedAlias,
    PlannedBuffer,
    PoliciesRecord,
    Proof,
)
from peakfold.planning.summary import Summary
from peakfold.planning.timeline import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class PlanResult:
    """A plan and all that was learnt on the way to it.

    Attributes:
        plan: the artefact.
        summary: every figure, by its contract name.
        context: the prepared graph.
        layouts: the layout of every mode.
        need: what it takes of each memory.
        trace: the reference-counting run, when it was asked for.
    """

    plan: Plan
    summary: Summary
    context: PlanningContext
    layouts: dict[Mode, Layout]
    need: Need
    trace: CounterPlan | None = None

    @property
    def layout(self) -> Layout:
        """The layout that the plan records."""
        return self.layouts[self.plan.mode]


def make_plan(
    graph: Graph,
    options: PlanOptions | None = None,
    bindings: Bindings | None = None,
    runtime: Runtime | None = None,
) -> PlanResult:
    """Plan a graph's memory.

    Args:
        graph: as loaded; every dimension a number.
        options: what is asked; defaults to an arena for the generic target.
        bindings: recorded in the plan, so that `verify` can load the same graph again.
        runtime: what executes the plan, where that is modelled; it decides nothing but the total.

    Raises:
        ModelError: the graph is not well formed, or a size is not known.
        UsageError: options that do not go together.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\n"
        ...                 "y: int8[64] = relu(x)\\nz: int8[64] = relu(y)\\noutput z")
        >>> result = make_plan(g)
        >>> result.summary.naive_bytes, result.summary.arena_bytes, result.summary.optimal
        (128, 64, True)
    """
    options = options or PlanOptions()
    context = planning_context(graph, options)
    layouts = {mode: make_layout(context, mode, _strategy(options, mode)) for mode in MODES}
    plan = plan_layout(context, layouts[options.mode], bindings)
    trace = trace_rows(context, options.mode)[0] if options.trace else None
    need = need_of(context, plan.arena_bytes, runtime)
    return PlanResult(plan, _summarise(context, layouts, plan, need), context, layouts, need, trace)


def planning_context(graph: Graph, options: PlanOptions) -> PlanningContext:
    """Check a graph and make it ready for planning: order, lanes and added edges included.

    Raises:
        ModelError: the graph is not well formed, or a size is not known.
        UsageError: an unknown target, or options that do not go together.
    """
    check_graph(graph)
    context = prepare(graph, options, _plan_body)
    if options.order == "best":
        context = with_best_order(context)
    return with_chosen_edges(context, options.added_edges)


def _plan_body(graph: Graph, options: PlanOptions) -> Plan:
    context = prepare(graph, options, _plan_body)
    if options.order == "best":
        context = with_best_order(context)
    return plan_layout(context, make_layout(context, "arena"))


@cache
def _version() -> str:
    """Read from a file of the installation, so once for all bodies."""
    return metadata.version("peakfold")


def _strategy(options: PlanOptions, mode: Mode) -> str:
    if mode == options.mode:
        return options.strategy
    return COUNTER if options.quick and mode in ("share", "both") else "best"


def plan_layout(context: PlanningContext, layout: Layout, bindings: Bindings | None = None) -> Plan:
    """Write one layout down as a plan.

    Args:
        context: the prepared graph.
        layout: who lies where.
        bindings: recorded in the plan; none by default.
    """
    bindings = bindings or Bindings()
    storages = layout.timeline.storages
    names = context.index.name
    return Plan(
        schema=SCHEMA,
        version=_version(),
        graph=GraphId(
            name=context.source.name,
            format=context.source.source,
            source=context.source.digest,
            digest=context.graph.digest,
        ),
        bindings=BindingsRecord(
            dims=dict(sorted(bindings.dims.items())),
            shapes={name: str(shape) for name, shape in sorted(bindings.shapes.items())},
        ),
        recipe=list(context.recipe),
        target=context.target.name,
        policies=PoliciesRecord(
            inputs=context.policies.inputs,
            outputs=context.policies.outputs,
            align=context.policies.align,
        ),
        mode=layout.mode,
        strategy=layout.strategy,
        order=list(context.order),
        lanes=context.execution.lanes or "free",
        arena_bytes=layout.total,
        buffers=[
            buffer
            for at in range(len(layout.timeline.buffers))
            for buffer in _buffers(context, layout, at)
        ],
        external=_external(context, layout),
        aliases=[
            PlannedAlias(op=a.op, output=names(a.output), input=names(a.input), how=a.how)
            for a in storages.aliases
        ],
        copies=[names(t) for t in storages.copies]
        + [names(b.copy) for b in layout.timeline.buffers if b.copy >= 0],
        bound=_bound(context, layout),
        proof=_proof(context, layout),
        workspace_known=context.workspace_known,
        unsupported=unsupported(context.graph),
        opaque=[names(t) for t in sorted(context.index.opaque)],
        doubts=list(context.source.doubts),
        bodies=[_unproven(body) for body in context.bodies]
        if context.doubtful
        else [*context.bodies],
        profile=_measured(context),
        profile_digest=None if context.options.profile is None else context.options.profile.digest,
        seed=context.options.seed,
        lane=list(context.execution.lane),
        added=list(context.execution.added),
        search="complete" if layout.complete else "time limit",
    )


def _external(context: PlanningContext, layout: Layout) -> list[ExternalBuffer]:
    storages = layout.timeline.storages
    return [
        ExternalBuffer(tensors=_places(context, layout, storage))
        for storage, members in enumerate(storages.members)
        if members and storages.external[storage]
    ]


def _bound(context: PlanningContext, layout: Layout) -> Bound:
    return Bound(
        offsets=layout.timeline.peak if layout.objects is not None else layout.bound,
        objects=objects_bound(layout.timeline.hulls(context.policies.align)),
        any_order=context.any_order,
    )


def _proof(context: PlanningContext, layout: Layout) -> Proof:
    """What is proven; of a graph with a doubt, nothing."""
    return Proof(
        packing=layout.optimal and not context.doubtful,
        order=layout.total == context.any_order and not context.doubtful,
    )


def _unproven(body: BodyPlan) -> BodyPlan:
    """The plan of a body inside a doubtful graph, which calls nothing proven."""
    plan = body.plan
    plan = msgspec.structs.replace(
        plan, proof=Proof(packing=False, order=False), bodies=[*map(_unproven, plan.bodies)]
    )
    return msgspec.structs.replace(body, plan=plan)


def _measured(context: PlanningContext) -> dict[str, int]:
    """Of the profile, what this graph has ops for."""
    profile = context.options.profile
    if profile is None:
        return {}
    here = {op.name for op in context.graph.ops}
    return {name: size for name, size in sorted(profile.workspace.items()) if name in here}


def _buffers(context: PlanningContext, layout: Layout, at: int) -> list[PlannedBuffer]:
    """What a plan says of a buffer: ops that share a place for their scratch each have a buffer."""
    buffer, whole = layout.timeline.buffers[at], _buffer(context, layout, at)
    return (
        [whole]
        if not buffer.tied
        else [
            msgspec.structs.replace(whole, op=op, size=live.upper, live=[live])
            for op, live in zip(buffer.tied, whole.live, strict=True)
        ]
    )


def _buffer(context: PlanningContext, layout: Layout, at: int) -> PlannedBuffer:
    buffer: Buffer = layout.timeline.buffers[at]
    live = [Live(start=p.start, stop=p.stop, lower=p.lower, upper=p.upper) for p in buffer.pieces]
    obj = None if layout.objects is None else layout.objects[at]
    offset = layout.offsets[at]
    if buffer.workspace >= 0:
        return PlannedBuffer(
            what="workspace",
            offset=offset,
            size=buffer.size,
            live=live,
            op=buffer.workspace,
            object=obj,
        )
    if buffer.copy >= 0:
        nbytes = context.index.nbytes[buffer.copy]
        places = [Place(tensor=context.index.name(buffer.copy), offset=0, nbytes=nbytes)]
        return PlannedBuffer(
            what="copy", offset=offset, size=buffer.size, live=live, tensors=places, object=obj
        )
    places = _places(context, layout, buffer.storage)
    return PlannedBuffer(
        what="tensor", offset=offset, size=buffer.size, live=live, tensors=places, object=obj
    )


def _places(context: PlanningContext, layout: Layout, storage: int) -> list[Place]:
    storages = layout.timeline.storages
    return [
        Place(
            tensor=context.index.name(t), offset=storages.offset[t], nbytes=context.index.nbytes[t]
        )
        for t in storages.members[storage]
    ]


def _summarise(
    context: PlanningContext, layouts: dict[Mode, Layout], plan: Plan, need: Need
) -> Summary:
    arena, index = layouts["arena"], context.index
    bound = arena.bound
    chosen = layouts[plan.mode].timeline
    peak_op = context.step_name(chosen.peak_step)
    totals = {mode: layout.total for mode, layout in layouts.items()}
    both = layouts["both"]
    cut = [mode for mode, layout in layouts.items() if not layout.complete]
    budgets = Budgets.of(context.options)
    return Summary(
        naive_bytes=totals["naive"],
        inplace_bytes=totals["inplace"],
        share_bytes=totals["share"],
        both_bytes=totals["both"],
        arena_bytes=totals["arena"],
        lower_bound_bytes=bound,
        objects_bound_bytes=both.bound,
        any_order_bound_bytes=context.any_order,
        gap=(arena.total - bound) / bound if bound else 0.0,
        optimal=not plan.doubtful and arena.optimal,
        order_optimal=not plan.doubtful and arena.total == context.any_order,
        workspace_known=context.workspace_known,
        order="file" if context.order == file_order(context.index) else "best",
        lanes=context.execution.lanes or "free",
        static_bytes=sum(static_bytes(context.graph).values()),
        input_bytes=sum(index.nbytes[t] for t in index.inputs if not index.static[t]),
        output_bytes=sum(index.nbytes[t] for t in dict.fromkeys(index.outputs)),
        peak_op=peak_op,
        mode=plan.mode,
        strategy=plan.strategy,
        search="time limit" if cut else "complete",
        cut_short=cut,
        plan_bytes=plan.arena_bytes,
        zero_copy_concats=len(arena.timeline.storages.built_in_place),
        arena_copying_bytes=arena.total if arena.copying is None else arena.copying,
        overlaps=sum(a.how == "overlap" for a in arena.timeline.storages.aliases),
        arena_apart_bytes=arena.total if arena.apart is None else arena.apart,
        copies=len(plan.copies),
        opaque_tensors=len(plan.opaque),
        total=need.total,
        total_bytes=need.nbytes,
        total_at_least_bytes=need.at_least,
        unknown=list(need.unknown),
        flash_bytes=need.flash,
        code_bytes=None,
        budget_bytes=budgets.total,
        arena_budget_bytes=budgets.arena,
        flash_budget_bytes=budgets.flash,
        fits=budgets.verdict(need),
    )
