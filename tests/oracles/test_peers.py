"""Peers' own cases: our answer is valid, and never worse than theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peakfold.app.custom_ops import with_handlers
from peakfold.packing import Packing, Problem
from peakfold.planning.aliasing import build as storage

from . import peers, peers_tflite

CASES = peers.cases()
# PyTorch's counter runs here; of a step with fused attention it counts the products instead.
OURS = [
    case for case in CASES if case["suite"].startswith("flop_counter") and case["name"] != "sdn"
]


def marked(case: peers.Case) -> Any:
    marks = [pytest.mark.torch] if case["kind"] == "count" else []
    return pytest.param(case, marks=marks, id=peers.name(case))


@pytest.mark.req("R43", "R54")
@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_never_worse_than_a_peer(case: peers.Case) -> None:
    assert not peers.complaint(case)


def some(suite: str, name: str) -> peers.Case:
    return next(c for c in peers.cases() if (c["suite"], c["name"]) == (suite, name))


@pytest.mark.torch
@pytest.mark.parametrize("case", OURS, ids=map(peers.name, OURS))
def test_what_is_built_is_what_the_peer_counts(case: peers.Case) -> None:
    from . import peers_counts

    assert [peers_counts.by_the_peer(case)] == list(case["expect"].values())


def test_a_broken_packer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def piled(problem: Problem, **_: Any) -> Packing:
        found = pack(problem)
        offsets = np.concatenate([[0], np.cumsum(problem.size)[:-1]])
        return replace(found, offsets=offsets, height=int(problem.size.sum()))

    def flat(problem: Problem, **_: Any) -> Packing:
        found = pack(problem)
        return replace(found, offsets=np.zeros_like(found.offsets))

    case, pack = some("xla-heap", "BestFit"), peers.pack
    made = some("omnimalloc-sources", "sync-ring")
    for broken, said in ((piled, "the peer's"), (flat, "share")):
        monkeypatch.setattr(peers, "pack", broken)
        assert said in peers.complaint(case)
        assert said in peers.complaint(made)


def test_a_broken_rule_of_the_arena_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    case = some("tflm-arena", "models/person_detect.tflite")
    right = peers_tflite.predict_arena
    monkeypatch.setattr(
        peers_tflite,
        "predict_arena",
        lambda *asked: replace(right(*asked), tail=right(*asked).tail - 16),
    )
    assert "the peer's" in peers.complaint(case)
    assert "does not start" in next(peers_tflite.started([case["name"]]))


@pytest.mark.torch
def test_a_broken_rule_of_a_count_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from . import peers_counts

    right = peers_counts.cost_of
    monkeypatch.setattr(
        peers_counts,
        "cost_of",
        lambda graph: right(graph, table=with_handlers(graph, {"linear": lambda ctx: 159})),
    )
    assert ", not {'macs': 160}" in peers.complaint(some("fvcore", "nn.Linear"))


def test_a_broken_rule_of_reuse_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    case = some("xla-buffer-assignment", "ColocatedDynamicUpdateSlice")
    monkeypatch.setattr(storage._Builder, "_may_overwrite", lambda *_: False)
    assert "the peer's 400" in peers.complaint(case)
