"""Plans for several lanes: the lecture's examples, the judges, and brute force over runs."""

from __future__ import annotations

from itertools import permutations
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peakfold.analysis import Index
from peakfold.analysis.graph.precedence import Precedence, Use, conflicts, graph_needs, nearly_over
from peakfold.ir import Graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.packing import Packing, Problem
from peakfold.packing import pack as real_pack
from peakfold.planning import Plan, PlanOptions, make_plan
from peakfold.planning.lanes.schedule import assign_lanes, byte_costs, critical_path, path_colours
from peakfold.planning.lanes.tradeoff import implied_edges, trade_offs
from peakfold.planning.planner import planning_context
from tests.strategies import graphs

from .executor import ArenaRun, ordinary_run
from .handmade import topological_orders
from .test_examples import EX6
from .test_properties import feeds_for, mutations, passes

EX7 = {
    "T": (),
    "L1": ("T",),
    "L2": ("L1",),
    "L3": ("L2",),
    "R1": ("T",),
    "R2": ("R1",),
    "M": ("L3", "R2"),
    "BL": ("M",),
    "BR": ("M",),
    "X": ("BL", "BR"),
}


@pytest.mark.req("EX7", "R39")
def test_ex7_path_colouring() -> None:
    names = list(EX7)
    needs = [[names.index(before) for before in EX7[name]] for name in names]
    colours = dict(zip(names, path_colours(needs, range(10), 2), strict=True))
    first = {name for name, colour in colours.items() if colour == 0}
    second = {name for name, colour in colours.items() if colour == 1}
    common = {"T", "L1", "L2", "L3", "M", "X"}
    # The two equal branches at the end may swap.
    assert (first - common, second) in (
        ({"BL"}, {"R1", "R2", "BR"}),
        ({"BR"}, {"R1", "R2", "BL"}),
    )
    assert first >= common


@pytest.mark.req("EX6", "R39", "R49")
def test_ex6_by_nnvm_colours_needs_four_buffers_and_is_safe_in_16_of_20_orders() -> None:
    result = make_plan(EX6, PlanOptions(align=1, mode="both", strategy="path-coloring"))
    objects = [b.object for b in sorted(result.plan.buffers, key=lambda b: b.tensors[0].tensor)]
    assert objects == [0, 1, 2, 1, 3, 0, 3, 0]
    safe = sum(runs_right_in(EX6, result.plan, order) for order in topological_orders(EX6))
    assert safe == 16


@pytest.mark.req("EX6", "R36", "R37", "R38", "R49")
def test_ex6_three_serial_five_free() -> None:
    arena = {
        lanes: make_plan(EX6, PlanOptions(align=1, lanes=lanes)).summary.arena_bytes
        for lanes in (1, 0)
    }
    assert arena == {1: 3, 0: 5}
    free = make_plan(EX6, PlanOptions(align=1, lanes=0)).plan
    assert free.lanes == "free"
    assert all(runs_right_in(EX6, free, order) for order in topological_orders(EX6))


def runs_right_in(graph: Graph, plan: Plan, order: tuple[int, ...]) -> bool:
    """Whether the plan gives right results when its ops run in this order."""
    feeds = feeds_for(graph)
    expect = ordinary_run(graph, feeds)
    got = ArenaRun(graph, msgspec.structs.replace(plan, order=list(order)), feeds).run()
    return all((got[name] == expect[name]).all() for name in graph.outputs)


def allowed(graph: Graph, plan: Plan, order: tuple[int, ...]) -> bool:
    """Whether lanes and added edges allow an order."""
    step = {op: at for at, op in enumerate(order)}
    if any(step[before] > step[after] for before, after in plan.added):
        return False
    if not plan.lane:
        return True
    lanes = {lane: [op for op in plan.order if plan.lane[op] == lane] for lane in set(plan.lane)}
    return all(sorted(ops, key=lambda op: step[op]) == ops for ops in lanes.values())


LANES = st.sampled_from([0, 2, 3])


