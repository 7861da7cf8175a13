"""Memory access: fused groups in a runnable order, and their bytes by a second count."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given

from peakfold.analysis.cost.traffic import fusion_groups, moves_of
from peakfold.ir import Graph, parse_graph
from peakfold.ops import REGISTRY
from tests.strategies import graphs

HEAD = "peakfold-graph 1\n"


def groups_of(text: str) -> list[int]:
    return fusion_groups(parse_graph(HEAD + text), REGISTRY)


def fused(text: str) -> list[int | None]:
    return [m.fused.total for m in moves_of(parse_graph(HEAD + text), REGISTRY)]


CONV_BIAS_RELU = (
    "input x: float32[1,8,4,4]\nparameter w: float32[8,8,1,1]\nparameter b: float32[8,1,1]\n"
    "c: float32[1,8,4,4] = conv(x, w)\nd: float32[1,8,4,4] = add(c, b)\n"
    "y: float32[1,8,4,4] = relu(d)\noutput y"
)


@pytest.mark.req("R67")
def test_a_chain_is_fused_into_its_producer():
    # The convolution reads its input and weight, the chain its bias, and only y is written.
    assert groups_of(CONV_BIAS_RELU) == [0, 0, 0]
    assert fused(CONV_BIAS_RELU) == [512 + 256, 32, 512]


@pytest.mark.req("R67")
def test_a_value_somebody_else_reads_is_written_once_all_the_same():
    text = CONV_BIAS_RELU.replace("output y", "z: float32[1,8,4,4] = softmax(d)\noutput y, z")
    # d leaves the group: written by the add, read by the softmax.
    assert fused(text) == [512 + 256, 32 + 512, 512, 512 + 512]


@pytest.mark.req("R67")
def test_swish_stays_in_its_group_and_a_gate_that_depends_on_it_does_not():
    swish = (
        "input x: float32[1,8,4,4]\nc: float32[1,8,4,4] = lrn(x)\n"
        "s: float32[1,8,4,4] = sigmoid(c)\ny: float32[1,8,4,4] = mul(c, s)\noutput y"
    )
    assert groups_of(swish) == [0, 0, 0]
    assert fused(swish) == [512, 0, 512]
    gate = (
        "input x: float32[1,8,4,4]\nc: float32[1,8,4,4] = lrn(x)\n"
        "g: float32[1,8,1,1] = global_average_pool(c)\ny: float32[1,8,4,4] = mul(c, g)\noutput y"
    )
    # The gate is made after c's group began, so the product cannot be part of it.
    assert groups_of(gate) == [0, 1, 2]


@pytest.mark.req("R67")
def test_a_residual_addition_joins_the_later_branch():
    text = (
        "input x: float32[1,8,4,4]\na: float32[1,8,4,4] = lrn(x)\nb: float32[1,8,4,4] = lrn(a)\n"
        "y: float32[1,8,4,4] = add(b, a)\noutput y"
    )
    assert groups_of(text) == [0, 1, 1]
    # a is read once by the second group, and its addition reads nothing new.
    assert fused(text) == [512 + 512, 512, 512]


@pytest.mark.req("R67")
@given(graphs())
def test_groups_run_one_after_another_and_never_move_more(graph: Graph):
    home = fusion_groups(graph, REGISTRY)
    maker = {name: at for at, op in enumerate(graph.ops) for name in op.results}
    edges = {
        (home[maker[name]], home[at])
        for at, op in enumerate(graph.ops)
        for name in op.operands
        if name in maker and home[maker[name]] != home[at]
    }
    assert nx.is_directed_acyclic_graph(nx.DiGraph(edges))
    for moved in moves_of(graph, REGISTRY):
        assert moved.fused.read <= moved.unfused.read
        assert moved.fused.written <= moved.unfused.written


@pytest.mark.req("R67")
@given(graphs())
def test_fused_bytes_by_counting_what_crosses_the_border_of_a_group(graph: Graph):
    if any(op.kind in ("slice", "split", "concat", "identity") for op in graph.ops):
        return  # only ops without views here: then storage and tensor are one
    home = fusion_groups(graph, REGISTRY)
    size = {t.name: t.nbytes for t in graph.tensors}
    total = 0
    for group in set(home):
        members = [op for at, op in enumerate(graph.ops) if home[at] == group]
        made = {name for op in members for name in op.results}
        total += sum(size[n] for n in {n for op in members for n in op.operands} - made)
        rest = [op for at, op in enumerate(graph.ops) if home[at] != group]
        for name in made:
            outside = any(name in op.operands for op in rest)
            unread = not any(name in op.operands for op in graph.ops)
            if outside or unread or name in graph.outputs:
                total += size[name]
    assert total == sum(m.fused.total for m in moves_of(graph, REGISTRY))


@pytest.mark.req("R67")
def test_state_is_read_and_written_by_those_who_say_so():
    # A variable that is read, changed and assigned, as TFLite's streaming models do.
    text = (
        "input x: float32[4]\nstate v: float32[4]\nh: int8[1] = var_handle()\n"
        "a: float32[4] = read_variable(h) reads=[v]\nb: float32[4] = add(a, x)\n"
        "_ = assign_variable(h, b) writes=[v]\noutput b"
    )
    graph = parse_graph(HEAD + text)
    moved = {op.kind: m.unfused for op, m in zip(graph.ops, moves_of(graph, REGISTRY), strict=True)}
    assert (moved["read_variable"].read, moved["read_variable"].written) == (16 + 1, 16)
    assert (moved["assign_variable"].read, moved["assign_variable"].written) == (16 + 1, 16)
    # A cache written in place through a view of it costs the rows written, not nothing.
    text = (
        "input u: float32[1,8]\ninput i: int64[1,1]\nstate cache: float32[100,8]\n"
        'y: float32[100,8] = scatter_nd(cache, i, u) writes=[cache] views=["0<0+0"]\noutput u'
    )
    (cached,) = moves_of(parse_graph(HEAD + text), REGISTRY)
    assert (cached.unfused.read, cached.unfused.written) == (8 + 32, 32)
