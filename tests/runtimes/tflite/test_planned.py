"""Plans of real models in their files, obeyed by the interpreter to the byte."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from peakfold.errors import InvalidPlan
from peakfold.frontends import load
from peakfold.ir import Graph
from peakfold.judges.plan import verify_plan
from peakfold.planning import Plan, PlanOptions, make_plan
from peakfold.runtimes.tflite.apply_plan import Applied, apply_plan
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.interpreter import Job, Outcome, equal_outputs, run_all, varied
from peakfold.runtimes.tflite.schema import Signature, parse_model
from tests.runtimes.tflite.models import FOLDED, SHIPPED, path_of, runnable

MOST = {
    "models/tflite/pose_landmark_lite": 6_817_024,
    "models/tflite/basic_pitch_nmp": 4_177_536,
    "models/tflite/face_detection_short_range": 1_310_720,
    "models/tflite/audio_preprocessor_int8": 3_040,
    "models/tflite/person_detect": 55_295,  # its bound where nothing overlaps is 55,296
}
"""Bytes that a searched order must not exceed."""


@dataclass(frozen=True)
class Planned:
    graph: Graph
    plan: Plan
    applied: Applied


@cache
def planned(name: str) -> Planned:
    loaded = load(path_of(name))
    options = PlanOptions(target="tflm", order="best", fold_weights=name in FOLDED)
    plan = make_plan(loaded.graph, options).plan
    return Planned(loaded.graph, plan, apply_plan(path_of(name), loaded.graph, plan))


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.req("TFL5", "TFL1")
@pytest.mark.parametrize("name", [*SHIPPED, *FOLDED], ids=lambda name: Path(name).name)
def test_every_model_obeys_its_plan(name: str, tmp_path: Path) -> None:
    found = planned(name)
    plan, applied = found.plan, found.applied
    assert all(check.ok for check in verify_plan(found.graph, plan))
    assert plan.workspace_known
    assert applied.obeys
    assert applied.head == plan.arena_bytes <= applied.unplanned
    assert plan.arena_bytes <= MOST.get(name, applied.unplanned)
    path, plain = tmp_path / "planned.tflite", tmp_path / "plain.tflite"
    path.write_bytes(applied.data)
    plain.write_bytes(runnable(name))
    check = judge_file(path)
    assert check.ok, check.detail
    shape = Signature.of(parse_model(applied.data))
    seeds = tuple(range(20)) if "mww" in name else (1, 2, 3)
    before, after = run_all(
        [Job(one, 1 << 25, shape.inputs, shape.results, seeds) for one in (plain, path)]
    )
    assert isinstance(before, Outcome), before
    assert isinstance(after, Outcome), after
    assert (before.head, after.head) == (applied.unplanned, plan.arena_bytes)
    assert equal_outputs(before, after)
    # A wake word is not in the noise: the two models that never fire are compared elsewhere.
    assert varied(before) or name.endswith(("alexa", "jarvis"))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (PlanOptions(), "target"),
        (PlanOptions(target="tflm", mode="naive"), "offsets"),
        (PlanOptions(target="tflm", lanes=2), "one operator at a time"),
    ],
)
def test_plans_a_file_cannot_carry(options: PlanOptions, why: str) -> None:
    path = path_of("models/tflite/hello_world_int8")
    graph = load(path).graph
    with pytest.raises(InvalidPlan, match=why):
        apply_plan(path, graph, make_plan(graph, options).plan)
