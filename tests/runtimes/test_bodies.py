"""Bodies of control flow run by their own plans, in the workspace of their op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from peakfold.errors import InvalidPlan
from peakfold.frontends import Bindings, load
from peakfold.planning import PlanOptions
from tests.frontends.models import model, save

from .helpers import Case, case_of, replace

IF = model(
    """g (bool c, float[8] x) => (float[8] y) {
      h = Exp(x)
      z = If(c) <
        then_branch = a () => (float[8] t) {
          big = Concat<axis = 0>(h, h, h)
          two = Mul(big, big)
          one = Constant<value_ints = [3]>()
          eight = Constant<value_ints = [11]>()
          t = Slice(two, one, eight)
        },
        else_branch = b () => (float[8] e) { p = Neg(h) q = Exp(p) e = Sub(q, h) }
      >
      y = Add(z, h)
    }"""
)
SAME = model(
    """g (bool c, float[4] x) => (float[n] y) {
      h = Exp(x)
      y = If(c) <
        then_branch = a () => (float[4] t) { t = Identity(h) },
        else_branch = b () => (float[12] e) { e = Concat<axis = 0>(h, x, h) }
      >
    }"""
)
LOOP = model(
    """g (float[4] x, bool keep) => (float[4] last, float[n,8] all)
    <int64 trips = {5}, float[4] step = {1.0, -2.0, 0.5, 3.0}>
    {
      last, all = Loop(trips, keep, x) <
        body = step (int64 i, bool go, float[4] v) => (bool more, float[4] w, float[8] row) {
          more = Identity(go)
          s = Add(v, step)
          u = Sin(s)
          w = Sub(u, v)
          row = Concat<axis = 0>(w, s)
        }
      >
    }"""
)
SCAN = model(
    """g (float[2] s, float[6,2] xs) => (float[2] last, float[6,4] ys) {
      last, ys = Scan(s, xs) <num_scan_inputs = 1,
        body = step (float[2] state, float[2] x) => (float[2] next, float[4] y) {
          sum = Add(state, x)
          cut = Sin(sum)
          next = Identity(cut)
          y = Concat<axis = 0>(sum, x)
        }
      >
    }"""
)
NESTED = model(
    """g (bool c, float[4] x) => (float[4] y) <int64 trips = {3}, bool true = {1}> {
      h = Exp(x)
      y = Loop(trips, true, x) <
        body = step (int64 i, bool go, float[4] v) => (bool more, float[4] w) {
          more = Identity(go)
          w = If(c) <
            then_branch = a () => (float[4] t) { a1 = Neg(v) a2 = Sin(a1) t = Mul(a2, h) },
            else_branch = b () => (float[4] e) { b1 = Sin(v) b2 = Neg(b1) e = Add(b2, h) }
          >
        }
      >
    }"""
)
TEXTS = {"if": IF, "same": SAME, "loop": LOOP, "scan": SCAN, "nested": NESTED}


def case(folder: Path, name: str, seed: int = 0, **options: Any) -> Case:
    path = save(folder / "m.onnx", TEXTS[name])
    loaded = load(path, Bindings())
    return case_of(loaded, PlanOptions(**{"align": 4, **options}), seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", TEXTS)
def test_bodies_run_in_the_arena(tmp_path: Path, name: str, seed: int) -> None:
    one = case(tmp_path, name, seed, align=(4, 64)[seed % 2])
    assert one.plan.bodies
    report = one.run()
    assert report.ok, report.detail
    assert report.outputs_equal


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", TEXTS)
def test_bodies_whose_tensors_are_all_kept(tmp_path: Path, name: str, seed: int) -> None:
    """By a target's rule operands, captures included, are copied into the body's own arena."""
    one = case(tmp_path, name, seed, align=16, target="tflm")
    assert {body.plan.policies.inputs for body in one.plan.bodies} == {"reusable"}
    assert one.accepted(one.plan)
    report = one.run()
    assert report.ok, report.detail
    assert report.outputs_equal


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", TEXTS)
def test_our_account_of_control_flow_is_that_of_onnx(tmp_path: Path, name: str, seed: int) -> None:
    one = case(tmp_path, name, seed)
    whole = ReferenceEvaluator(onnx.load(tmp_path / "m.onnx"))
    wanted = whole.run(None, dict(one.program.feeds))
    for output, want in zip(one.program.graph.outputs, wanted, strict=True):
        np.testing.assert_allclose(one.expected.outputs[output], want, rtol=1e-6)


def test_both_branches_are_taken_by_some_seed(tmp_path: Path) -> None:
    taken = {bool(case(tmp_path, "if", seed).program.feeds["c"]) for seed in range(6)}
    assert taken == {True, False}


@pytest.mark.parametrize("name", ["if", "loop", "scan", "nested"])
def test_a_body_whose_plan_is_wrong_is_caught(tmp_path: Path, name: str) -> None:
    verdicts = []
    for seed in range(4):
        one = case(tmp_path, name, seed, inplace=False)
        assert one.run().ok
        flat = [
            replace(
                body,
                plan=replace(body.plan, buffers=[replace(b, offset=0) for b in body.plan.buffers]),
            )
            for body in one.plan.bodies
        ]
        if name == "nested":  # the loop's body is one op; its branches lie a level deeper
            flat = [
                replace(
                    body,
                    plan=replace(
                        body.plan,
                        bodies=[
                            replace(
                                inner,
                                plan=replace(
                                    inner.plan,
                                    buffers=[replace(b, offset=0) for b in inner.plan.buffers],
                                ),
                            )
                            for inner in body.plan.bodies
                        ],
                    ),
                )
                for body in one.plan.bodies
            ]
        wrong = replace(one.plan, bodies=flat)
        assert not one.accepted(wrong)
        verdicts.append(one.run(wrong).ok)
    assert not any(verdicts)


def test_a_scan_may_run_backwards_and_along_other_axes() -> None:
    from peakfold.ir import Op
    from peakfold.runtimes.reference.control import run_control

    attrs = {
        "num_scan_inputs": 1,
        "scan_input_axes": (1,),
        "scan_input_directions": (1,),
        "scan_output_axes": (1,),
        "scan_output_directions": (1,),
    }
    op = Op("s", "scan", ("s", "xs"), ("last", "ys"), attrs)
    xs = np.arange(6.0).reshape(2, 3)
    last, ys = run_control(op, [np.zeros(2), xs], lambda _, v, t: [v[0] + v[1], v[0]])
    np.testing.assert_array_equal(last, xs.sum(axis=1))
    # Row t holds the sum of the columns that came before, from the right; written from the right.
    np.testing.assert_array_equal(ys, [[3.0, 2.0, 0.0], [9.0, 5.0, 0.0]])


def test_a_body_that_overwrites_what_it_captured_is_caught(tmp_path: Path) -> None:
    one = next(c for c in (case(tmp_path, "if", s) for s in range(9)) if not c.program.feeds["c"])
    (body,) = [b for b in one.plan.bodies if b.region == 1]
    external = list(body.plan.external)
    (at,) = [n for n, e in enumerate(external) if e.tensors[0].tensor == "h"]
    external[at] = replace(
        external[at], tensors=[*external[at].tensors, replace(external[at].tensors[0], tensor="p")]
    )
    buffers = [
        replace(b, tensors=[p for p in b.tensors if p.tensor != "p"]) for b in body.plan.buffers
    ]
    plan = replace(body.plan, external=external, buffers=buffers)
    bodies = [replace(b, plan=plan) if b is body else b for b in one.plan.bodies]
    wrong = replace(one.plan, bodies=bodies)
    report = one.run(wrong)
    assert not report.ok
    assert not one.accepted(wrong)


def test_workspace_that_is_too_small_is_refused(tmp_path: Path) -> None:
    one = case(tmp_path, "loop")
    small = [
        replace(b, size=b.size - 4, live=[replace(p, upper=b.size - 4) for p in b.live])
        if b.what == "workspace"
        else b
        for b in one.plan.buffers
    ]
    with pytest.raises(InvalidPlan, match="no slots for 'v'"):
        one.run(replace(one.plan, buffers=small))
    with pytest.raises(InvalidPlan, match="without a plan"):
        one.run(replace(one.plan, bodies=[]))
