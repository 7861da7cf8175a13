"""Whole models with results over parts of operands, on the interpreter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from peakfold.frontends import load
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.runtimes.tflite.apply_plan import apply_plan
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.interpreter import Job, equal_outputs, run, varied
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import offline_offsets, parse_model
from tests.runtimes.tflite.models import path_of

# Bytes without and with overlap. The first are the lower bounds of these orders and buffers; the
# second are met by the interpreter's own report.
FIGURES = {
    "models/tflite/person_detect": (55_296, 36_880),
    "models/tflite/micro_speech_quantized": (5_968, 4_176),
    "models/tflite/face_detection_short_range": (1_310_720, 917_504),
    "data/mlperf_tiny/kws_ref_model": (16_000, 9_792),
    "data/mlperf_tiny/pretrainedResnet": (196_608, 133_248),
    "data/mlperf_tiny/vww_96_float": (221_184, 147_488),
}
PROVEN = {
    "models/tflite/person_detect",
    "models/tflite/micro_speech_quantized",
    "data/mlperf_tiny/kws_ref_model",
    "data/mlperf_tiny/vww_96_float",
}


@pytest.mark.shared
@pytest.mark.req("TFL7")
@pytest.mark.parametrize("name", FIGURES)
def test_models_below_their_bound_without_overlap(name: str, tmp_path: Path) -> None:
    path = path_of(name)
    graph = load(path).graph
    options = PlanOptions(target="tflm", fold_weights="face" in name)
    result = make_plan(graph, options)
    summary = result.summary
    assert (summary.arena_apart_bytes, summary.arena_bytes) == FIGURES[name]
    assert summary.optimal
    assert summary.any_order_bound_bytes <= summary.arena_bytes
    assert summary.order_optimal or name not in PROVEN
    assert all(check.ok for check in verify_plan(graph, result.plan))

    jobs = []
    for what, plan in (
        ("overlapping", result.plan),
        ("apart", make_plan(graph, replace(options, overlap=False)).plan),
    ):
        applied = apply_plan(path, graph, plan)
        assert applied.obeys
        assert applied.head == plan.arena_bytes
        file = tmp_path / f"{what}.tflite"
        file.write_bytes(applied.data)
        assert judge_file(file).ok
        jobs.append(Job(file, 8_000_000, len(graph.inputs), len(graph.outputs), seeds=(1, 2)))
    ours, theirs = (run(job) for job in jobs)
    assert (ours.head, theirs.head) == FIGURES[name][::-1]
    assert equal_outputs(ours, theirs)
    assert varied(ours)


@pytest.mark.shared
@pytest.mark.req("TFL6", "TFL7")
def test_one_step_nearer_is_rejected_and_gives_other_numbers(tmp_path: Path) -> None:
    path = path_of("models/tflite/person_detect")
    graph = load(path).graph
    plan = make_plan(graph, PlanOptions(target="tflm")).plan
    data = apply_plan(path, graph, plan).data
    table = offline_offsets(parse_model(data))
    assert table is not None
    # The widest convolution writes 36,864 bytes from the arena's start on; its input lies above.
    over = next(a for a in plan.aliases if a.how == "overlap")
    places = {p.tensor: b.offset + p.offset for b in plan.buffers for p in b.tensors}
    distance = places[over.input] - places[over.output]
    assert distance == 18_448
    moved = {(0, at): offset for at, offset in enumerate(table) if offset >= 0}
    source = next(at for at, offset in enumerate(table) if offset == places[over.input])
    near = tmp_path / "near.tflite"
    for by, fine in ((0, True), (-9, True), (-10, False)):
        moved[0, source] = places[over.input] + by
        near.write_bytes(rewrite(data, Edit(offsets=moved)))
        check = judge_file(near)
        assert check.ok is fine, check.detail
    assert "still reads" in check.detail
    moved[0, source] = places[over.input] - 9_216
    near.write_bytes(rewrite(data, Edit(offsets=moved)))
    job = Job(near, 400_000, 1, 1, seeds=(1, 2, 3))
    assert not equal_outputs(run(job), run(replace(job, model=path)))