@pytest.mark.req("R37", "R38", "R49", "R55")
@given(
    graphs(max_ops=6),
    LANES,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["arena", "both"]),
    st.sampled_from(["external", "pinned", "reusable"]),
)
def test_a_lane_plan_is_right_in_every_allowed_run(
    graph: Graph, lanes: int, inplace: bool, views: bool, mode: str, inputs: str
) -> None:
    options = PlanOptions(
        align=1,
        lanes=lanes,
        inplace=inplace,
        views=views,
        mode=mode,
        inputs=inputs,
    )
    plan = make_plan(graph, options).plan
    failed = [check for check in verify_plan(graph, plan) if not check.ok]
    assert not failed
    for order in topological_orders(graph):
        if allowed(graph, plan, order):
            assert runs_right_in(graph, plan, order)


@given(graphs(max_ops=6), st.data())
def test_what_the_judges_accept_is_right_in_every_run_even_when_mutated(
    graph: Graph, data: st.DataObject
) -> None:
    serial = make_plan(graph, PlanOptions(align=1)).plan
    assume(serial.buffers)
    mutant = data.draw(st.one_of(st.just(serial), mutations(serial)))
    claimed = msgspec.structs.replace(mutant, lanes="free")
    if passes(graph, claimed):
        for order in topological_orders(graph):
            assert runs_right_in(graph, claimed, order)


def drawn_uses(graph: Graph, data: st.DataObject) -> list[Use]:
    uses = []
    for _ in range(data.draw(st.integers(0, 6))):
        first = data.draw(st.integers(-1, len(graph.ops) - 1))
        more = data.draw(st.sets(st.integers(max(first, 0), len(graph.ops) - 1), max_size=3))
        touches = more | ({first} if first >= 0 else set())
        uses.append(Use(first, tuple(sorted(touches)), data.draw(st.booleans())))
    return uses


@given(graphs(max_ops=10), st.data())
def test_conflicts_agree_with_their_definition(graph: Graph, data: st.DataObject) -> None:
    assume(graph.ops)
    order = Precedence.of(graph_needs(Index.of(graph)), range(len(graph.ops)))
    uses = drawn_uses(graph, data)

    def over(a: Use, b: Use) -> bool:
        return (
            not a.kept
            and b.first >= 0
            and bool(a.touches)
            and all(order.precedes(op, b.first) for op in a.touches)
        )

    expect = [
        (i, j)
        for i in range(len(uses))
        for j in range(i + 1, len(uses))
        if not over(uses[i], uses[j]) and not over(uses[j], uses[i])
    ]
    assert [tuple(pair) for pair in conflicts(order, uses).tolist()] == expect


@pytest.mark.parametrize("block", [3, 8192])
@given(graphs(max_ops=10), st.data())
def test_edges_that_alone_free_a_conflict_agree_with_their_definition(
    block: int, graph: Graph, data: st.DataObject
) -> None:
    assume(graph.ops)
    order = Precedence.of(graph_needs(Index.of(graph)), range(len(graph.ops)))
    uses = drawn_uses(graph, data)
    expect = []
    for (a, one), (b, two) in permutations(enumerate(uses), 2):
        if not one.kept and two.first >= 0:
            missing = [op for op in one.touches if not order.precedes(op, two.first)]
            if len(missing) == 1 and missing[0] < two.first:
                expect.append((a, missing[0], b))
                assert (min(a, b), max(a, b)) in set(map(tuple, conflicts(order, uses).tolist()))
    with patch("peakfold.analysis.graph.precedence._BLOCK", block):
        found = list(nearly_over(order, uses))
    assert sorted((a, op, b) for a, op, others in found for b in others.tolist()) == sorted(expect)


