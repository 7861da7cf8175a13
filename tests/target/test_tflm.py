"""Targets of TensorFlow Lite Micro: what the CMSIS-NN one claims, and what it does not."""

from __future__ import annotations

import pytest

from peakfold.app.apply import apply
from peakfold.app.measure import measure
from peakfold.errors import InvalidPlan
from peakfold.frontends import load
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.target import load_target
from peakfold.target.formula import Operand
from peakfold.target.scratch import load_scratch
from tests.conftest import ROOT

MODEL = ROOT / "docs" / "examples" / "person_detect.tflite"
REPLACED = {"add", "mul", "max", "min", "softmax", "pad", "transpose", "conv_2d", "fully_connected"}


def image(rows: int, channels: int) -> Operand:
    return Operand("int8", (1, rows, rows, channels), 1)


@pytest.mark.req("TFL8")
def test_published_sizes_hold_for_any_branch() -> None:
    """By hand: two columns of 16-bit numbers padded to four, a window of them, a sum a channel."""
    table = load_scratch("tflm-cmsis")
    bias = Operand("int32", (16,), 4)
    conv = table.sizes("CONV_2D", [image(8, 5), image(3, 5), bias], [image(8, 16)])
    assert conv == (2 * 2 * 48,)  # 3 * 3 * 5 = 45, padded to 48
    depth = table.sizes("DEPTHWISE_CONV_2D", [image(8, 16), image(3, 16), bias], [image(8, 16)])
    assert depth == (2 * 9 * 16,)
    assert table.sizes("AVERAGE_POOL_2D", [image(8, 16)], [image(4, 16)]) == (64,)
    assert table.sizes("RELU", [image(8, 16)], [image(8, 16)]) == ()
    wide = Operand("int16", (1, 8, 8, 5), 2)
    assert table.sizes("CONV_2D", [wide, image(3, 5), bias], [wide]) is None
    assert table.sizes("BATCH_MATMUL", [image(8, 5)], [image(8, 5)]) is None


def test_kernels_that_the_build_replaces_claim_nothing() -> None:
    target = load_target("tflm-cmsis")
    assert not REPLACED & (set(target.inplace_kinds) | set(target.inplace_also))
    assert not target.overlap_kinds
    assert set(target.inplace_kinds) <= set(load_target("tflm").inplace_kinds)


@pytest.mark.req("TFL8")
def test_a_plan_holds_the_published_scratch_and_is_not_measured_here() -> None:
    graph = load(MODEL).graph
    result = make_plan(graph, PlanOptions(target="tflm-cmsis"))
    plan = result.plan
    assert plan.workspace_known
    assert all(check.ok for check in verify_plan(graph, plan))
    assert not any(alias.how == "overlap" for alias in plan.aliases)
    assert sum(buffer.what == "workspace" for buffer in plan.buffers) > 20
    report = apply(MODEL, plan)
    assert report.document.arena_bytes <= plan.arena_bytes
    assert report.document.total_bytes is None
    assert any("not run" in note for note in report.document.notes)
    with pytest.raises(InvalidPlan, match="CMSIS"):
        measure(MODEL, plan)
