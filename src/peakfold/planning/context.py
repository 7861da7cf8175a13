"""A graph made ready for planning: recipe applied, index built, bodies planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from peakfold.analysis import (
    Facts,
    Index,
    Policies,
    any_order_bound,
    file_order,
    op_facts,
    slot_bytes,
    unsupported,
)
from peakfold.analysis.graph.workspace_profile import profiled
from peakfold.ir import Graph, Op
from peakfold.ops.doubts import BELIEVED
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.lanes.packing import Execution, execution_for, whole_buffers
from peakfold.planning.options import PlanOptions
from peakfold.planning.plan import BodyPlan, Plan
from peakfold.planning.timeline import Decisions, Timeline, simulate
from peakfold.target import Target, load_target
from peakfold.transform import replay, split_step, train_step
from peakfold.units import round_up

PlanBody = Callable[[Graph, PlanOptions], Plan]


@dataclass(frozen=True, slots=True, eq=False)
class PlanningContext:
    """What every layout of one graph needs.

    Attributes:
        graph: after the recipe.
        recipe: the steps that were applied, as the plan records them.
        order: op ids in the order they run, or one of the orders that lanes allow.
        execution: lanes, and what they guarantee.
        facts: per op; the workspace of control flow is filled in from its bodies' plans.
        bodies: plans of all bodies.
        workspace_known: whether every op's scratch is known.
        bodies_proven: every body's arena meets its own bound for every order, so that searched
            bounds of this graph are bounds of the whole.
        any_order: lower bound for every order, under the sharing that facts allow.
        complete: False where time ended what was sought before any layout: order, edges, or the
            plan of a body.
    """

    source: Graph
    graph: Graph
    recipe: tuple[str, ...]
    target: Target
    options: PlanOptions
    policies: Policies
    index: Index
    facts: tuple[Facts, ...]
    bodies: tuple[BodyPlan, ...]
    order: tuple[int, ...]
    execution: Execution
    workspace_known: bool
    any_order: int
    bodies_proven: bool
    complete: bool = True

    @property
    def doubtful(self) -> bool:
        """Whether shapes or ops are doubtful, so that nothing of the graph is proven."""
        strange = self.source.source not in BELIEVED and bool(unsupported(self.graph))
        return bool(self.source.doubts) or strange

    @property
    def full_aliasing(self) -> Aliasing:
        """All the sharing inside storages that the options and the target allow."""
        views = self.options.views and self.target.views
        return Aliasing(inplace=self.options.inplace, views=views)

    def timeline(self, aliasing: Aliasing) -> Timeline:
        """The timeline of the context's order under some sharing."""
        decisions = Decisions(order=self.order, aliasing=aliasing)
        precedence = self.execution.precedence
        timeline = simulate(self.index, decisions, self.policies, self.facts, precedence)
        return timeline if precedence is None else whole_buffers(timeline)

    def step_name(self, step: int) -> str | None:
        """What runs at a step: an op, or the copying of outputs behind the last one."""
        if step < len(self.order):
            return self.graph.ops[self.order[step]].name
        return "output copies" if self.order else None


def recipe_of(options: PlanOptions) -> tuple[str, ...]:
    """The graph steps that options ask for, by the names a plan records."""
    folding = ("fold-weights",) if options.fold_weights else ("fold",)
    training = () if options.train is None else (train_step(options.train),)
    bands = () if options.split is None else (split_step(options.split),)
    return (folding if options.fold else ()) + bands + training


def prepare(source: Graph, options: PlanOptions, plan_body: PlanBody) -> PlanningContext:
    """Make a graph ready for planning.

    Args:
        source: the graph as loaded.
        options: what is asked.
        plan_body: plans a body of control flow.

    Raises:
        ModelError: a tensor whose size is not known.
        UsageError: an unknown target.
    """
    target = load_target(options.target)
    policies = options.policies(target)
    recipe = recipe_of(options)
    graph = replay(source, recipe)
    index = Index.of(graph)
    inputs, outputs = target.body_policies
    inner = replace(
        options, mode="arena", strategy="best", inputs=inputs, outputs=outputs,
        fold=False, budget=None, arena_budget=None, flash=None, trace=False, lanes=1,
        added_edges=0, train=None, split=None,
    )  # fmt: skip
    if target.bodies == "kept":
        inner = replace(inner, inplace=False, views=False, zero_copy=False, overlap=False)
    facts: list[Facts] = []
    least: list[Facts] = []
    bodies: list[BodyPlan] = []
    shared = target.bodies == "kept" and options.mode == "arena" and options.lanes == 1
    rooms = _rooms(graph) if shared else {}
    for at, op in enumerate(graph.ops):
        fact = floor = _facts(graph, op, target, options)
        if op.regions:
            plans = [plan_body(region.graph, inner) for region in op.regions]
            bodies += [BodyPlan(op=at, region=n, plan=plan) for n, plan in enumerate(plans)]
            needs = [plan.arena_bytes for plan in plans]
            floors = [plan.bound.any_order for plan in plans]
            room, align = rooms.get(at, -1), policies.align
            fact = replace(fact, workspace=body_workspace(op, needs, align, target), room=room)
            floor = replace(fact, workspace=body_workspace(op, floors, align, target))
        facts.append(fact if options.overlap else replace(fact, overlap=()))
        least.append(floor)
    execution = execution_for(index, file_order(index), options.lanes)
    known = all(fact.workspace is not None for fact in facts)
    return PlanningContext(
        source,
        graph,
        recipe,
        target,
        options,
        policies,
        index,
        tuple(facts),
        tuple(bodies),
        execution.order,
        execution,
        known and all(body.plan.workspace_known for body in bodies),
        any_order_bound(index, policies, least),
        all(fact.workspace == floor.workspace for fact, floor in zip(facts, least, strict=True)),
        all(body.plan.search == "complete" for body in bodies),
    )


def _facts(graph: Graph, op: Op, target: Target, options: PlanOptions) -> Facts:
    fact = op_facts(graph, op, target)
    if options.profile is not None:
        fact = profiled(fact, op, options.profile.workspace)
    # Where several ops run at once, nothing overlaps.
    return fact if options.lanes == 1 else replace(fact, overlap=())


def _rooms(graph: Graph) -> dict[int, int]:
    """The first op of those that run a common body, for each of them."""
    first: dict[int, int] = {}
    rooms: dict[int, int] = {}
    for at, op in enumerate(graph.ops):
        bodies = [id(region.graph) for region in op.regions]
        met = {rooms[first[body]] for body in bodies if body in first}
        rooms[at] = min(met, default=at)
        for other in [other for other, room in rooms.items() if room in met]:
            rooms[other] = rooms[at]
        for body in bodies:
            first.setdefault(body, at)
    counts = Counter(rooms.values())
    return {at: room for at, room in rooms.items() if counts[room] > 1}


def body_workspace(op: Op, arenas: Sequence[int], align: int, target: Target) -> int:
    """Scratch of a control-flow op: its largest body's arena and what is kept beside it.

    Args:
        op: the op.
        arenas: bytes per body.
        align: padding.
        target: whose rules hold for bodies.
    """
    needs = [
        round_up(arena, align) + slot_bytes(op, region, align, target)
        for arena, region in zip(arenas, op.regions, strict=True)
    ]
    return max(needs, default=0)
