"""The backward pass: the lecture's examples and the published chart, and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.analysis import Index, file_order, make_schedule
from peakfold.analysis.graph.schedule import Policies
from peakfold.errors import InvalidPlan, ModelError, UsageError
from peakfold.ir import Graph, Role, check_graph, effect_edges, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.transform import Train, replay, train_step


def rows(graph: Graph) -> list[str]:
    return [f"{','.join(op.outputs or op.writes)} <- {','.join(op.inputs)}" for op in graph.ops]


def modes(graph: Graph, **options: object) -> tuple[int, ...]:
    s = make_plan(graph, PlanOptions(align=1, **options)).summary
    return s.naive_bytes, s.inplace_bytes, s.share_bytes, s.both_bytes


FLOAT = "bfloat16[1,1]"  # two bytes: units below are halved
PERCEPTRON = parse_graph(f"""peakfold-graph 1
input A: {FLOAT}
parameter W1: {FLOAT}
parameter W2: {FLOAT}
fc1: {FLOAT} = gemm(A, W1)
act1: {FLOAT} = sigmoid(fc1)
fc2: {FLOAT} = gemm(act1, W2)
out: {FLOAT} = softmax(fc2) inplace=[0]
output out
""")


@pytest.mark.req("EX5", "R27", "R50")
def test_ex5_perceptron() -> None:
    train = Train(loss="softmax-output", input_grad=True, param_grads="static", keep_outputs=False)
    step = train(PERCEPTRON)
    backward = [row for row in rows(step)[4:] if not row.startswith("W")]
    assert backward == [
        "fc2.grad <- out,label",
        "act1.grad <- fc2.grad,W2",
        "fc1.grad <- act1.grad,act1",
        "A.grad <- fc1.grad,W1",
    ]
    assert step.outputs == ("A.grad",)
    assert tuple(n // 2 for n in modes(PERCEPTRON, train=train)) == (8, 4, 3, 3)
    plan = make_plan(PERCEPTRON, PlanOptions(align=1, mode="inplace", train=train)).plan
    groups = {frozenset(p.tensor for p in b.tensors) for b in plan.buffers}
    assert groups == {
        frozenset({"fc1", "act1", "fc1.grad"}),
        frozenset({"fc2", "out", "fc2.grad"}),
        frozenset({"act1.grad"}),
        frozenset({"A.grad"}),
    }


@pytest.mark.req("EX5", "R50")
def test_ex5_a_visible_weight_gradient_reads_before_its_operand_is_overwritten() -> None:
    step = Train(loss="softmax-output", input_grad=True)(PERCEPTRON)
    order = [op.outputs[0] for op in step.ops if op.outputs]
    assert order.index("W2.grad") < order.index("fc1.grad")
    result = make_plan(PERCEPTRON, PlanOptions(train=Train(loss="softmax-output")))
    assert all(check.ok for check in verify_plan(PERCEPTRON, result.plan))


@pytest.mark.req("EX8", "R50")
def test_ex8_dependency_pruning() -> None:
    g = parse_graph("""peakfold-graph 1
    input A: float32[4]
    input B: float32[4]
    input F: float32[4]
    C: float32[4] = mul(A, B)
    E: float32[4] = add(C, F)
    output E""")
    step = Train(input_grad=True)(g)
    index = Index.of(step)
    schedule = make_schedule(index, file_order(index), Policies())
    assert "E.grad" in step.inputs
    # C is read by the addition alone: no backward op needs it, nor F.
    assert list(index.users_of(index.id_of["C"])) == [1]
    assert list(index.users_of(index.id_of["F"])) == [1]
    assert schedule.last_use[index.id_of["C"]] == 1
    made = {op.outputs[0]: op.inputs for op in step.ops[2:]}
    assert made == {
        "F.grad": ("E.grad",),
        "C.grad": ("E.grad",),
        "B.grad": ("C.grad", "A"),
        "A.grad": ("C.grad", "B"),
    }


@pytest.mark.req("EX9", "R50")
def test_ex9_gradients_of_several_readers_are_added_up() -> None:
    g = parse_graph("""peakfold-graph 1
    input A: float32[4]
    constant two: float32[]
    constant three: float32[]
    B: float32[4] = sigmoid(A)
    E: float32[4] = mul(B, two)
    F: float32[4] = mul(B, three)
    G: float32[4] = add(E, F)
    output G""")
    step = Train(input_grad=True)(g)
    assert len(g.ops) == 4  # no split in the forward pass
    assert rows(step)[4:] == [
        "F.grad <- G.grad",
        "E.grad <- G.grad",
        "B.grad <- F.grad,three",
        "B.grad.1 <- E.grad,two",
        "B.grad.sum <- B.grad,B.grad.1",
        "A.grad <- B.grad.sum,B",
    ]
    plan = make_plan(g, PlanOptions(train=Train(input_grad=True), fold=False)).plan
    summed = next(a for a in plan.aliases if a.output == "B.grad.sum")
    assert (summed.input, summed.how) == ("B.grad", "inplace")


@pytest.mark.req("EX10", "R50")
def test_ex10_the_linear_layer_before_a_relu_dies_in_the_forward_pass() -> None:
    g = parse_graph("""peakfold-graph 1
    input data: float32[2,3]
    parameter w: float32[3,4]
    parameter b: float32[4]
    h: float32[2,4] = gemm(data, w, b)
    y: float32[2,4] = relu(h)
    output y""")
    step = Train()(g)
    made = {op.outputs[0]: set(op.inputs) for op in step.ops[2:]}
    assert made == {"h.grad": {"y.grad", "y"}, "w.grad": {"data", "h.grad"}, "b.grad": {"h.grad"}}
    index = Index.of(step)
    assert list(index.users_of(index.id_of["h"])) == [1]


MXNET = Train(loss="softmax-output", reads="mxnet", input_grad=True, param_grads="static")


@pytest.mark.req("R12")
def test_optimizer_state_is_static_and_gradients_live_until_the_update() -> None:
    train = Train(optimizer="adam")
    step = train(PERCEPTRON)
    state = [t for t in step.tensors if t.role is Role.OPTIMIZER_STATE]
    assert sorted(t.name for t in state) == [f"W{n}.adam.{k}" for n in (1, 2) for k in (0, 1)]
    assert step.outputs == PERCEPTRON.outputs
    updates = [op for op in step.ops if op.kind == "adam_step"]
    assert [op.writes[0] for op in updates] == ["W1", "W2"]
    # Whatever reads a weight comes before it is changed.
    edges = effect_edges(step)
    at = {op.name: n for n, op in enumerate(step.ops)}
    readers = {n for n, op in enumerate(step.ops) if "W2" in op.inputs and not op.writes}
    assert readers
    assert all((n, at[updates[1].name]) in edges for n in readers)
    result = make_plan(PERCEPTRON, PlanOptions(train=train, order="best"))
    assert all(check.ok for check in verify_plan(PERCEPTRON, result.plan))
    assert result.summary.static_bytes == 2 * 2 * 3  # two weights, each with two moments


def test_an_update_before_a_reader_is_refused() -> None:
    step = Train(optimizer="sgd")(PERCEPTRON)
    index = Index.of(step)
    order = list(file_order(index))
    update = next(n for n, op in enumerate(step.ops) if op.writes == ("W1",))
    reader = next(n for n, op in enumerate(step.ops) if op.kind == "gemm")
    order.remove(update)
    order.insert(order.index(reader), update)
    with pytest.raises(ModelError):
        make_schedule(index, order, Policies())


def test_training_mode_adds_masks_and_statistics() -> None:
    g = parse_graph("""peakfold-graph 1
    input x: float32[2,8,4]
    parameter s: float32[8]
    parameter b: float32[8]
    parameter m: float32[8]
    parameter v: float32[8]
    h: float32[2,8,4] = batch_normalization(x, s, b, m, v)
    y: float32[2,8,4] = dropout(h)
    output y""")
    step = Train()(g)
    assert step["y.mask"].nbytes == 64
    assert step["h.mean"].nbytes == 32
    norm = next(op for op in step.ops if op.kind == "batch_normalization_grad")
    assert set(norm.inputs) == {"h.grad", "x", "s", "h.mean", "h.deviation"}
    assert set(norm.outputs) == {"s.grad", "b.grad"}  # running statistics have no gradient


def test_kinds_without_a_row_read_everything_and_are_named() -> None:
    g = parse_graph("""peakfold-graph 1
    input x: float32[4]
    parameter w: float32[4]
    y: float32[4] = opaque(x, w)
    output y""")
    step = Train()(g)
    assert step.ops[1].inputs == ("y.grad", "x", "w", "y")
    assert "opaque (1)" in step.notes[-1]


TWO_WAYS = """input c: bool[]
parameter v: float32[4]
parameter w: float32[4]
a: float32[4] = relu(v)
b: float32[4] = relu(w)
"""


@pytest.mark.parametrize(
    ("text", "train", "says"),
    [
        ("input x: float32[4]\ny: float32[4] = relu(x)\noutput y", Train(), "nothing to train"),
        (
            "parameter w: float32[4]\ny: float32[4] = relu(w)\noutput y",
            Train(loss="softmax-output"),
            "no softmax",
        ),
        ("parameter w: int8[4]\ny: int8[4] = relu(w)\noutput y", Train(), "nothing to train"),
        # Each has another path from a parameter to the output, so that a gradient was made.
        (
            f"{TWO_WAYS}z: float32[4] = if(c) begin\n"
            '  region "then" captures=[a]\n    input a: float32[4]\n'
            "    t: float32[4] = relu(a)\n    output t\n  end\nend\n"
            "y: float32[4] = add(z, b)\noutput y",
            Train(),
            "its body would have to",
        ),
        (
            f"{TWO_WAYS}z: opaque[4] = mystery(a)\ny: float32[4] = add(z, b)\noutput y",
            Train(),
            "'z' has no known element type",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(text: str, train: Train, says: str) -> None:
    with pytest.raises((UsageError, ModelError), match=says):
        train(parse_graph("peakfold-graph 1\n" + text))


def test_bad_options_are_named() -> None:
    with pytest.raises(UsageError, match="no optimizer"):
        Train(optimizer="magic")
    with pytest.raises(InvalidPlan, match="unknown option"):
        replay(PERCEPTRON, ["train speed=9"])
    with pytest.raises(InvalidPlan, match="no loss"):
        replay(PERCEPTRON, ["train loss=hope"])


@given(
    loss=st.sampled_from(["external", "softmax-output"]),
    reads=st.sampled_from(["minimal", "mxnet"]),
    input_grad=st.booleans(),
    param_grads=st.sampled_from(["dynamic", "static"]),
    optimizer=st.sampled_from([None, "sgd", "momentum", "adam"]),
    keep_outputs=st.booleans(),
)
def test_steps_are_well_formed_replayable_and_judged(**options: object) -> None:
    train = Train(**options)
    step = train(PERCEPTRON)
    check_graph(step)
    assert replay(PERCEPTRON, [train_step(train)]).digest == step.digest
    if step.outputs:
        result = make_plan(PERCEPTRON, PlanOptions(train=train))
        assert all(check.ok for check in verify_plan(PERCEPTRON, result.plan))


KINDS = st.sampled_from(["relu", "sigmoid", "add", "mul", "gemm", "concat", "sum"])


@given(st.lists(st.tuples(KINDS, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9))
def test_random_networks_have_one_gradient_for_each_parameter_that_matters(
    picks: list[tuple[str, int, int]],
) -> None:
    lines = ["peakfold-graph 1", "input x: float32[2,2]"]
    made, weights = ["x"], []
    for n, (kind, one, two) in enumerate(picks):
        a, b = made[one % len(made)], made[two % len(made)]
        if kind == "gemm":
            lines.insert(2, f"parameter w{n}: float32[2,2]")
            weights.append(f"w{n}")
            lines.append(f"v{n}: float32[2,2] = gemm({a}, w{n})")
        elif kind == "concat":
            lines.append(f"c{n}: float32[4,2] = concat({a}, {b}, axis=0)")
            lines.append(f"v{n}: float32[2,2] = reduce_sum(c{n})")
        else:
            operands = a if kind in ("relu", "sigmoid") else f"{a}, {b}"
            lines.append(f"v{n}: float32[2,2] = {kind}({operands})")
        made.append(f"v{n}")
    lines.append(f"output {made[-1]}")
    g = parse_graph("\n".join(lines))
    reach = {made[-1]}
    for op in reversed(g.ops):
        if reach & set(op.outputs):
            reach.update(op.inputs)
    alive = sorted(set(weights) & reach)
    if not alive:
        return
    step = Train()(g)
    check_graph(step)
    grads = [name for name in step.outputs if name not in g.outputs]
    assert sorted(name.split(".")[0] for name in grads) == alive
    result = make_plan(g, PlanOptions(train=Train()))
    assert all(check.ok for check in verify_plan(g, result.plan))
