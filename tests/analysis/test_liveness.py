"""Lifetimes against a brute-force interpreter that frees a value when its last reader is done."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given

from peakfold.analysis import Index, Policies, file_order, make_schedule
from peakfold.ir import Graph, effect_edges, parse_graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.modes import make_layout
from tests.strategies import graphs


def refcount_run(graph: Graph) -> list[int]:
    """Live bytes at each step of one run with reference counting, workspace aside."""
    left = {t.name: 0 for t in graph.tensors}
    for op in graph.ops:
        for name in dict.fromkeys(op.operands):
            left[name] += 1
    for name in graph.outputs:
        left[name] += 1
    alive: set[str] = set()
    history = []
    for op in graph.ops:
        alive.update(op.results)
        scratch = op.stated.workspace if op.stated and op.stated.workspace else 0
        history.append(sum(graph[name].nbytes or 0 for name in alive) + scratch)
        for name in dict.fromkeys(op.operands):
            left[name] -= 1
        alive -= {name for name in alive if left[name] == 0}
    return history


@pytest.mark.req("R21", "R29", "R51")
@given(graphs())
def test_a_plan_without_sharing_inside_storages_is_one_run_of_reference_counting(
    graph: Graph,
) -> None:
    if any(name in graph.inputs for name in graph.outputs):
        return  # the copy of an input is made after the last op, outside this model
    options = PlanOptions(align=1, inplace=False, views=False, fold=False, overlap=False)
    result = make_plan(graph, options)
    live = make_layout(result.context, "arena").timeline.live.tolist()
    assert live == refcount_run(graph)


@given(graphs())
def test_the_index_agrees_with_networkx(graph: Graph) -> None:
    index = Index.of(graph)
    digraph = nx.DiGraph()
    digraph.add_nodes_from(range(len(graph.ops)))
    for at, op in enumerate(graph.ops):
        digraph.add_edges_from(
            (graph.producer[name], at) for name in op.operands if name in graph.producer
        )
    ours = {
        (index.producer[t], user)
        for t in range(len(graph.tensors))
        for user in index.users_of(t)
        if index.producer[t] >= 0
    }
    assert ours == set(digraph.edges)
    assert nx.is_directed_acyclic_graph(digraph)


def test_effects_order_reads_and_writes() -> None:
    graph = parse_graph(
        "peakfold-graph 1\nstate v: uint8[1]\ninput x: uint8[1]\n"
        "a: uint8[1] = opaque(x) reads=[v]\nb: uint8[1] = opaque(x) writes=[v]\n"
        "c: uint8[1] = opaque(x) reads=[v]\nd: uint8[1] = opaque(x) writes=[v] reads=[v]\n"
        "output a, b, c, d"
    )
    # Write after read, read after write, and write after both.
    assert effect_edges(graph) == ((0, 1), (1, 2), (1, 3), (2, 3))
    index = Index.of(graph)
    assert make_schedule(index, file_order(index), Policies()).steps == 4
    for order in ((1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)):
        with pytest.raises(Exception, match="must run after"):
            make_schedule(index, order, Policies())
