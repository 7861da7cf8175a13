"""Order, sharing and offsets together: never worse, and a proof is a proof."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from peakfold.errors import UsageError
from peakfold.frontends import Bindings, load
from peakfold.ir import Graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.modes import NOTHING
from peakfold.planning.planner import planning_context
from tests.packing.oracle import optimum
from tests.strategies import graphs

from .handmade import topological_orders
from .test_properties import OPTIONS, runs_right


@given(graphs(max_ops=7), OPTIONS)
def test_the_best_order_is_never_worse_and_its_plan_runs_right(
    graph: Graph, options: PlanOptions
) -> None:
    best = make_plan(graph, replace(options, order="best"))
    assert best.summary.arena_bytes <= make_plan(graph, options).summary.arena_bytes
    assert all(check.ok for check in verify_plan(graph, best.plan))
    assert runs_right(graph, best.plan)


@given(graphs(max_ops=5), OPTIONS)
def test_an_order_that_is_called_optimal_is(graph: Graph, options: PlanOptions) -> None:
    summary = make_plan(graph, replace(options, order="best")).summary
    others = [
        make_plan(replace(graph, ops=tuple(graph.ops[at] for at in order)), options).summary
        for order in topological_orders(graph)
    ]
    least = min(other.arena_bytes for other in others)
    assert summary.any_order_bound_bytes <= least
    if summary.order_optimal:
        assert summary.arena_bytes == least


@pytest.mark.shared
def test_known_models_reach_their_known_peaks(shared: Path) -> None:
    folder = shared / "models" / "onnx"
    pitch = load(folder / "basic_pitch_nmp.onnx", Bindings.parse(["unk__749=1"])).graph
    assert make_plan(pitch).summary.arena_bytes == 4_843_520
    assert make_plan(pitch, PlanOptions(order="best")).summary.arena_bytes == 4_177_536
    resnet = load(folder / "light_resnet50.onnx").graph
    summary = make_plan(resnet, PlanOptions(order="best")).summary
    assert (summary.optimal, summary.order_optimal) == (True, True)


def test_lanes_have_an_order_of_their_own() -> None:
    with pytest.raises(UsageError, match="order"):
        PlanOptions(order="best", lanes=2)


def least_of_all_plans(graph: Graph, options: PlanOptions) -> int:
    """The smallest arena over all orders and all placements, values never sharing bytes."""
    best = None
    for order in topological_orders(graph):
        ops = tuple(graph.ops[at] for at in order)
        context = planning_context(replace(graph, ops=ops), options)
        height = optimum(context.timeline(NOTHING).problem(options.align or 1))
        best = height if best is None else min(best, height)
    return best or 0


@pytest.mark.req("R54")
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=8))
def test_the_best_plan_against_all_orders_and_all_placements(graph: Graph) -> None:
    assume(len(graph.ops) <= 8 and len(topological_orders(graph)) <= 24)
    options = PlanOptions(align=1, inplace=False, views=False, overlap=False, order="best")
    assume(len(make_plan(graph, options).plan.buffers) <= 6)
    summary = make_plan(graph, options).summary
    least = least_of_all_plans(graph, replace(options, order="file"))
    assert summary.any_order_bound_bytes <= least <= summary.arena_bytes
    if summary.order_optimal:
        assert summary.arena_bytes == least
