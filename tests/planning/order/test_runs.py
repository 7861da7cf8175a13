"""Closed runs by themselves: keeping them whole never costs anything, in any graph."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from peakfold.ir import Graph, parse_graph
from peakfold.planning import PlanOptions
from peakfold.planning.order.fragment import Fragment
from peakfold.planning.order.order_state import OrderState
from peakfold.planning.order.uninterrupted_chains import closed_runs
from tests.planning.handmade import topological_orders

from .tools import context_of, model_of


def strands(seed: int) -> Graph:
    """Chains of unequal bytes and scratch that start from shared or own inputs."""
    rng = random.Random(seed)
    inputs = [f"x{n}" for n in range(rng.randint(1, 2))]
    rows = {name: rng.randint(1, 12) for name in inputs}
    lines = ["peakfold-graph 1", *(f"input {name}: uint8[{rows[name]}]" for name in inputs)]
    ends, made = [], 0
    for length in rng.choice([(3, 3), (2, 2, 2), (4, 2), (3, 2, 1), (2, 3), (4, 3)]):
        last = rng.choice(inputs)
        for _ in range(length):
            name = f"t{made}"
            made += 1
            same = rng.random() < 0.3
            rows[name] = rows[last] if same else rng.randint(1, 12)
            kind = "relu" if same else "opaque"
            more = f" workspace={rng.randint(1, 12)}" if not same and rng.random() < 0.4 else ""
            lines.append(f"{name}: uint8[{rows[name]}] = {kind}({last}){more}")
            last = name
        ends.append(last)
    return parse_graph("\n".join([*lines, f"output {', '.join(ends)}"]))


def fragment_of(graph: Graph) -> Fragment:
    context = context_of(graph, PlanOptions(align=1, inputs="reusable"))
    model = model_of(context)
    return OrderState(model, context.order).fragment(0, model.ops)


@settings(max_examples=250)
@given(st.integers(0, 10**9))
def test_some_best_order_keeps_every_closed_run_whole(seed: int) -> None:
    graph = strands(seed)
    fragment = fragment_of(graph)
    runs = [run for run in closed_runs(fragment) if len(run) > 1]

    def whole(order: tuple[int, ...]) -> bool:
        return all(order[order.index(run[0]) :][: len(run)] == run for run in runs)

    peaks = {order: fragment.peak(order) for order in topological_orders(graph)}
    assert min(peak for order, peak in peaks.items() if whole(order)) == min(peaks.values())


def test_a_start_that_frees_memory_is_no_part_of_a_run() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: uint8[10]\ninput y: uint8[10]\n"
        "a: uint8[1] = opaque(x)\nb: uint8[8] = opaque(a) workspace=15\n"
        "c: uint8[1] = opaque(y)\nd: uint8[8] = opaque(c) workspace=15\noutput b, d"
    )
    assert closed_runs(fragment_of(graph)) == ((0,), (1,), (2,), (3,))


def test_a_hill_with_a_valley_behind_it_is_one_run() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: uint8[2]\na: uint8[9] = opaque(x)\nb: uint8[9] = opaque(a)\n"
        "c: uint8[1] = opaque(b)\nd: uint8[5] = opaque(x)\noutput c, d"
    )
    assert closed_runs(fragment_of(graph))[0] == (0, 1, 2)


def test_a_start_that_lets_another_op_run_in_place_is_no_part_of_a_run() -> None:
    """relu may lie over z only once a, which reads a slice of it, has run."""
    lines = (
        "peakfold-graph 1\ninput x: uint8[1]\nz: uint8[20] = opaque(x)\n"
        "s: uint8[5] = slice(z, starts=[0], ends=[5], axes=[0])\na: uint8[{a}] = opaque(s)\n"
        "b: uint8[9] = opaque(a) workspace=40\nc: uint8[1] = opaque(b)\n"
        "r: uint8[20] = relu(z)\noutput c, r"
    )
    # Holding a while relu takes 20 bytes of its own is worse than to hold it before.
    assert closed_runs(fragment_of(parse_graph(lines.format(a=10))))[2] == (2,)
    assert closed_runs(fragment_of(parse_graph(lines.format(a=25))))[2] == (2, 3, 4)
