"""The worked examples EX1 to EX6 of the lecture, with exact known answers."""

from __future__ import annotations

from itertools import product

import pytest

from peakfold.ir import Graph, parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, PlanResult, make_plan

from .handmade import accepted, topological_orders

UNIT = "uint8[1]"


def graph(*lines: str) -> Graph:
    return parse_graph("\n".join(["peakfold-graph 1", *lines]))


def ops(*rows: str) -> list[str]:
    """Rows `B <- A, W : kind` as op lines on unit tensors."""
    lines = []
    for row in rows:
        name, rest = row.split("<-")
        args, kind = rest.split(":")
        lines.append(f"{name.strip()}: {UNIT} = {kind.strip()}({args.strip()})")
    return lines


def inputs(*names: str) -> list[str]:
    return [f"input {name}: {UNIT}" for name in names]


def plan(g: Graph, **options: object) -> PlanResult:
    result = make_plan(g, PlanOptions(align=1, fold=False, **options))
    assert all(check.ok for check in verify_plan(g, result.plan))
    return result


def modes(g: Graph) -> tuple[int, int, int, int]:
    s = plan(g).summary
    return s.naive_bytes, s.inplace_bytes, s.share_bytes, s.both_bytes


EX1 = graph(
    *inputs("A"), *ops("B <- A : sigmoid", "C <- B : sigmoid", "E <- C : sigmoid"), "output E"
)


@pytest.mark.req("EX1", "R22", "R26", "R47")
def test_ex1_chain_runs_in_one_buffer_and_never_overwrites_its_input() -> None:
    assert modes(EX1) == (3, 1, 2, 1)
    result = plan(EX1, mode="both")
    (buffer,) = result.plan.buffers
    assert [place.tensor for place in buffer.tensors] == ["B", "C", "E"]
    assert [[p.tensor for p in e.tensors] for e in result.plan.external] == [["A"]]


EX2 = {
    order: graph(
        *inputs("A"),
        *ops(
            *(
                {
                    "B": "B <- A : sigmoid",
                    "C": "C <- B : sigmoid",
                    "F": "F <- B : relu",
                    "E": "E <- C : sigmoid",
                }[name]
                for name in order
            )
        ),
        "output E, F",
    )
    for order in ("BCFE", "BFCE", "BCEF")
}


@pytest.mark.req("EX2", "R23", "R31")
def test_ex2_a_value_that_is_still_needed_is_not_overwritten() -> None:
    for order in ("BCFE", "BCEF"):
        aliases = {a.output: a.input for a in plan(EX2[order]).plan.aliases}
        assert "C" not in aliases, order
    assert plan(EX2["BCFE"], mode="both").summary.both_bytes == 2  # F takes B once C is done
    figure = {"B": 0, "C": 1, "F": 2, "E": 0}
    over = {"B": 0, "C": 0, "F": 2, "E": 1}
    expect = {"BCFE": (True, False), "BFCE": (True, True), "BCEF": (False, False)}
    for order, verdicts in expect.items():
        g = EX2[order]
        file_order = range(len(g.ops))
        assert (accepted(g, figure, file_order), accepted(g, over, file_order)) == verdicts


@pytest.mark.req("EX3", "R24", "R25", "R43")
def test_ex3_a_dead_buffer_is_handed_on_whatever_its_size() -> None:
    g = graph(
        *inputs("A", "W1", "W2"),
        "B: uint8[8] = conv(A, W1)",
        "C: uint8[2] = max_pool(B)",
        "E: uint8[12] = conv(C, W2)",
        "output E",
    )
    result = plan(g, mode="share", strategy="in-order")
    objects = {place.tensor: b.object for b in result.plan.buffers for place in b.tensors}
    assert objects == {"B": 0, "C": 1, "E": 0}
    assert result.summary.share_bytes == max(8, 12) + 2


EX4_ROWS = {
    "B": "B <- A : sigmoid",
    "C": "C <- B : sigmoid",
    "F": "F <- B : max_pool",
    "E": "E <- C : max_pool",
    "G": "G <- E, F : mul",
}


def ex4(order: str) -> Graph:
    return graph(*inputs("A"), *ops(*(EX4_ROWS[name] for name in order)), "output G")


@pytest.mark.req("EX4", "R26")
def test_ex4_modes() -> None:
    assert modes(ex4("BCFEG")) == (5, 4, 3, 3)
    for order in ("BCEFG", "BFCEG"):
        assert modes(ex4(order))[3] == 3, order


