"""Plans made wrong on purpose: their numbers show it, and judge 2 says so too."""

from __future__ import annotations

from dataclasses import replace as with_fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from peakfold.errors import InvalidPlan
from peakfold.ir import Graph
from peakfold.planning import Plan, PlanOptions
from peakfold.planning.plan import PlannedAlias
from tests.frontends.models import model
from tests.planning.test_properties import mutations
from tests.strategies import OPTIONS, graphs

from .helpers import Case, buffer_of, byte_case, moved, onnx_case, over, replace

WEIGHTS = ", ".join(str((n % 7) / 5 - 0.4) for n in range(36))
CONV = model(
    """g (float[1,2,6,6] x) => (float[1,2,6,6] y)
    <float[2,2,3,3] w = {WEIGHTS}>
    {
      h = Relu(x)
      c = Conv<pads = [1, 1, 1, 1]>(h, w)
      y = Sigmoid(c)
    }""".replace("WEIGHTS", WEIGHTS)
)


def caught(case: Case, plan: Plan) -> str:
    """The verdict's detail on a plan that must be wrong, to both judges."""
    report = case.run(plan)
    assert not report.ok
    assert not case.accepted(plan)
    return report.detail


def test_all_offsets_0(tmp_path: Path) -> None:
    case = onnx_case(tmp_path, CONV)
    assert case.run().ok
    flat = replace(case.plan, buffers=[replace(b, offset=0) for b in case.plan.buffers])
    report = case.run(flat)
    assert not report.ok
    assert not report.outputs_equal
    assert report.max_abs_difference > 0
    assert not case.accepted(flat)


def test_a_convolution_over_its_own_input(tmp_path: Path) -> None:
    case = onnx_case(tmp_path, CONV, PlanOptions(inplace=False))
    assert case.run().ok
    detail = caught(case, over(case.plan, 1, "c", "h"))
    assert "'c'" in detail
    # The same addresses without the alias: the kernel finds its operand poisoned.
    host = case.plan.buffers[buffer_of(case.plan, "h")]
    assert "'c'" in caught(case, moved(case.plan, c=host.offset))


def test_a_convolution_half_over_its_own_input(tmp_path: Path) -> None:
    case = onnx_case(tmp_path, CONV, PlanOptions(inplace=False, align=4))
    host = case.plan.buffers[buffer_of(case.plan, "h")]
    caught(case, moved(case.plan, c=host.offset + 144))


@pytest.mark.req("R24")
def test_a_dead_buffer_reused_one_step_too_early(tmp_path: Path) -> None:
    text = model(
        """g (float[64] x) => (float[64] y) {
          a = Relu(x)
          b = Neg(a)
          c = Neg(b)
          d = Neg(c)
          y = Add(d, a)
        }"""
    )
    case = onnx_case(tmp_path, text, PlanOptions(inplace=False))
    assert case.run().ok
    # `a` is read by the last op, so nothing may take its place before.
    early = moved(case.plan, d=case.plan.buffers[buffer_of(case.plan, "a")].offset)
    assert "'y'" in caught(case, early)


@pytest.mark.req("R23")
def test_in_place_over_a_value_that_is_still_read(tmp_path: Path) -> None:
    text = model(
        """g (float[64] x) => (float[64] y) {
          a = Exp(x)
          b = Neg(a)
          y = Add(b, a)
        }"""
    )
    case = onnx_case(tmp_path, text, PlanOptions(inplace=False))
    assert "'y'" in caught(case, over(case.plan, 1, "b", "a"))


