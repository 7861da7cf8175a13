"""Order, sharing and offsets together: never worse, and a proof is a proof."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from peakfold.errors import UsageError
from peakfold.frontends import Bindings, load
from peakfold.ir import Graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.verify import verify_plan
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
