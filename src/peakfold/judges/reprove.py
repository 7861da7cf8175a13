"""Claims that no judge derives, derived once more by searching for them anew.

A proof by exhaustive search leaves no certificate that is smaller than the search. So it is run
again, under a budget, from the graph and what the plan says of its buffers; it is the planner's
own search, and is called that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from peakfold.analysis.graph.workspace_profile import Profile
from peakfold.errors import PeakfoldError
from peakfold.ir import Graph
from peakfold.packing import Problem, pack
from peakfold.planning.modes import make_layout
from peakfold.planning.options import PlanOptions
from peakfold.planning.plan import Plan
from peakfold.planning.planner import planning_context
from peakfold.transform import replay

PROVABLE = ("bound.offsets", "bound.any_order")


def reproved(
    graph: Graph,
    plan: Plan,
    fields: Collection[str],
    *,
    seconds: float,
    profile: Profile | None = None,
) -> tuple[str, ...]:
    """The claims of a plan that a search derived again.

    Args:
        graph: the graph as loaded.
        plan: one that the judges accept.
        fields: the claims, by field; those of proofs follow from their bounds.
        seconds: for each search.
        profile: that the plan was made with.

    Returns:
        Fields of `fields`, bounds and the proofs that rest on them.
    """
    work = replay(graph, plan.recipe)
    options = PlanOptions(
        target=plan.target,
        inputs=plan.policies.inputs,
        outputs=plan.policies.outputs,
        align=plan.policies.align,
        fold=False,
        time_limit=seconds,
        seed=plan.seed,
        profile=profile,
    )
    found: list[str] = []
    if "bound.offsets" in fields and _offsets_bound(work, plan, options) >= plan.bound.offsets:
        found += ["bound.offsets", "proof.packing"]
    if "bound.any_order" in fields and _order_bound(work, options) >= plan.bound.any_order:
        found += ["bound.any_order", "proof.order"]
    return tuple(field for field in found if field in fields)


def _offsets_bound(work: Graph, plan: Plan, options: PlanOptions) -> int:
    """A lower bound for the plan's own buffers."""
    if plan.mode != "arena":
        return 0
    if plan.lanes == 1:
        live = [piece for buffer in plan.buffers for piece in buffer.live]
        problem = Problem.of_pieces(
            size=[buffer.size for buffer in plan.buffers],
            first=np.cumsum([0, *(len(buffer.live) for buffer in plan.buffers)]),
            start=[piece.start for piece in live],
            stop=[piece.stop for piece in live],
            lower=[piece.lower for piece in live],
            upper=[piece.upper for piece in live],
            align=plan.policies.align,
        )
        return pack(problem, time_limit=options.time_limit, seed=options.seed).lower_bound
    return _lanes_bound(work, plan, options)


def _lanes_bound(work: Graph, plan: Plan, options: PlanOptions) -> int:
    """Lanes: the graph is planned again; its bound holds where it has the same buffers."""
    lanes = 0 if plan.lanes == "free" else plan.lanes
    again = planning_context(work, replace(options, lanes=lanes, added_edges=len(plan.added)))
    layout = make_layout(again, "arena")
    storages, name = layout.timeline.storages, again.index.name
    held = [m for m, out in zip(storages.members, storages.external, strict=True) if m and not out]
    same = (
        again.order == tuple(plan.order)
        and again.execution.lane == tuple(plan.lane)
        and again.execution.added == tuple(plan.added)
        and sorted(buffer.size for buffer in layout.timeline.buffers)
        == sorted(buffer.size for buffer in plan.buffers)
        and sorted(sorted(name(t) for t in members) for members in held)
        == sorted(sorted(p.tensor for p in b.tensors) for b in plan.buffers if b.what == "tensor")
    )
    return layout.bound if same else 0


def _order_bound(work: Graph, options: PlanOptions) -> int:
    """A lower bound for every order of the graph."""
    try:
        return planning_context(work, replace(options, order="best")).any_order
    except PeakfoldError:  # no order was found in the time
        return 0
