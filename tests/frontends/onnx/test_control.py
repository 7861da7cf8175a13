"""If, Loop and Scan: bodies are regions, their peak lies inside the op (design, rule 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakfold.errors import ModelError
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, PlanResult, make_plan
from tests.frontends.models import model, read

UNIT = PlanOptions(align=1)


def plan(tmp_path: Path, text: str, *dims: str, shapes: tuple[str, ...] = ()) -> PlanResult:
    graph = read(tmp_path, text, *dims, shapes=shapes).graph
    result = make_plan(graph, UNIT)
    assert all(check.ok for check in verify_plan(graph, result.plan))
    return result


def workspace(result: PlanResult, kind: str) -> int:
    ops = result.context.graph.ops
    return sum(
        b.size
        for b in result.plan.buffers
        if b.what == "workspace" and b.op is not None and ops[b.op].kind == kind
    )


IF = model(
    """g (bool c, uint8[8] x) => (uint8[8] y) {
      y = If(c) <
        then_branch = a () => (uint8[8] t) {
          big = Concat<axis = 0>(x, x, x)
          one = Constant<value_ints = [0]>()
          eight = Constant<value_ints = [8]>()
          t = Slice(big, one, eight)
        },
        else_branch = b () => (uint8[8] e) { p = Concat<axis = 0>(x, x) q = Neg(p)
          zero = Constant<value_ints = [0]>()
          eight2 = Constant<value_ints = [8]>()
          e = Slice(q, zero, eight2)
        }
      >
    }"""
)


def test_if_takes_the_larger_branch(tmp_path: Path) -> None:
    result = plan(tmp_path, IF)
    # then: 24 bytes of `big`; else: 16 of `p`, which `Neg` overwrites; results are the op's own.
    assert workspace(result, "if") == 24
    assert [len(body.plan.order) for body in result.plan.bodies] == [2, 3]
    assert result.summary.arena_bytes == 24 + 8


def test_what_a_branch_captures_is_alive_for_the_whole_op_and_never_overwritten(
    tmp_path: Path,
) -> None:
    text = model(
        """g (bool c, uint8[8] x) => (uint8[8] y) {
          h = Neg(x)
          y = If(c) <
            then_branch = a () => (uint8[8] t) { u = Neg(h) t = Add(u, h) },
            else_branch = b () => (uint8[8] e) { e = Neg(h) }
          >
        }"""
    )
    result = plan(tmp_path, text)
    (op,) = [op for op in result.context.graph.ops if op.kind == "if"]
    assert "h" in op.operands
    assert workspace(result, "if") == 8  # `u` may not take the place of `h`
    assert result.summary.arena_bytes == 8 + 8 + 8


def test_a_condition_that_is_known_leaves_one_branch(tmp_path: Path) -> None:
    text = model(
        """g (uint8[1,8] x) => (uint8[8] y) {
          s = Shape(x)
          zero = Constant<value_int = 0>()
          one = Constant<value_int = 1>()
          first = Gather(s, zero)
          c = Equal(first, one)
          y = If(c) <
            then_branch = a () => (uint8[8] t) {
              axes = Constant<value_ints = [0]>() t = Squeeze(x, axes) },
            else_branch = b () => (uint8[1,8] e) { e = Identity(x) }
          >
        }"""
    )
    result = plan(tmp_path, text)
    assert [op.kind for op in result.context.graph.ops] == ["squeeze", "identity"]


def test_branches_of_different_shape_count_by_the_larger(tmp_path: Path) -> None:
    text = model(
        """g (bool c, uint8[4] x) => (uint8[n] y) {
          y = If(c) <
            then_branch = a () => (uint8[4] t) { t = Identity(x) },
            else_branch = b () => (uint8[12] e) { e = Concat<axis = 0>(x, x, x) }
          >
        }"""
    )
    assert plan(tmp_path, text).summary.output_bytes == 12


LOOP = model(
    """g (uint8[4] x, bool keep) => (uint8[4] last, uint8[n,8] all)
    <int64 trips = {5}>
    {
      last, all = Loop(trips, keep, x) <
        body = step (int64 i, bool go, uint8[4] v) => (bool more, uint8[4] w, uint8[8] row) {
          more = Identity(go)
          w = Neg(v)
          row = Concat<axis = 0>(w, v)
        }
      >
    }"""
)


def test_loop_counts_two_slots_a_carried_value_and_full_scan_outputs(tmp_path: Path) -> None:
    result = plan(tmp_path, LOOP)
    graph = result.context.graph
    assert graph["all"].shape == (5, 8)
    # Every result of the body is carried or collected, so its own arena is empty: 2 slots of 4.
    assert workspace(result, "loop") == 2 * 4
    assert result.summary.arena_bytes == 2 * 4 + 4 + 40


def test_an_unknown_trip_count_is_a_named_error(tmp_path: Path) -> None:
    text = LOOP.replace("<int64 trips = {5}>\n", "").replace(
        "g (uint8[4] x", "g (int64 trips, uint8[4] x"
    )
    graph = read(tmp_path, text).graph
    with pytest.raises(ModelError, match=r"'all'.*trip count.*--shape all="):
        make_plan(graph)
    assert plan(tmp_path, text, shapes=("all=7x8",)).summary.output_bytes == 4 + 56


def test_a_carried_value_that_changes_shape_is_refused_by_name(tmp_path: Path) -> None:
    text = model(
        """g (uint8[4] x, bool keep) => (uint8[n] last) <int64 trips = {5}> {
          last = Loop(trips, keep, x) <
            body = step (int64 i, bool go, uint8[k] v) => (bool more, uint8[m] w) {
              more = Identity(go)
              w = Concat<axis = 0>(v, v)
            }
          >
        }"""
    )
    with pytest.raises(ModelError, match="shape is not known"):
        make_plan(read(tmp_path, text).graph)


def test_scan_slices_its_inputs_and_stacks_its_outputs(tmp_path: Path) -> None:
    text = model(
        """g (uint8[2] s, uint8[6,2] xs) => (uint8[2] last, uint8[6,4] ys) {
          last, ys = Scan<num_scan_inputs = 1>(s, xs) <
            body = step (uint8[2] state, uint8[2] x) => (uint8[2] next, uint8[4] y) {
              sum = Add(state, x)
              next = Identity(sum)
              y = Concat<axis = 0>(sum, x)
            }
          >
        }"""
    ).replace("Scan<num_scan_inputs = 1>(s, xs) <", "Scan(s, xs) <num_scan_inputs = 1, ")
    result = plan(tmp_path, text)
    assert result.context.graph["ys"].shape == (6, 4)
    # `sum` is read by both results: 2 bytes of arena, and two slots of 2 for the state.
    assert workspace(result, "scan") == 2 + 2 * 2
