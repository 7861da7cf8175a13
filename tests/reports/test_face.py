from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import peakfold
from peakfold.errors import InvalidPlan, UsageError
from peakfold.ir import parse_graph
from peakfold.reports.text.budget import budget_miss

from . import graphs


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.pf"
    path.write_text(graphs.CHAIN)
    return path


def test_plan_save_verify(chain: Path, tmp_path: Path) -> None:
    result = peakfold.plan(chain)
    result.save(tmp_path / "p.json")
    verdict = peakfold.verify(chain, tmp_path / "p.json")
    assert verdict
    assert verdict.ok
    assert "The plan is valid." in repr(verdict)
    with pytest.raises(UsageError, match="exists already"):
        result.save(tmp_path / "p.json")


def test_a_result_prints_as_its_report(chain: Path) -> None:
    text = repr(peakfold.plan(chain))
    assert text.startswith("chain.pf")
    assert "Memory over time" in text
    first, second, *_ = repr(peakfold.inspect(chain)).splitlines()
    assert first == "64 params, 192 FLOPs, 2 KiB memory access, 2.048 KB/s bandwidth"
    assert second.startswith("chain.pf")


def test_the_same_model_by_path_by_graph_and_loaded(chain: Path) -> None:
    loaded = peakfold.load(chain)
    plans = [peakfold.plan(model).plan for model in (chain, str(chain), loaded, loaded.graph)]
    assert all(plan == plans[0] for plan in plans)


def test_dims_are_recorded_and_used_by_verify(tmp_path: Path) -> None:
    path = tmp_path / "n.pf"
    path.write_text("peakfold-graph 1\ninput x: int8[n,64]\ny: int8[n,64] = relu(x)\noutput y\n")
    result = peakfold.plan(path, dims={"n": 3})
    assert result.summary.input_bytes == 192
    assert peakfold.verify(path, result)
    with pytest.raises(peakfold.ModelError, match="--dim n=N"):
        peakfold.plan(path)


def test_a_plan_with_dims_of_another_model_is_refused(chain: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.pf"
    path.write_text("peakfold-graph 1\ninput x: int8[n]\ny: int8[n] = relu(x)\noutput y\n")
    with pytest.raises(InvalidPlan, match="another model"):
        peakfold.verify(chain, peakfold.plan(path, dims={"n": 3}))
    with pytest.raises(UsageError, match="no such file"):
        peakfold.verify(tmp_path / "gone.pf", peakfold.plan(path, dims={"n": 3}))


def test_wrong_options_are_named(chain: Path) -> None:
    with pytest.raises(UsageError, match="no option 'lines'"):
        peakfold.plan(chain, lines=2)
    with pytest.raises(UsageError, match="go with a path"):
        peakfold.plan(parse_graph(graphs.CHAIN), dims={"n": 1})


def test_budget_misses_say_what_is_proven(chain: Path) -> None:
    def miss(**options: Any) -> str:
        return budget_miss(peakfold.plan(chain, **options).result) or "fits"

    assert miss(arena_budget=256) == "fits"
    assert "the arena needs 256 B (256 B)" in miss(arena_budget=255)
    assert "every order needs 256 B" in miss(arena_budget=255)
    assert "mode arena may need less" in miss(arena_budget=500, mode="naive")
    beside = 2 * 256  # the input and the parameter
    assert miss(budget=256 + beside, arena_budget=256) == "fits"
    assert "the plan needs 768 B (768 B)" in miss(budget=767)
    assert "every order needs 768 B" in miss(budget=767)
    assert "mode arena may need less" in miss(budget=1000, mode="naive")
    assert peakfold.plan(chain, arena_budget="256B").summary.fits is True
    assert peakfold.plan(chain, budget="256B").summary.fits is False


HEAVY = "numpy", "onnx", "rich", "click"
LAZY = f"import sys, {{module}}; print([m for m in {HEAVY} if m in sys.modules])"


def loaded_by(module: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LAZY.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_importing_peakfold_loads_no_framework() -> None:
    assert loaded_by("peakfold") == "[]"


def test_the_test_above_can_fail() -> None:
    assert "numpy" in loaded_by("peakfold, peakfold.planning.planner")
    assert "click" in loaded_by("peakfold.cli.group")


def test_public_names_exist_and_are_pinned() -> None:
    assert sorted(peakfold.__all__) == sorted(
        [
            "__version__",
            "apply",
            "cost",
            "inspect",
            "load",
            "measure",
            "pack",
            "plan",
            "verify",
            "Example",
            "Graph",
            "Plan",
            "PlanOptions",
            "Summary",
            "BackendMissing",
            "DoesNotFit",
            "InvalidPlan",
            "ModelError",
            "PeakfoldError",
            "TimeLimit",
            "UsageError",
        ]
    )
    assert all(getattr(peakfold, name) is not None for name in peakfold.__all__)
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = peakfold.nothing_like_this
