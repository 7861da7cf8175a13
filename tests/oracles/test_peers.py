"""Peers' own cases: our answer is valid, and never worse than theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peakfold.packing import Packing, Problem
from peakfold.planning import storage

from . import peers

CASES = [case for case in peers.cases() if not peers.skipped(case)]


@pytest.mark.req("R43", "R54")
@pytest.mark.parametrize("case", CASES, ids=map(peers.name, CASES))
def test_never_worse_than_a_peer(case: peers.Case) -> None:
    assert not peers.complaint(case)


def some(suite: str, name: str) -> peers.Case:
    return next(c for c in peers.cases() if (c["suite"], c["name"]) == (suite, name))


def test_only_models_of_others_are_skipped() -> None:
    assert {case["kind"] for case in peers.cases() if peers.skipped(case)} <= {"tflite"}


def test_a_broken_packer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def piled(problem: Problem, **_: Any) -> Packing:
        found = pack(problem)
        offsets = np.concatenate([[0], np.cumsum(problem.size)[:-1]])
        return replace(found, offsets=offsets, height=int(problem.size.sum()))

    def flat(problem: Problem, **_: Any) -> Packing:
        found = pack(problem)
        return replace(found, offsets=np.zeros_like(found.offsets))

    case, pack = some("xla-heap", "BestFit"), peers.pack
    for broken, said in ((piled, "the peer's 140"), (flat, "share")):
        monkeypatch.setattr(peers, "pack", broken)
        assert said in peers.complaint(case)


def test_a_broken_rule_of_the_arena_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    case = some("tflm-arena", "models/person_detect.tflite")
    if peers.skipped(case):
        pytest.skip(peers.skipped(case))
    right = peers.predict_arena
    monkeypatch.setattr(
        peers, "predict_arena", lambda *asked: replace(right(*asked), tail=right(*asked).tail - 16)
    )
    assert "the interpreter's" in peers.complaint(case)


def test_a_broken_rule_of_reuse_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    case = some("xla-buffer-assignment", "ColocatedDynamicUpdateSlice")
    monkeypatch.setattr(storage._Builder, "_may_overwrite", lambda *_: False)
    assert "the peer's 400" in peers.complaint(case)
