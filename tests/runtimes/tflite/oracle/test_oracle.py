"""The interpreter as the oracle of its arena: every call to its allocator, and what starts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from peakfold.runtimes.tflite import steps
from peakfold.runtimes.tflite.schema import operator_name, parse_model
from peakfold.target.arena import load_arena
from tests.conftest import SHARED
from tests.runtimes.tflite.oracle.budgets import AROUND, answers
from tests.runtimes.tflite.oracle.calls import MISSING, Finding, findings, slice_number
from tests.runtimes.tflite.oracle.cases import cases

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

REFUSED = {
    "face_detection_back": "half-precision weights",
    "face_detection_short_range": "half-precision weights",
    "pose_landmark_lite": "half-precision weights",
    "face_detection_full_range_sparse": "sparse weights",
    "selfie_segmentation": "an operator of MediaPipe",
    "selfie_segmentation_landscape": "an operator of MediaPipe",
    "person_detect_vela": "an operator of an NPU",
    "kws_ref_model_float32": "a hybrid convolution",
}
"""Shared files that the interpreter takes at no size, and why."""


@cache
def made() -> dict[str, bytes]:
    """The models of this commit's slice."""
    print(f"slice {slice_number()} of 10")
    return cases(slice_number())


def files() -> dict[str, bytes]:
    """Every shared file."""
    folders = (SHARED / "models" / "tflite", SHARED / "data" / "mlperf_tiny")
    return {p.stem: p.read_bytes() for f in folders for p in sorted(f.glob("*.tflite"))}


def wrong(found: list[Finding]) -> dict[str, str]:
    """What is wrong by model; models that the interpreter refuses are wrong, too."""
    return {one.name: one.wrong or one.refused for one in found if one.wrong or one.refused}


@pytest.mark.req("TFL10")
def test_the_sequence_and_the_size_of_generated_models() -> None:
    """None is skipped: each is traced, equals our steps, and starts in what we print."""
    found = findings(made())
    assert len(found) >= 300
    assert wrong(found) == {}


@pytest.mark.shared
@pytest.mark.req("TFL10")
def test_the_sequence_and_the_size_of_shared_files() -> None:
    found = [one for one in findings(files()) if not one.refused]
    assert wrong(found) == {}
    assert set(files()) - {one.name for one in found} == set(REFUSED)


@pytest.mark.shared
def test_every_operator_that_has_a_row_is_in_some_model() -> None:
    seen = set()
    for data in (*made().values(), *files().values()):
        model = parse_model(data)
        seen |= {operator_name(model, op) for g in model.subgraphs for op in g.operators or ()}
    assert load_arena("tflm").operators <= seen


@pytest.mark.parametrize("broken", ["a look less", "a kept buffer less", "a record too small"])
def test_a_broken_rule_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_arena("tflm")
    some = {name: data for name, data in made().items() if name.startswith(("conv", "SOFTMAX"))}

    class Broken:
        builds = table.builds

        def kernel(self, *given: object) -> object:
            found = table.kernel(*given)  # type: ignore[arg-type]
            assert found is not None
            if broken == "a look less":
                return replace(found, prepare=found.prepare[1:])
            if broken == "a kept buffer less":
                return replace(found, init=found.init[1:])
            return replace(found, params=(64, 8))

    monkeypatch.setattr(steps, "load_arena", lambda _target: Broken())
    found = findings(some)
    assert len(wrong(found)) >= len(some) // 2


@pytest.mark.req("TFL10")
def test_fit_around_the_true_need() -> None:
    """Of the slice, every 32nd model: the answer is right at all five budgets."""
    some = dict(list(made().items())[slice_number() :: 32])
    found = answers(some)
    assert {one.name: (one.need, one.said) for one in found if one.wrong or one.unknown} == {}
    assert all(len(one.said) == len(AROUND) for one in found)
    assert len(found) >= 9
