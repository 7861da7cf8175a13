"""Many readers, parts and lives: quick answers equal the plain ones, and no clock costs a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.analysis.graph.precedence import Precedence, without_implied
from peakfold.interval import Interval
from peakfold.ir import Graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.packing.deadline import Deadline
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.aliasing.live_ranges import strips
from peakfold.planning.aliasing.ranges import Ranges
from peakfold.planning.context import PlanningContext
from peakfold.planning.fit.levers import fit
from peakfold.planning.fit.total import Budgets
from peakfold.planning.lanes.tradeoff import trade_offs, with_chosen_edges
from peakfold.planning.modes import Layout, make_layout
from peakfold.planning.order.budget import Effort
from peakfold.planning.order.ideals import search_ideals
from peakfold.planning.order.order_state import OrderState
from peakfold.planning.order.strip_model import build_model
from peakfold.planning.planner import planning_context

from .test_examples import EX6

WINDOWS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda t: Interval(t[0], t[0] + t[1])),
    max_size=12,
)


@given(WINDOWS, st.sets(st.integers(0, 11)), st.integers(0, 40), st.integers(0, 9))
def test_ranges_find_what_overlaps(
    windows: list[Interval], gone: set[int], start: int, length: int
) -> None:
    held = Ranges()
    for at, window in enumerate(windows):
        held.add(*window, at)
    for at in gone & set(range(len(windows))):
        held.discard(*windows[at], at)
    asked = Interval(start, start + length)
    expect = [at for at, w in enumerate(windows) if at not in gone and w.overlaps(asked)]
    assert sorted(held.overlapping(*asked)) == expect


@given(WINDOWS)
def test_strips_hold_what_contains_them(windows: list[Interval]) -> None:
    for strip, inside in strips(windows):
        assert sorted(inside) == [at for at, w in enumerate(windows) if w.contains(strip)]


EDGES = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] < e[1]))


@given(EDGES, EDGES)
@settings(max_examples=60)
def test_an_edge_is_implied_when_the_others_imply_it(
    base: set[tuple[int, int]], more: set[tuple[int, int]]
) -> None:
    order = Precedence.of([[a for a, b in base if b == op] for op in range(8)], range(8))
    left = sorted(edge for edge in more if not order.precedes(*edge))
    found = without_implied(order, left)
    for edge in list(left):
        others = [other for other in left if other != edge]
        left = others if order.with_edges(others).precedes(*edge) else left
    assert found == left


def fan(n: int) -> str:
    body = "".join(f"c{i}: float32[64] = relu(a)\n" for i in range(n))
    outputs = ", ".join(f"c{i}" for i in range(n))
    return f"input x: float32[64]\na: float32[64] = relu(x)\n{body}output {outputs}"


def cat(n: int) -> str:
    body = "".join(f"c{i}: float32[1,64] = relu(x)\n" for i in range(n))
    parts = ", ".join(f"c{i}" for i in range(n))
    return f"input x: float32[1,64]\n{body}y: float32[{n},64] = concat({parts}, axis=0)\noutput y"


def cuts(n: int) -> str:
    parts = ", ".join(f"c{i}: float32[1,64]" for i in range(n))
    body = "".join(f"d{i}: float32[1,64] = relu(c{i})\n" for i in range(n))
    outputs = ", ".join(f"d{i}" for i in range(n))
    return (
        f"input x: float32[{n},64]\nq: float32[{n},64] = relu(x)\n{parts} = split(q, axis=0)\n"
        f"{body}output {outputs}"
    )


def lives(n: int) -> str:
    body = "".join(
        f"t{i}: int8[{i * 977 % 4093 + 1}] = opaque(t{i - 1}, t{i * 7919 % i})\n"
        for i in range(1, n)
    )
    return f"input x: int8[64]\nt0: int8[64] = relu(x)\n{body}output t{n - 1}"


FAMILIES = pytest.mark.parametrize("family", [fan, cat, cuts, lives])


@FAMILIES
@pytest.mark.parametrize("lanes", [1, 2, 0])
def test_when_time_is_up_there_is_a_plan_and_it_says_so(
    family: Callable[[int], str], lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = parse_graph("peakfold-graph 1\n" + family(12))
    monkeypatch.setattr("peakfold.packing.solve.GRACE", -1.0)
    monkeypatch.setattr("peakfold.planning.lanes.packing.GRACE", -1.0)
    monkeypatch.setattr("peakfold.planning.modes.layout_clock", lambda context: Deadline(0.0))
    for mode in ("share", "both", "arena"):
        result = make_plan(graph, PlanOptions(mode=mode, lanes=lanes, time_limit=0))  # type: ignore[arg-type]
        assert all(check.ok for check in verify_plan(graph, result.plan)), mode
        told = "time limit" if mode in result.summary.cut_short else "complete"
        assert result.plan.search == told
        if family is lives and mode == "arena":  # the others meet their bounds all the same
            assert told == "time limit"


def test_rows_of_lanes_and_levers_of_fit_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph("peakfold-graph 1\n" + lives(40))
    monkeypatch.setattr("peakfold.packing.solve.GRACE", -1.0)
    options = PlanOptions(time_limit=0)
    assert not any(row.complete for row in trade_offs(planning_context(graph, options), [1, 2, 0]))
    answer = fit(graph, Budgets(arena=64), options)
    assert not answer.complete
    assert not all(lever.complete for lever in answer.levers)


def test_when_time_is_up_no_more_edges_are_sought_and_the_plan_says_so() -> None:
    context = planning_context(EX6, PlanOptions(lanes=0, align=1))
    most = with_chosen_edges(context, 1)
    assert len(most.execution.added) == 1
    assert make_layout(most, "arena").complete
    none = with_chosen_edges(context, 1, Deadline(0.0))
    assert not none.execution.added
    assert not make_layout(none, "arena").complete


def test_an_edge_found_before_time_is_up_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Deadline.never()
    totals: list[int] = []

    def layout(context: PlanningContext, mode: Literal["arena"]) -> Layout:
        made = make_layout(context, mode)
        totals.append(made.total)
        if made.total < totals[0]:
            clock.stop = 0.0
        return made

    monkeypatch.setattr("peakfold.planning.lanes.tradeoff.make_layout", layout)
    monkeypatch.setattr("peakfold.planning.lanes.tradeoff._edges_clock", lambda seconds: clock)
    result = make_plan(EX6, PlanOptions(lanes=0, align=1, added_edges=3))
    assert totals[-1] < totals[0]
    assert len(result.context.execution.added) == 1
    assert result.plan.search == "time limit"
    assert all(check.ok for check in verify_plan(EX6, result.plan))


def test_rows_of_added_edges_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    context = planning_context(EX6, PlanOptions())
    assert all(row.complete for row in trade_offs(context, [0], 1))
    monkeypatch.setattr(
        "peakfold.planning.lanes.tradeoff._edges_clock", lambda seconds: Deadline(0.0)
    )
    assert [row.complete for row in trade_offs(context, [1, 0], 1)] == [True, False]


@pytest.mark.parametrize("steps", [0, 3, 60, 700])
def test_an_exact_search_that_is_cut_short_bounds_all_orders(steps: int) -> None:
    context = planning_context(parse_graph("peakfold-graph 1\n" + lives(9)), PlanOptions(align=1))
    model = build_model(context, context.full_aliasing)
    line = OrderState(model, list(context.order))
    fragment = line.fragment(0, model.ops)
    full = Effort(60.0)
    lowest = search_ideals(fragment, 0, 1 << 60, full).peak
    few = Effort(60.0)
    with few.at_most(steps):
        found = search_ideals(fragment, 0, 1 << 60, few)
    assert found.bound <= lowest
    assert few.used <= max(steps, 1) + model.ops
    assert found.order is None or fragment.peak(found.order) == lowest


@pytest.mark.parametrize("most", [0, 10**9])
def test_too_many_pairs_share_nothing(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph: Graph = parse_graph("peakfold-graph 1\n" + lives(30))
    monkeypatch.setattr("peakfold.planning.lanes.packing.MOST_PAIRS", most)
    context = planning_context(graph, PlanOptions(lanes=0))
    layout = make_layout(context, "arena")
    apart = sum(buffer.size for buffer in layout.timeline.buffers)
    assert layout.complete is (most > 0)
    assert (layout.total == apart) is (most == 0)
