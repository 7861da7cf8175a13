"""Real threads: a plan that leans on the serial order goes wrong, one that does not never."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peakfold.errors import InvalidPlan, ModelError
from peakfold.ir import Graph
from peakfold.planning import PlanOptions
from peakfold.runtimes.reference import Lanes
from tests.planning.test_properties import mutations
from tests.strategies import graphs

from .helpers import Case, byte_case

# Two branches of two ops each: in the serial order the second follows in the first's bytes.
BRANCHES = """input x: uint8[256]
a1: uint8[256] = opaque(x)
a2: uint8[16] = opaque(a1)
b1: uint8[256] = opaque(x)
b2: uint8[16] = opaque(b1)
y: uint8[16] = opaque(a2, b2)
output y"""
TWO = (0, 0, 1, 1, 0)
SEEDS = range(25)


def case(mode: str) -> Case:
    return byte_case(BRANCHES, PlanOptions(mode=mode, inplace=False))


def test_a_serial_plan_is_caught_with_two_lanes() -> None:
    serial = case("arena")
    assert serial.run().ok
    places = {p.tensor: b.offset for b in serial.plan.buffers for p in b.tensors}
    assert places["a1"] == places["b1"]  # the branches reuse each other's bytes
    verdicts = [serial.run(lanes=Lanes(TWO), seed=seed).ok for seed in SEEDS]
    assert not all(verdicts)


def test_an_added_edge_makes_the_serial_plan_safe() -> None:
    serial = case("arena")
    for seed in SEEDS:
        report = serial.run(lanes=Lanes(TWO, edges=((1, 2),)), seed=seed)
        assert report.ok, report.detail


@pytest.mark.req("R37")
def test_a_plan_without_sharing_is_right_for_every_seed() -> None:
    naive = case("naive")
    for seed in SEEDS:
        report = naive.run(lanes=Lanes(TWO), seed=seed)
        assert report.ok, report.detail


PLANS = st.builds(
    PlanOptions,
    mode=st.sampled_from(["arena", "both"]),
    lanes=st.sampled_from([0, 2, 3]),
    added_edges=st.sampled_from([0, 2]),
    inputs=st.sampled_from(["external", "pinned", "reusable"]),
    outputs=st.sampled_from(["pinned", "external"]),
    align=st.sampled_from([1, 64]),
    inplace=st.booleans(),
    views=st.booleans(),
)


@pytest.mark.req("R49", "R55")
@given(graphs(max_ops=8), PLANS, st.integers(0, 99))
def test_every_plan_for_lanes_runs_right(graph: Graph, options: PlanOptions, seed: int) -> None:
    report = byte_case(graph, options).run(seed=seed)
    assert report.ok, report.detail


@given(graphs(max_ops=8), PLANS, st.data())
def test_what_goes_wrong_in_lanes_the_judges_on_paper_reject(
    graph: Graph, options: PlanOptions, data: st.DataObject
) -> None:
    one = byte_case(graph, options)
    assume(one.plan.buffers)
    mutant = data.draw(mutations(one.plan))
    assume(mutant != one.plan)
    try:
        ok = one.run(mutant).ok
    except InvalidPlan:
        ok = False
    assert ok or not one.accepted(mutant)


def test_effects_hold_ops_of_different_lanes_apart() -> None:
    source = """state v: uint8[4]
input x: uint8[64]
a: uint8[64] = opaque(x) writes=[v]
b: uint8[64] = opaque(x) reads=[v]
y: uint8[64] = add(a, b)
output y"""
    from peakfold.runtimes.reference.lanes import predecessors

    graph = byte_case(source).program.graph
    assert predecessors(graph, [0, 1, 2], Lanes((0, 1, 0)))[1] == {0}


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        (Lanes((0, 1)), "2 lanes are given for 5 ops"),
        (Lanes(TWO, edges=((0, 9),)), "names no op"),
        (Lanes(TWO, edges=((4, 0),)), "waits for itself"),
    ],
)
def test_lanes_that_cannot_run_are_refused(lanes: Lanes, message: str) -> None:
    with pytest.raises(InvalidPlan, match=message):
        case("naive").run(lanes=lanes)


def test_a_kernel_that_fails_in_a_thread_ends_the_run() -> None:
    from dataclasses import replace

    from peakfold.runtimes.reference.kernels import Kernel

    def fail(args: object) -> tuple[object, ...]:
        raise ModelError("no")

    naive = case("naive")
    kernels = list(naive.program.kernels)
    kernels[2] = Kernel("broken", fail)
    broken = replace(naive, program=replace(naive.program, kernels=tuple(kernels)))
    report = broken.run(lanes=Lanes(TWO))
    assert not report.ok
    assert "fails in the arena" in report.detail
