"""The bound for plans with zero-copy concatenations, against every order and every choice."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain, combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from peakfold.ir import Graph, parse_graph
from peakfold.planning import PlanOptions
from peakfold.planning.context import PlanningContext
from peakfold.planning.order import best_order, bound_without_copies
from tests.planning.handmade import topological_orders
from tests.strategies import graphs

from . import nets
from .tools import OPTIONS, context_of


def lowest_with_homes(context: PlanningContext) -> int:
    """The lowest peak of live bytes over all orders and all sets of concatenations taken in."""
    concats = [op for op, fact in enumerate(context.facts) if fact.parts]
    choices = chain.from_iterable(combinations(concats, n) for n in range(len(concats) + 1))
    sharings = [
        replace(context.full_aliasing, zero_copy_concats=frozenset(some)) for some in choices
    ]
    return min(
        replace(context, order=order).timeline(sharing).peak
        for order in topological_orders(context.graph)
        for sharing in sharings
    )


def joining(seed: int, size: int) -> Graph:
    """Small graphs full of concatenations, nested ones, in-place ops and repeated parts too."""
    rng = random.Random(seed)
    lines = ["peakfold-graph 1", "input x: uint8[2,4]"]
    rows = {"x": 2}
    for n in range(size):
        names = list(rows)[-4:]
        kind = rng.choice(["concat", "concat", "relu", "opaque"])
        first, other = rng.choice(names), rng.choice(names)
        if kind == "concat":
            rows[f"t{n}"] = rows[first] + rows[other]
            lines.append(f"t{n}: uint8[{rows[f't{n}']},4] = concat({first}, {other}, axis=0)")
        else:
            rows[f"t{n}"] = rows[first] if kind == "relu" else rng.randint(1, 6)
            lines.append(f"t{n}: uint8[{rows[f't{n}']},4] = {kind}({first})")
    read = {word for line in lines for word in line.partition("(")[2].strip(")").split(", ")}
    outputs = [name for name in rows if name not in read]
    return parse_graph("\n".join([*lines, f"output {', '.join(outputs)}"]))


@settings(max_examples=100)
@given(
    st.one_of(graphs(max_ops=6), st.builds(joining, st.integers(0, 10**6), st.integers(2, 6))),
    OPTIONS,
)
# An input that is a part of two concatenations: neither may count on the other.
@example(joining(5944, 4), PlanOptions(inputs="reusable", align=1, inplace=False, views=False))
def test_no_order_with_any_concatenations_taken_in_goes_below(
    graph: Graph, options: PlanOptions
) -> None:
    context = context_of(graph, options)
    assert bound_without_copies(context, time_limit=1.0, seed=0) <= lowest_with_homes(context)


def test_the_bound_is_met_where_taking_in_pays() -> None:
    context = context_of(
        parse_graph(
            "peakfold-graph 1\ninput x: uint8[1,64]\na: uint8[2,64] = opaque(x)\n"
            "b: uint8[3,64] = opaque(x)\nc: uint8[5,64] = concat(a, b, axis=0)\noutput c"
        )
    )
    bound = bound_without_copies(context, time_limit=1.0, seed=0)
    assert bound == lowest_with_homes(context) == 5 * 64
    assert best_order(context, time_limit=1.0, seed=0).bound == 10 * 64


def test_on_networks_it_is_below_the_bound_with_copies() -> None:
    context = context_of(nets.densenet())
    with_copies = best_order(context, time_limit=1.0, seed=0).bound
    assert context.any_order <= bound_without_copies(context, time_limit=1.0, seed=0) <= with_copies