@pytest.mark.req("EX4", "R29", "R30", "R31", "R32", "R33", "R34", "R45")
def test_ex4_step_table() -> None:
    g = ex4("BCFEG")
    trace = plan(g, mode="both", strategy="counter", trace=True).trace
    assert trace is not None
    name = [tensor.name for tensor in g.tensors]
    made = ["B", "C", "F", "E", "G"]
    counters = dict(zip(name, trace.initial, strict=True))
    rows = []
    for row in trace.rows:
        counters |= {name[t]: left for t, left in row.counters}
        ((tensor, tag, how),) = row.given
        rows.append((name[tensor], tag, how, [counters[n] for n in made], row.free))
    red, green, blue = 0, 1, 2
    # The figure's last box holds green only; blue, released by the same step, belongs there too.
    assert rows == [
        ("B", red, "new", [2, 1, 1, 1, 1], ()),
        ("C", green, "new", [1, 1, 1, 1, 1], ()),
        ("F", blue, "new", [0, 1, 1, 1, 1], (red,)),
        ("E", red, "free", [0, 0, 1, 1, 1], (green,)),
        ("G", red, "inplace", [0, 0, 0, 0, 1], (green, blue)),
    ]
    assert dict(zip(name, trace.initial, strict=True)) == {
        "A": 1,
        "B": 2,
        "C": 1,
        "F": 1,
        "E": 1,
        "G": 1,
    }


EX5 = """peakfold-graph 1
input A: uint8[1]
input W1: uint8[1]
input W2: uint8[1]
input label: uint8[1]
fc1: uint8[1] = gemm(A, W1)
act1: uint8[1] = sigmoid(fc1)
fc2: uint8[1] = gemm(act1, W2)
out: uint8[1] = softmax(fc2) inplace=[0]
dfc2: gradient uint8[1] = opaque(out, label) inplace=[0]
dact1: gradient uint8[1] = gemm(dfc2, W2)
dfc1: gradient uint8[1] = opaque(dact1, act1) inplace=[1]
dA: gradient uint8[1] = gemm(dfc1, W1)
output dA
"""


@pytest.mark.req("EX5", "R27")
def test_ex5_forward_and_backward_of_a_perceptron() -> None:
    g = parse_graph(EX5)
    assert modes(g) == (8, 4, 3, 3)
    result = plan(g, mode="inplace")
    groups = {frozenset(p.tensor for p in b.tensors) for b in result.plan.buffers}
    assert groups == {
        frozenset({"fc1", "act1", "dfc1"}),
        frozenset({"fc2", "out", "dfc2"}),
        frozenset({"dact1"}),
        frozenset({"dA"}),
    }
    source = {"fc1": 0, "act1": 0, "dfc1": 0, "fc2": 1, "out": 1, "dfc2": 1, "dact1": 2, "dA": 2}
    assert accepted(g, source, range(8))
    assert not accepted(g, source | {"dact1": 1, "dA": 1}, range(8))


EX6_ROWS = (
    "A1 <- x : opaque",
    "A2 <- A1 : opaque",
    "A3 <- A2 : opaque",
    "A4 <- A3 : opaque",
    "A5 <- A1 : opaque",
    "A6 <- A5 : opaque",
    "A7 <- A6 : opaque",
    "A8 <- A4, A7 : opaque",
)
EX6 = graph(*inputs("x"), *ops(*EX6_ROWS), "output A8")


def colours(*values: int) -> dict[str, int]:
    return {f"A{n}": value for n, value in enumerate(values, 1)}


@pytest.mark.req("EX6", "R35")
def test_ex6_serial_plan_by_the_counter_rule() -> None:
    result = plan(EX6, mode="both", strategy="counter")
    objects = {p.tensor: b.object for b in result.plan.buffers for p in b.tensors}
    assert objects == colours(0, 1, 2, 1, 2, 0, 2, 0)
    assert result.summary.both_bytes == 3
    order = ("A1", "A2", "A5", "A3", "A6", "A4", "A7", "A8")
    rows = {row.split(" ")[0]: row for row in EX6_ROWS}
    g = graph(*inputs("x"), *ops(*(rows[name] for name in order)), "output A8")
    result = plan(g, mode="both", strategy="counter")
    objects = {p.tensor: b.object for b in result.plan.buffers for p in b.tensors}
    assert objects == dict(zip(order, (0, 1, 2, 0, 1, 2, 0, 1), strict=True))


@pytest.mark.req("EX6", "R35")
def test_ex6_figures_are_judged_in_all_orders() -> None:
    orders = topological_orders(EX6)
    assert len(orders) == 20
    red, green, blue, purple = range(4)
    left = colours(red, green, red, blue, green, red, blue, red)
    right = colours(red, green, red, green, blue, purple, blue, red)
    counter = colours(0, 1, 2, 1, 2, 0, 2, 0)
    assert not any(accepted(EX6, left, order) for order in orders)
    good = [order for order in orders if accepted(EX6, right, order)]
    a3, a5 = 2, 4
    assert good == [order for order in orders if order.index(a5) < order.index(a3)]
    assert len(good) == 16
    assert tuple(range(8)) not in good
    assert (0, 1, 4, 2, 5, 3, 6, 7) in good
    assert sum(accepted(EX6, counter, order) for order in orders) == 3


@pytest.mark.req("EX6")
def test_ex6_three_buffers_are_minimal_and_five_are_safe_in_every_order() -> None:
    five = colours(0, 1, 2, 1, 3, 4, 3, 0)
    orders = topological_orders(EX6)
    assert all(accepted(EX6, five, order) for order in orders)
    for bits in product([0, 1], repeat=8):
        two = dict(zip(five, bits, strict=True))
        assert not any(accepted(EX6, two, order) for order in orders), two
