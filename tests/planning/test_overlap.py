"""Results over part of an operand: chosen where they help, judged to the byte, bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.analysis import op_bound
from peakfold.ir import Graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import Plan, PlanOptions, make_plan
from peakfold.planning.aliasing.overlaps import overlap_choices, with_all_overlaps
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.order import best_order
from peakfold.planning.order.live_bytes import peak_of
from peakfold.planning.order.strip_model import build_model
from peakfold.planning.planner import planning_context
from tests.strategies import graphs

from .handmade import topological_orders
from .test_properties import OPTIONS, runs_right

HEAD = "peakfold-graph 1\n"
REUSABLE = PlanOptions(align=1, inputs="reusable")


def failed(graph: Graph, plan: Plan) -> list[str]:
    return [check.detail for check in verify_plan(graph, plan) if not check.ok]


@pytest.mark.parametrize(
    ("sizes", "distance", "align", "arena"),
    [
        ((100, 60), 10, 1, 110),  # narrower: the input reaches out by the distance
        ((60, 100), 45, 1, 105),  # wider: the input lies in the output but for its end
        ((60, 100), 40, 1, 100),  # all of it does
        ((64, 64), 5, 16, 80),  # the distance is rounded up to the alignment
        ((64, 64), 64, 16, 128),  # too far to be of use
        ((100, 60), 0, 1, 100),
    ],
)
def test_two_tensors_take_what_their_distance_leaves(
    sizes: tuple[int, int], distance: int, align: int, arena: int
) -> None:
    graph = parse_graph(
        f"{HEAD}input x: int8[{sizes[0]}]\n"
        f'y: int8[{sizes[1]}] = opaque(x) overlap=["0-{distance}"]\noutput y'
    )
    result = make_plan(graph, replace(REUSABLE, align=align))
    summary = result.summary
    assert (summary.arena_bytes, summary.any_order_bound_bytes) == (arena, arena)
    assert (summary.optimal, summary.order_optimal) == (True, True)
    assert summary.arena_apart_bytes == sum(-(-size // align) * align for size in sizes)
    assert summary.overlaps == (arena < summary.arena_apart_bytes)
    assert failed(graph, result.plan) == []
    assert runs_right_bytes(graph, result.plan)


def runs_right_bytes(graph: Graph, plan: Plan) -> bool:
    from peakfold.runtimes.reference.ordinary import ordinary_run
    from peakfold.runtimes.reference.run import judge
    from peakfold.runtimes.reference.standin import byte_program

    program = byte_program(graph, plan.target)
    return judge(program, plan, ordinary_run(program)).ok


def moved(plan: Plan, tensor: str, by: int) -> Plan:
    """The plan of one buffer with a tensor moved inside it, everything alive all the time."""
    (buffer,) = plan.buffers
    places = [
        msgspec.structs.replace(place, offset=place.offset + (by if place.tensor == tensor else 0))
        for place in buffer.tensors
    ]
    size = max(place.offset + place.nbytes for place in places)
    live = [msgspec.structs.replace(buffer.live[0], start=0, stop=1, lower=0, upper=size)]
    buffer = msgspec.structs.replace(buffer, tensors=places, size=size, live=live)
    bound = msgspec.structs.replace(plan.bound, offsets=0, any_order=0)
    proof = msgspec.structs.replace(plan.proof, packing=False, order=False)
    return msgspec.structs.replace(
        plan, buffers=[buffer], arena_bytes=size, bound=bound, proof=proof
    )


@pytest.mark.req("TFL7")
def test_the_judges_accept_the_distance_and_reject_one_byte_less() -> None:
    graph = parse_graph(
        f'{HEAD}input x: int8[100]\ny: int8[60] = opaque(x) overlap=["0-10"]\noutput y'
    )
    plan = make_plan(graph, REUSABLE).plan
    assert [(a.how, a.output, a.input) for a in plan.aliases] == [("overlap", "y", "x")]
    for by in (0, 1, 20):
        assert failed(graph, moved(plan, "x", by)) == []
        assert runs_right_bytes(graph, moved(plan, "x", by))
    (problem,) = failed(graph, moved(plan, "x", -1))
    assert "9 bytes below it; its kernel needs 10" in problem
    assert not runs_right_bytes(graph, moved(plan, "x", -1))
    forged = msgspec.structs.replace(plan, aliases=[])
    assert "over its operand 'x'" in failed(graph, forged)[0]
    how = [msgspec.structs.replace(plan.aliases[0], how="inplace")]
    assert "over its operand 'x'" in failed(graph, msgspec.structs.replace(plan, aliases=how))[0]
    apart = make_plan(graph, replace(REUSABLE, overlap=False)).plan
    said = msgspec.structs.replace(apart, aliases=plan.aliases)
    assert "does not" in failed(graph, said)[0]


TRAPS: dict[str, Callable[[], tuple[str, PlanOptions]]] = {
    "the operand is read later": lambda: (
        'input x: int8[9]\ny: int8[9] = opaque(x) overlap=["0-2"]\n'
        "z: int8[9] = opaque(x, y)\noutput z", REUSABLE),
    "the operand is also read at a place without a distance": lambda: (
        'input x: int8[9]\ny: int8[9] = opaque(x, x) overlap=["0-2"]\noutput y', REUSABLE),
    "the operand is a result of the graph": lambda: (
        'input w: int8[1]\nx: int8[9] = opaque(w)\ny: int8[9] = opaque(x) overlap=["0-2"]\n'
        "output x, y", REUSABLE),
    "the operand belongs to the caller": lambda: (
        'input x: int8[9]\ny: int8[9] = opaque(x) overlap=["0-2"]\noutput y',
        replace(REUSABLE, inputs="external")),
    "the operand is pinned": lambda: (
        'input x: int8[9]\ny: int8[9] = opaque(x) overlap=["0-2"]\noutput y',
        replace(REUSABLE, inputs="pinned")),
    "the operand is a parameter": lambda: (
        'input x: int8[1]\nparameter w: int8[9]\ny: int8[9] = opaque(w, x) overlap=["0-2"]\n'
        "output y", REUSABLE),
    "a slice of the operand is read later": lambda: (
        'input x: int8[9,1]\ns: int8[2,1] = slice(x, starts=[0], ends=[2], axes=[0])\n'
        'y: int8[9] = opaque(x) overlap=["0-2"]\nz: int8[9] = opaque(s, y)\noutput z', REUSABLE),
    "another operand lies in its bytes": lambda: (
        "input x: int8[9,1]\ns: int8[9,1] = identity(x)\n"
        'y: int8[9] = opaque(x, s) overlap=["0-2"]\noutput y', REUSABLE),
    "it is switched off": lambda: (
        'input x: int8[9]\ny: int8[9] = opaque(x) overlap=["0-2"]\noutput y',
        replace(REUSABLE, overlap=False)),
    "ops run in lanes": lambda: (
        'input x: int8[9]\ny: int8[9] = opaque(x) overlap=["0-2"]\noutput y',
        replace(REUSABLE, lanes=0)),
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_no_overlap_where(trap: str) -> None:
    text, options = TRAPS[trap]()
    graph = parse_graph(HEAD + text)
    result = make_plan(graph, options)
    assert not any(alias.how == "overlap" for alias in result.plan.aliases)
    assert result.summary.overlaps == 0
    assert failed(graph, result.plan) == []
    assert runs_right_bytes(graph, result.plan)


def test_the_registry_alone_allows_no_overlap_on_a_target_that_names_no_kind() -> None:
    graph = parse_graph(f"{HEAD}input x: float32[64]\ny: int8[64] = cast(x, to=3)\noutput y")
    for target in ("generic", "mxnet"):
        options = PlanOptions(target=target, inputs="reusable")
        assert make_plan(graph, options).summary.overlaps == 0


def test_overlaps_are_taken_at_the_peak_only() -> None:
    """Each op could overlap; only the two whose steps are the peak do, one after the other."""
    graph = parse_graph(
        f"{HEAD}input x: int8[16]\n"
        'a: int8[160] = opaque(x) overlap=["0-144"]\nb: int8[160] = opaque(a) overlap=["0-16"]\n'
        'c: int8[16] = opaque(b) overlap=["0-0"]\nd: int8[8] = opaque(c) overlap=["0-0"]\n'
        "output d"
    )
    result = make_plan(graph, replace(REUSABLE, align=16))
    assert [alias.output for alias in result.plan.aliases] == ["b"]
    assert result.summary.arena_bytes == 176
    assert result.summary.arena_apart_bytes == 320
    assert failed(graph, result.plan) == []


def test_a_result_reaches_below_all_that_was_in_a_storage() -> None:
    """Three in a row: each lies lower than the one before, and a view moves along."""
    graph = parse_graph(
        f"{HEAD}input x: int8[40]\n"
        'a: int8[40] = opaque(x) overlap=["0-8"]\nv: int8[5,8] = reshape(a, shape=[5, 8])\n'
        'b: int8[40] = opaque(v) overlap=["0-8"]\nc: int8[40] = opaque(b) overlap=["0-8"]\n'
        "output c"
    )
    result = make_plan(graph, replace(REUSABLE, align=8))
    places = {p.tensor: p.offset for b in result.plan.buffers for p in b.tensors}
    assert places == {"c": 0, "b": 8, "a": 16, "v": 16, "x": 24}
    assert result.summary.arena_bytes == 64
    # A view ends what is known of a chain, so x above a does not count: v, b and c do.
    assert result.summary.any_order_bound_bytes == 56
    assert not result.summary.order_optimal
    assert failed(graph, result.plan) == []
    assert runs_right_bytes(graph, result.plan)


@pytest.mark.req("TFL7")
@settings(max_examples=60)
@given(graphs(), OPTIONS)
def test_overlaps_never_cost_anything(graph: Graph, options: PlanOptions) -> None:
    apart = make_plan(graph, replace(options, overlap=False)).summary
    summary = make_plan(graph, replace(options, overlap=True)).summary
    assert summary.arena_bytes <= summary.arena_apart_bytes == apart.arena_bytes
    if options.mode == "arena":
        assert summary.plan_bytes <= apart.plan_bytes


@pytest.mark.req("TFL7", "R54")
@settings(max_examples=40)
@given(graphs(max_ops=6, overlapping=True), OPTIONS, st.data())
def test_bounds_hold_for_every_order_and_every_choice_of_overlaps(
    graph: Graph, options: PlanOptions, data: st.DataObject
) -> None:
    context = planning_context(graph, replace(options, order="file", overlap=True, lanes=1))
    ops = [op for op, fact in enumerate(context.facts) if fact.overlap]
    assert ops
    full = with_all_overlaps(context, context.full_aliasing)
    model = build_model(context, full)
    found = best_order(context, time_limit=5.0, seed=0, aliasing=full)
    chosen = frozenset(data.draw(st.lists(st.sampled_from(ops), unique=True)))
    for order in topological_orders(context.graph)[:30]:
        other = replace(context, order=order)
        for overlaps in (chosen, frozenset(ops)):
            peak = other.timeline(replace(full, overlaps=overlaps)).peak
            assert peak >= found.bound
            if model.sound:
                assert peak >= peak_of(model, order)
            assert peak >= op_bound(
                context.index, replace(context.policies, align=1), context.facts
            )


@given(graphs(), OPTIONS)
def test_each_choice_lowers_the_peak_of_the_one_before(graph: Graph, options: PlanOptions) -> None:
    context = planning_context(graph, replace(options, order="file", overlap=True, lanes=1))
    start = Aliasing(inplace=options.inplace, views=options.views)
    peaks = [context.timeline(start).peak]
    chosen: frozenset[int] = frozenset()
    for aliasing, timeline in overlap_choices(context, start):
        assert aliasing.overlaps > chosen
        assert context.timeline(aliasing).peak == timeline.peak < peaks[-1]
        chosen, peaks = aliasing.overlaps, [*peaks, timeline.peak]


def test_random_graphs_do_overlap() -> None:
    """The laws above are not empty."""
    count = 0

    @settings(max_examples=100, database=None, derandomize=True)
    @given(graphs())
    def look(graph: Graph) -> None:
        nonlocal count
        plan = make_plan(graph, replace(REUSABLE, time_limit=0.1)).plan
        count += any(alias.how == "overlap" for alias in plan.aliases)
        assert runs_right(graph, plan)

    look()
    assert count


def test_bounds_of_any_sharing_do_not_depend_on_the_switch() -> None:
    graph = parse_graph(
        f'{HEAD}input x: int8[100]\ny: int8[60] = opaque(x) overlap=["0-10"]\noutput y'
    )
    summary = make_plan(graph, replace(REUSABLE, overlap=False)).summary
    assert (summary.arena_bytes, summary.any_order_bound_bytes) == (160, 110)
    assert (summary.optimal, summary.order_optimal) == (True, False)


def chain(sizes: list[int], distances: list[int]) -> Graph:
    lines = [f"input t0: int8[{sizes[0]}]"]
    for at, (size, distance) in enumerate(zip(sizes[1:], distances, strict=True)):
        stated = f' overlap=["0-{distance}"]' if distance >= 0 else ""
        lines.append(f"t{at + 1}: int8[{size}] = opaque(t{at}){stated}")
    return parse_graph(HEAD + "\n".join([*lines, f"output t{len(distances)}"]))


def least_arena(sizes: list[int], distances: list[int]) -> int:
    """The smallest arena of a chain, all places of all tensors tried, any safe distance."""
    total = max(sizes)
    while True:
        places = set(range(total - sizes[0] + 1))
        for size, before, distance in zip(sizes[1:], sizes[:-1], distances, strict=True):
            places = {
                at
                for at in range(total - size + 1)
                if any(
                    at + size <= host
                    or host + before <= at
                    or (distance >= 0 and host - at >= distance)
                    for host in places
                )
            }
        if places:
            return total
        total += 1


@pytest.mark.req("TFL7", "R54")
@settings(max_examples=150)
@given(st.data(), st.integers(1, 6))
def test_chains_drift_and_the_bound_knows(data: st.DataObject, ops: int) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=ops + 1, max_size=ops + 1))
    distances = data.draw(st.lists(st.integers(-1, 6), min_size=ops, max_size=ops))
    graph = chain(sizes, distances)
    summary = make_plan(graph, REUSABLE).summary
    least = least_arena(sizes, distances)
    assert summary.any_order_bound_bytes <= least <= summary.arena_bytes
    if summary.order_optimal:
        assert summary.arena_bytes == least


def test_a_long_chain_is_proven_minimal() -> None:
    """Eight ops of which none fits apart: the distances add up, and no plan is smaller."""
    graph = chain([500] * 9, [16, 30] * 4)
    summary = make_plan(graph, REUSABLE).summary
    assert summary.arena_bytes == summary.any_order_bound_bytes == 500 + 4 * (16 + 30)
    assert summary.order_optimal
    assert least_arena([500] * 9, [16, 30] * 4) == summary.arena_bytes