@pytest.mark.parametrize(("starts", "ends"), [("0", "1"), ("3", "4"), ("7", "8")])
def test_x_minus_its_own_row_in_place_over_x(tmp_path: Path, starts: str, ends: str) -> None:
    """Rule 3's trap: the row is a view of what is overwritten, wherever it lies."""
    text = model(
        f"""g (float[8,4] i) => (float[8,4] y) <int64[1] s = {{{starts}}}, int64[1] e = {{{ends}}}>
        {{
          x = Exp(i)
          r = Slice(x, s, e)
          z = Sub(x, r)
          y = Neg(z)
        }}"""
    )
    case = onnx_case(tmp_path, text, PlanOptions(inplace=False, align=1))
    assert any(a.how == "view" and a.output == "r" for a in case.plan.aliases)
    assert case.run().ok
    assert "'z'" in caught(case, over(case.plan, 2, "z", "x"))


def test_an_operand_shifted_under_the_result(tmp_path: Path) -> None:
    """numpy would copy operands that overlap a result; the executor must not be saved by it."""
    text = model(
        """g (float[8,4] i) => (float[8,4] y) {
          x = Exp(i)
          h = Neg(i)
          z = Add(x, h)
          y = Neg(z)
        }"""
    )
    case = onnx_case(tmp_path, text, PlanOptions(inplace=False, align=4))
    x = case.plan.buffers[buffer_of(case.plan, "x")].offset
    shifted = over(moved(case.plan, x=x + 4096, h=x + 4096 + 16), 2, "z", "x")
    assert "'z'" in caught(case, shifted) or "'h'" in caught(case, shifted)


@pytest.mark.req("R47")
def test_an_input_of_the_caller_is_guarded(tmp_path: Path) -> None:
    text = model("g (float[64] x) => (float[64] y) { h = Neg(x) y = Exp(h) }")
    case = onnx_case(tmp_path, text)
    places = [place for buffer in case.plan.external for place in buffer.tensors]
    (space,) = [n for n, b in enumerate(case.plan.external) if b.tensors[0].tensor == "x"]
    stolen = replace(places[0], tensor="h")
    external = list(case.plan.external)
    external[space] = replace(external[space], tensors=[*external[space].tensors, stolen])
    buffers = [
        replace(b, tensors=[p for p in b.tensors if p.tensor != "h"]) for b in case.plan.buffers
    ]
    alias = PlannedAlias(op=0, output="h", input="x", how="inplace")
    aliases = [a for a in case.plan.aliases if a.output != "y"]
    plan = replace(case.plan, external=external, buffers=buffers, aliases=[*aliases, alias])
    report = case.run(plan)
    assert report.outputs_equal  # the numbers are right, and yet the caller's memory is not
    assert not report.guards_intact
    assert not report.ok
    assert not case.accepted(plan)


def test_workspace_over_an_operand() -> None:
    case = byte_case(
        "input x: uint8[64]\nh: uint8[64] = relu(x)\n"
        "w: uint8[64] = opaque(h) workspace=64\noutput w"
    )
    assert case.run().ok
    (scratch,) = [n for n, b in enumerate(case.plan.buffers) if b.what == "workspace"]
    host = case.plan.buffers[buffer_of(case.plan, "h")].offset
    buffers = list(case.plan.buffers)
    buffers[scratch] = replace(buffers[scratch], offset=host)
    assert "'w'" in caught(case, replace(case.plan, buffers=buffers))


def test_workspace_over_a_result() -> None:
    case = byte_case(
        "input x: uint8[64]\nw: uint8[64] = opaque(x) workspace=64\n"
        "y: uint8[64] = opaque(w)\noutput y"
    )
    (scratch,) = [n for n, b in enumerate(case.plan.buffers) if b.what == "workspace"]
    host = case.plan.buffers[buffer_of(case.plan, "w")].offset
    buffers = list(case.plan.buffers)
    buffers[scratch] = replace(buffers[scratch], offset=host)
    assert "'w'" in caught(case, replace(case.plan, buffers=buffers))


def test_a_buffer_that_is_said_to_die_before_its_last_reader() -> None:
    case = byte_case(
        "input x: uint8[64]\na: uint8[64] = opaque(x)\nb: uint8[64] = opaque(a)\n"
        "c: uint8[64] = opaque(b, a)\noutput c"
    )
    at = buffer_of(case.plan, "a")
    buffers = list(case.plan.buffers)
    live = [replace(piece, stop=piece.stop - 1) for piece in buffers[at].live]
    buffers[at] = replace(buffers[at], live=live)
    assert "'c'" in caught(case, replace(case.plan, buffers=buffers))


