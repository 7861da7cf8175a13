"""TFLite's bodies, variables and tables in the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peakfold.analysis import static_bytes
from peakfold.errors import ModelError
from peakfold.frontends import load
from peakfold.ir import Graph, Role
from peakfold.ir.check import MAX_NESTING
from peakfold.ir.effects import effect_edges
from peakfold.judges.plan import verify_plan
from peakfold.planning import make_plan
from peakfold.planning.options import PlanOptions
from peakfold.transform import replay

from .tflite_models import Builder, GraphBuilder


def graph_of(owner: Builder, folder: Path) -> Graph:
    path = folder / "model.tflite"
    path.write_bytes(owner.data())
    return load(path).graph


def planned(graph: Graph, **options: Any) -> Any:
    plan = make_plan(graph, PlanOptions(align=1, **options)).plan
    assert [check for check in verify_plan(graph, plan) if not check.ok] == []
    return plan


def counting(owner: Builder, size: int = 8) -> None:
    """Bodies 1 (condition) and 2 (body) of a loop that carries a counter and a vector."""
    condition = owner.graph("cond")
    count, _ = condition.input((), "int32"), condition.input((size,))
    limit, go = condition.constant(np.int32(5), "int32"), condition.tensor((), "bool")
    condition.op("LESS", [count, limit], [go])
    condition.outputs(go)
    body = owner.graph("body")
    count, vector = body.input((), "int32"), body.input((size,))
    one = body.constant(np.int32(1), "int32")
    after, twice, square = (body.tensor((), "int32"), body.tensor((size,)), body.tensor((size,)))
    body.op("ADD", [count, one], [after])
    body.op("MUL", [vector, vector], [square])
    body.op("ADD", [square, vector], [twice])
    body.outputs(after, twice)


def looping(owner: Builder) -> GraphBuilder:
    main = owner.graph()
    count, vector = main.input((), "int32"), main.input((8,))
    results = main.tensor((), "int32"), main.tensor((8,))
    main.op(
        "WHILE", [count, vector], results, "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2
    )
    main.outputs(*results)
    counting(owner)
    return main


def test_a_while_has_a_condition_and_a_body(tmp_path):
    owner = Builder()
    looping(owner)
    graph = graph_of(owner, tmp_path)
    (op,) = graph.ops
    assert op.kind == "while"
    assert [region.label for region in op.regions] == ["cond", "body"]
    assert [o.kind for o in op.regions[1].graph.ops] == ["add", "mul", "add"]
    plan = planned(graph)
    # The body's own result of 32 bytes is a slot; inside it needs room for the square alone
    # (then written in place of by the sum), beside two slots for each carried value.
    (workspace,) = [b.size for b in plan.buffers if b.what == "workspace"]
    assert workspace == 2 * (4 + 32) + 32


def trips_of(folder: Path, start: Any = None, limit: Any = None) -> object:
    """Trips of the counting loop when its counter starts at a constant."""
    owner = Builder()
    main = looping(owner)
    if start is not None:
        main.graph.operators[0].inputs = [main.constant(np.int32(start), "int32"), 1]
    if limit is not None:
        condition = owner.model.subgraphs[1]
        there = condition.tensors[condition.operators[0].inputs[1]]
        owner.model.buffers[there.buffer].data = list(np.int32(limit).tobytes())
    return graph_of(owner, folder).ops[0].attrs.get("trips")


def test_a_loop_that_counts_has_a_known_number_of_trips(tmp_path):
    assert trips_of(tmp_path) is None  # its counter is an input
    assert trips_of(tmp_path, 0) == 5
    assert trips_of(tmp_path, -2, 20) == 22
    assert trips_of(tmp_path, 9) == 0


def test_a_recurrent_layer_as_a_loop_costs_every_trip(tmp_path):
    """Keras writes an LSTM as WHILE; a step of 24,576 products, twenty steps."""
    from peakfold.analysis.cost.counting import cost_of

    owner = Builder()
    main = owner.graph()
    zero, limit = main.constant(np.int32(0), "int32"), main.constant(np.int32(20), "int32")
    state = main.input((1, 96))
    results = [main.tensor((), "int32"), main.tensor((), "int32"), main.tensor((1, 96))]
    main.op(
        "WHILE",
        [zero, limit, state],
        results,
        "WhileOptions",
        condSubgraphIndex=1,
        bodySubgraphIndex=2,
    )
    main.outputs(results[2])
    condition = owner.graph("cond")
    count, most, _ = (
        condition.input((), "int32"),
        condition.input((), "int32"),
        condition.input((1, 96)),
    )
    fifty = condition.constant(np.int32(50), "int32")
    first, second, both = (condition.tensor((), "bool") for _ in range(3))
    condition.op("LESS", [count, fifty], [first])
    condition.op("LESS", [count, most], [second])
    condition.op("LOGICAL_AND", [first, second], [both])
    condition.outputs(both)
    body = owner.graph("body")
    count, most, state = body.input((), "int32"), body.input((), "int32"), body.input((1, 96))
    one, after, gates = (
        body.constant(np.int32(1), "int32"),
        body.tensor((), "int32"),
        body.tensor((1, 256)),
    )
    weights = body.constant(np.zeros((256, 96)), "float32")
    body.op("ADD", [one, count], [after])
    body.op("FULLY_CONNECTED", [state, weights, -1], [gates], "FullyConnectedOptions")
    low, size = body.constant([0, 0], "int32"), body.constant([1, 96], "int32")
    new = body.tensor((1, 96))
    body.op("SLICE", [gates, low, size], [new])
    body.outputs(after, most, new)
    graph = graph_of(owner, tmp_path)
    assert graph.ops[0].attrs == {"trips": 20}
    assert cost_of(graph).total().figures.macs == 20 * 24_576


def test_an_if_takes_the_larger_branch(tmp_path):
    owner = Builder()
    main = owner.graph()
    flag, x, y = main.input((1,), "bool"), main.input((8,)), main.tensor((8,))
    main.op("IF", [flag, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    main.outputs(y)
    for name, steps in (("then", 1), ("else", 3)):
        branch = owner.graph(name)
        last = branch.input((8,))
        for _ in range(steps):
            wide, narrow = branch.tensor((16,)), branch.tensor((8,))
            branch.op("CONCATENATION", [last, last], [wide], "ConcatenationOptions")
            zero, size = branch.constant([0], "int32"), branch.constant([8], "int32")
            branch.op("SLICE", [wide, zero, size], [narrow])
            last = narrow
        branch.outputs(last)
    graph = graph_of(owner, tmp_path)
    (op,) = graph.ops
    assert [region.label for region in op.regions] == ["then", "else"]
    plan = planned(graph)
    arenas = [body.plan.arena_bytes for body in plan.bodies]
    assert arenas[1] > arenas[0] > 0
    assert [b.size for b in plan.buffers if b.what == "workspace"] == [max(arenas)]


def with_variable(owner: Builder) -> GraphBuilder:
    """Assigns a variable in CALL_ONCE, then reads, assigns and reads it again."""
    main = owner.graph()
    x = main.input((4,))
    main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    handle = main.tensor((1,), "resource")
    main.op("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="v")
    before, after, new = (main.tensor((4,)) for _ in range(3))
    main.op("READ_VARIABLE", [handle], [before], "ReadVariableOptions")
    main.op("ADD", [before, x], [new], "AddOptions")
    main.op("ASSIGN_VARIABLE", [handle, new], [], "AssignVariableOptions")
    main.op("READ_VARIABLE", [handle], [after], "ReadVariableOptions")
    main.outputs(before, after)
    init = owner.graph("init")
    there = init.tensor((1,), "resource")
    init.op("VAR_HANDLE", [], [there], "VarHandleOptions", sharedName="v")
    zeros = init.constant(np.zeros(4), "float32")
    again = init.tensor((2, 2))
    four = init.constant([2, 2], "int32")
    init.op("RESHAPE", [zeros, four], [again], "ReshapeOptions")
    init.op("ASSIGN_VARIABLE", [there, again], [], "AssignVariableOptions")
    return main


@pytest.mark.req("R12")
def test_a_variable_is_one_state_with_effects_in_order(tmp_path):
    owner = Builder()
    with_variable(owner)
    graph = graph_of(owner, tmp_path)
    (state,) = [t for t in graph.tensors if t.role is Role.STATE]
    assert (state.name, state.nbytes) == ("variable:v", 16)
    assert static_bytes(graph)[Role.STATE] == 16
    kinds = [op.kind for op in graph.ops]
    assert kinds == [
        "call_once",
        "var_handle",
        "read_variable",
        "add",
        "assign_variable",
        "read_variable",
    ]
    # once -> read -> assign -> read, and once -> assign.
    assert effect_edges(graph) == ((0, 2), (0, 4), (2, 4), (4, 5))
    planned(graph)


def test_folding_a_body_keeps_the_variable_it_assigns(tmp_path):
    owner = Builder()
    with_variable(owner)
    graph = graph_of(owner, tmp_path)
    body = replay(graph, ["fold"]).ops[0].regions[0]
    assert [op.kind for op in body.graph.ops] == ["var_handle", "assign_variable"]  # no reshape
    assert body.captures == ("variable:v",)


def test_a_handle_that_comes_from_outside_may_be_any_variable(tmp_path):
    owner = Builder()
    main = owner.graph()
    x = main.input((4,))
    handles = []
    for name in ("a", "b"):
        handles.append(main.tensor((1,), "resource"))
        main.op("VAR_HANDLE", [], [handles[-1]], "VarHandleOptions", sharedName=name)
        main.op("ASSIGN_VARIABLE", [handles[-1], x], [])
    y = main.tensor((4,))
    flag = main.input((1,), "bool")
    main.op("IF", [flag, handles[0]], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=1)
    main.outputs(y)
    body = owner.graph("read")
    handle, value = body.input((1,), "resource"), body.tensor((4,))
    body.op("READ_VARIABLE", [handle], [value])
    body.outputs(value)
    graph = graph_of(owner, tmp_path)
    (read,) = graph.ops[-1].regions[0].graph.ops
    assert read.reads == ("variable:a", "variable:b")
    assert {(1, 4), (3, 4)} <= set(effect_edges(graph))
    assert static_bytes(graph)[Role.STATE] == 32  # each once, though two bodies touch them
    planned(graph)


def test_a_table_is_state_as_large_as_what_is_imported(tmp_path):
    owner = Builder()
    main = owner.graph()
    keys, values = main.constant(np.arange(3), "int64"), main.constant(np.arange(3), "int32")
    table = main.tensor((1,), "resource")
    main.op("HASHTABLE", [], [table], "HashtableOptions", tableId=7)
    main.op("HASHTABLE_IMPORT", [table, keys, values], [])
    wanted, other = main.input((2,), "int64"), main.constant(np.int32(0), "int32")
    found = main.tensor((2,), "int32")
    main.op("HASHTABLE_FIND", [table, wanted, other], [found])
    main.outputs(found)
    graph = graph_of(owner, tmp_path)
    (state,) = [t for t in graph.tensors if t.role is Role.STATE]
    assert (state.name, state.nbytes) == ("hashtable:7", 3 * 8 + 3 * 4)
    assert graph.ops[1].writes == graph.ops[2].reads == ("hashtable:7",)
    planned(graph)


def test_random_numbers_keep_their_order_and_are_not_folded(tmp_path):
    owner = Builder()
    main = owner.graph()
    shape = main.constant([2, 3], "int32")
    one, two, total = (main.tensor((2, 3)) for _ in range(3))
    main.op("RANDOM_UNIFORM", [shape], [one], "RandomOptions")
    main.op("RANDOM_STANDARD_NORMAL", [shape], [two], "RandomOptions")
    main.op("ADD", [one, two], [total])
    main.outputs(total)
    graph = graph_of(owner, tmp_path)
    assert effect_edges(graph) == ((0, 1),)
    assert len(replay(graph, ["fold"]).ops) == 3


@pytest.mark.parametrize(
    ("builtin", "options", "fields"),
    [
        ("CALL", "CallOptions", {"subgraph": 1}),
        ("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions", {"decompositionSubgraphIndex": 1}),
    ],
)
def test_a_call_needs_what_its_body_needs(builtin, options, fields, tmp_path):
    owner = Builder()
    main = owner.graph()
    x, y = main.input((8,)), main.tensor((8,))
    main.op(builtin, [x], [y], options, **fields)
    main.outputs(y)
    body = owner.graph("body")
    x, a, b, y = body.input((8,)), body.tensor((8,)), body.tensor((8,)), body.tensor((8,))
    body.op("NEG", [x], [a])
    body.op("ABS", [x], [b])
    body.op("SUB", [a, b], [y])
    body.outputs(y)
    graph = graph_of(owner, tmp_path)
    assert graph.ops[0].kind == "call"
    plan = planned(graph)
    assert [b.size for b in plan.buffers if b.what == "workspace"] == [64]


def test_a_case_has_one_region_a_branch(tmp_path):
    owner = Builder()
    main = owner.graph()
    which, x, y = main.input((), "int32"), main.input((8,)), main.tensor((8,))
    main.op(
        "STABLEHLO_CASE", [which, x], [y], "StablehloCaseOptions", branchSubgraphIndices=[1, 2, 1]
    )
    main.outputs(y)
    for kind in ("NEG", "ABS"):
        branch = owner.graph(kind)
        x, y = branch.input((8,)), branch.tensor((8,))
        branch.op(kind, [x], [y])
        branch.outputs(y)
    graph = graph_of(owner, tmp_path)
    kinds = [region.graph.ops[0].kind for region in graph.ops[0].regions]
    assert kinds == ["neg", "abs", "neg"]
    planned(graph)


def nested(owner: Builder, number: int, calls: list[int]) -> None:
    graph = owner.graph(f"g{number}")
    x = graph.input((4,))
    for callee in calls:
        y = graph.tensor((4,))
        graph.op("CALL", [x], [y], "CallOptions", subgraph=callee)
        x = y
    last = graph.tensor((4,))
    graph.op("NEG", [x], [last])
    graph.outputs(last)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([[1], [1]], "calls itself"),
        ([[1], [2], [1]], "calls itself"),
        ([[0]], "calls subgraph 0"),
        ([[5]], "calls subgraph 5 of 1"),
        ([*([n + 1] * 2 for n in range(20)), []], "nest more than"),
        ([*([n + 1] for n in range(MAX_NESTING + 1)), []], "nests too deeply"),
    ],
)
def test_bodies_that_cannot_be_are_refused(calls, message, tmp_path):
    owner = Builder()
    for number, callees in enumerate(calls):
        nested(owner, number, callees)
    with pytest.raises(ModelError, match=message) as caught:
        graph_of(owner, tmp_path)
    assert "model.tflite" in str(caught.value)


def test_bodies_may_nest_up_to_the_limit(tmp_path):
    owner = Builder()
    for number, callees in enumerate([*([n + 1] for n in range(MAX_NESTING)), []]):
        nested(owner, number, callees)
    planned(graph_of(owner, tmp_path))


@pytest.mark.parametrize(("shape", "dtype"), [((), "float32"), ((3,), "bool")])
def test_an_if_asks_one_truth_value(shape, dtype, tmp_path):
    owner = Builder()
    main = owner.graph()
    go, x = main.input(shape, dtype), main.input((4,))
    y = main.tensor((4,))
    main.op("IF", [go, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    main.outputs(y)
    nested(owner, 1, [])
    nested(owner, 2, [])
    with pytest.raises(ModelError, match="its condition is"):
        graph_of(owner, tmp_path)


def test_a_body_that_does_not_fit_its_op_is_refused(tmp_path):
    owner = Builder()
    main = looping(owner)
    main.graph.operators[0].inputs = [0]
    with pytest.raises(ModelError, match="takes 2 and gives 1 tensors, its op 1 and 1"):
        graph_of(owner, tmp_path)


def test_subgraphs_that_nothing_calls_are_noted(tmp_path):
    owner = Builder()
    nested(owner, 0, [])
    nested(owner, 1, [])
    assert any("1 subgraphs" in note for note in graph_of(owner, tmp_path).notes)