@pytest.mark.req("R37")
@given(graphs(), st.integers(1, 4))
def test_lanes_are_a_schedule(graph: Graph, lanes: int) -> None:
    index = Index.of(graph)
    needs, cost = graph_needs(index), byte_costs(index)
    order = tuple(range(len(graph.ops)))
    plan = assign_lanes(needs, order, cost, lanes)
    assert sorted(plan.order) == list(order)
    assert all(0 <= lane < lanes for lane in plan.lane)
    assert max(critical_path(needs, order, cost), -(-sum(cost) // lanes)) <= plan.makespan
    assert plan.makespan <= sum(cost)
    assert Precedence.of(needs, plan.order).order == plan.order


def test_a_serial_plan_that_claims_to_be_free_is_refused() -> None:
    serial = make_plan(EX6, PlanOptions(align=1)).plan
    claimed = msgspec.structs.replace(serial, lanes="free")
    (failed,) = [check for check in verify_plan(EX6, claimed) if not check.ok]
    assert failed.name == "lanes"
    assert "needed at once" in failed.detail


@pytest.mark.req("EX6", "R36", "R38")
def test_ex6_trade_off_three_serial_four_with_an_edge_five_free() -> None:
    rows = trade_offs(planning_context(EX6, PlanOptions(align=1)), [1, 2, 0], added_edges=3)
    assert [(row.lanes, row.arena_bytes, len(row.edges)) for row in rows] == [
        (1, 3, 1),
        (2, 5, 0),
        ("free", 5, 0),
        ("free", 4, 1),
    ]
    assert all(row.optimal for row in rows[:3])
    plan = make_plan(EX6, PlanOptions(align=1, lanes=0, added_edges=1)).plan
    assert (plan.arena_bytes, len(plan.added)) == (4, 1)
    assert passes(EX6, plan)
    for order in topological_orders(EX6):
        if allowed(EX6, plan, order):
            assert runs_right_in(EX6, plan, order)
    assert not passes(EX6, msgspec.structs.replace(plan, added=[]))


@pytest.mark.req("R36")
@given(graphs(max_ops=6))
def test_the_edges_a_serial_plan_implies_are_all_it_needs(graph: Graph) -> None:
    result = make_plan(graph, PlanOptions(align=1))
    edges = implied_edges(result.context, result.layout)
    for order in topological_orders(graph):
        step = {op: at for at, op in enumerate(order)}
        if all(step[before] < step[after] for before, after in edges):
            assert runs_right_in(graph, result.plan, order)


@pytest.mark.req("R36")
def test_edges_of_in_place_results_and_of_parts_are_named() -> None:
    inplace = parse_graph("""peakfold-graph 1
input x: uint8[4]
a: uint8[4] = opaque(x)
b: uint8[4] = opaque(a)
c: uint8[4] = relu(a)
d: uint8[4] = opaque(c)
y: uint8[4] = add(b, d)
output y""")
    (row,) = trade_offs(planning_context(inplace, PlanOptions(align=1)), [1])
    assert ("b", "c") in row.edges
    rows = trade_offs(planning_context(CAT, PlanOptions(align=1)), [1])
    assert ("b", "p2") in rows[0].edges


CAT = parse_graph("""peakfold-graph 1
input x: int8[4]
a: int8[4] = opaque(x)
b: int8[1] = opaque(a)
p1: int8[2] = opaque(b)
p2: int8[2] = opaque(x)
c: int8[4] = concat(p1, p2, axis=0)
output c""")


def test_parts_with_makers_of_their_own_are_refused_in_lanes() -> None:
    serial = make_plan(CAT, PlanOptions(align=1)).plan
    assert any(alias.how == "concat" for alias in serial.aliases)
    claimed = msgspec.structs.replace(serial, lanes="free")
    assert [c.name for c in verify_plan(CAT, claimed) if not c.ok] == ["lanes"]
    assert passes(CAT, make_plan(CAT, PlanOptions(align=1, lanes=0)).plan)


def test_memory_grows_with_freedom() -> None:
    arena = [
        make_plan(EX6, PlanOptions(align=1, lanes=lanes)).summary.arena_bytes for lanes in (1, 2, 0)
    ]
    assert arena == sorted(arena)


def test_the_search_for_lanes_takes_the_time_limit_and_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def pack(problem: Problem, **effort: object) -> Packing:
        asked.append(effort)
        return real_pack(problem)

    monkeypatch.setattr("peakfold.planning.lanes.packing.pack", pack)
    make_plan(EX6, PlanOptions(align=1, lanes=0, time_limit=1.5, seed=7))
    assert asked == [{"time_limit": 1.5, "seed": 7}]