@pytest.mark.req("R10")
def test_an_output_overwritten_after_it_was_made() -> None:
    case = byte_case(
        "input x: uint8[64]\na: uint8[64] = opaque(x)\nb: uint8[64] = opaque(x)\noutput a, b"
    )
    plan = moved(case.plan, b=case.plan.buffers[buffer_of(case.plan, "a")].offset)
    assert caught(case, plan) == "an output was overwritten after it was made"


def test_a_forged_view() -> None:
    case = byte_case(
        "input x: uint8[64]\na: uint8[64] = opaque(x)\nb: uint8[64] = opaque(a)\noutput b"
    )
    plan = moved(case.plan, b=case.plan.buffers[buffer_of(case.plan, "a")].offset)
    alias = PlannedAlias(op=1, output="b", input="a", how="view")
    assert "'b'" in caught(case, replace(plan, aliases=[alias]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: replace(p, order=[0, 0, 2]), "no permutation"),
        (lambda p: replace(p, arena_bytes=64), "outside its memory"),
        (lambda p: replace(p, buffers=p.buffers[1:]), "'a' has no place"),
        (lambda p: replace(p, buffers=[*p.buffers, p.buffers[0]]), "two places"),
        (lambda p: replace(p, graph=replace(p.graph, digest="0")), "another graph"),
    ],
)
def test_what_cannot_be_laid_out_at_all_is_refused(change, message: str) -> None:
    case = byte_case(
        "input x: uint8[64]\na: uint8[64] = opaque(x)\nb: uint8[64] = opaque(a)\n"
        "c: uint8[64] = opaque(b, a)\noutput c"
    )
    with pytest.raises(InvalidPlan, match=message):
        case.run(change(case.plan))


@given(graphs(), OPTIONS)
def test_every_plan_of_the_planner_runs_right(graph: Graph, options: PlanOptions) -> None:
    report = byte_case(graph, options).run()
    assert report.ok, report.detail


@given(graphs(), OPTIONS, st.data())
def test_what_judge_3_rejects_judge_2_rejects(
    graph: Graph, options: PlanOptions, data: st.DataObject
) -> None:
    case = byte_case(graph, options)
    assume(case.plan.buffers)
    mutant = data.draw(mutations(case.plan))
    assume(mutant != case.plan)
    try:
        report = case.run(mutant)
    except InvalidPlan:
        assert not case.accepted(mutant)
        return
    if not report.ok:
        assert not case.accepted(mutant), report.detail


def test_most_mutants_that_judge_2_rejects_for_their_values_go_wrong_in_numbers() -> None:
    """The property above is not empty: a move onto a living neighbour shows in both."""
    case = byte_case(
        "input x: uint8[64]\na: uint8[64] = opaque(x)\nb: uint8[64] = opaque(a)\n"
        "c: uint8[64] = opaque(b)\nd: uint8[64] = opaque(a, c)\ne: uint8[64] = add(b, d)\noutput e",
        PlanOptions(inplace=False),
    )
    count = 0
    for one in range(len(case.plan.buffers)):
        for two in range(one):
            buffers = list(case.plan.buffers)
            buffers[one] = replace(buffers[one], offset=buffers[two].offset)
            plan = replace(case.plan, buffers=buffers)
            assert case.run(plan).ok == case.accepted(plan)
            count += not case.accepted(plan)
    assert count >= 5


def test_a_run_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    one, two = (onnx_case(tmp_path, CONV) for _ in range(2))
    assert one.expected.made == two.expected.made
    program = with_fields(one.program, feeds={"x": np.ones((1, 2, 6, 6), np.float32)})
    assert program.feeds["x"].tobytes() != one.program.feeds["x"].tobytes()
