"""Every plan of the shared models is proven to be packed as low as its order allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from peakfold.frontends import Bindings, load
from peakfold.packing import Problem, pack, violations_naive
from peakfold.planning import PlanOptions, PlanResult, make_plan

LARGE = 50
BINDINGS = {
    "ppocrv4_det": ((), ("x=1x3x320x320",)),
    "silero_vad_16k_op15": (("batch=1", "sequence=512"), ()),
    "mtcnn_pnet": (("N=1", "M1=224", "M2=224"), ()),
    "basic_pitch_nmp": (("unk__749=1",), ()),
}
ASKED: dict[str, dict[str, object]] = {
    "generic": {},
    "unaligned": {"align": 1},
    "inputs inside": {"inputs": "reusable"},
    "best order": {"order": "best"},
    "no views": {"views": False, "inplace": False},
    "2 lanes": {"lanes": 2},
    "free": {"lanes": 0},
}

pytestmark = pytest.mark.shared


Plans = Callable[[str], dict[str, PlanResult]]


@pytest.fixture(scope="module")
def plans(onnx_models: list[Path]) -> Plans:
    """All models planned as asked, once."""
    models = {
        path.stem: load(path, Bindings.parse(*BINDINGS.get(path.stem, ((), ()))))
        for path in onnx_models
    }

    @cache
    def made(asked: str) -> dict[str, PlanResult]:
        options = PlanOptions(**ASKED[asked])
        return {name: make_plan(m.graph, options, m.bindings) for name, m in models.items()}

    return made


@pytest.mark.parametrize("asked", ASKED)
def test_every_plan_is_proven_and_the_large_ones_too(plans: Plans, asked: str) -> None:
    proven: dict[str, list[str]] = {"small": [], "large": []}
    gaps: dict[str, tuple[int, int]] = {}
    for name, result in plans(asked).items():
        summary = result.summary
        if summary.optimal:
            proven["large" if len(result.context.graph.ops) > LARGE else "small"].append(name)
            assert summary.arena_bytes == summary.lower_bound_bytes
        else:
            gaps[name] = (summary.lower_bound_bytes, summary.arena_bytes)
    assert gaps == {}
    assert len(proven["large"]) >= 9
    assert len(proven["small"]) >= 5


def by_size(problem: Problem) -> int:
    """Height of the plainest greedy: largest first, each at the lowest address that is free.

    Written again here, pairs and all, so that it shares nothing with the planner.
    """
    pieces = [range(problem.first[b], problem.first[b + 1]) for b in range(problem.buffers)]
    placed: list[tuple[int, int]] = []
    for b in sorted(range(problem.buffers), key=lambda b: -problem.size[b]):
        if not problem.alive[b]:
            continue
        size, align = int(problem.size[b]), int(problem.align[b])
        near = sorted(
            (low, low + int(problem.size[c]))
            for c, low in placed
            if any(
                max(problem.start[p], problem.start[q]) < min(problem.stop[p], problem.stop[q])
                for p in pieces[b]
                for q in pieces[c]
            )
        )
        at = 0
        for low, high in near:
            if at + size <= low:
                break
            at = max(at, -(-high // align) * align)
        placed.append((b, at))
    offsets = np.zeros(problem.buffers, dtype=np.int64)
    for b, at in placed:
        offsets[b] = at
    assert violations_naive(problem, offsets) == []
    return problem.height(offsets)


@pytest.mark.parametrize("asked", ["generic", "unaligned", "inputs inside", "no views"])
def test_no_plan_is_above_the_plainest_greedy(plans: Plans, asked: str) -> None:
    better = 0
    for name, result in plans(asked).items():
        problem = result.layout.timeline.problem(result.context.policies.align)
        plain = by_size(problem)
        assert pack(problem).height <= plain, name
        assert result.summary.arena_bytes <= plain, name
        better += result.summary.arena_bytes < plain
    assert better > 0
