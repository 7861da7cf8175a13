"""`peakfold verify --run`."""

from __future__ import annotations

import json
from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from peakfold.cli import main
from peakfold.planning import PlanOptions, encode_plan, make_plan
from peakfold.runtimes.reference import run as reference
from peakfold.transform.backward import Train
from peakfold.transform.split import Split
from tests.frontends.models import model, read

from .helpers import replace

TEXT = model("g (float[n,8] x) => (float[n,8] y) { h = Exp(x) y = Neg(h) }")

CONV = model(
    """g (float[1,1,8,8] x) => (float[1,1,8,8] y)
    <float[1,1,3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
    {
      h = Conv<pads = [1, 1, 1, 1]>(x, w)
      y = Relu(h)
    }"""
)


@pytest.fixture
def planned(tmp_path: Path) -> tuple[str, str]:
    loaded = read(tmp_path, TEXT, "n=3")
    plan = make_plan(loaded.graph, None, loaded.bindings).plan
    path = tmp_path / "plan.json"
    path.write_bytes(encode_plan(plan))
    return loaded.path, str(path)


def verify(*args: str):
    return CliRunner().invoke(main, ["verify", *args], standalone_mode=False)


def checks(result) -> dict[str, bool]:
    return {check["name"]: check["ok"] for check in json.loads(result.stdout)["checks"]}


def test_run_adds_one_check_with_the_plans_own_bindings(planned: tuple[str, str]) -> None:
    assert "run" not in checks(verify(*planned, "--json"))
    found = checks(verify(*planned, "--run", "--json"))
    assert list(found)[-1] == "run"
    assert all(found.values())
    assert "2 results and 1 outputs equal" in verify(*planned, "--run").stdout


@pytest.mark.parametrize("options", [PlanOptions(split=Split("y", 2)), PlanOptions(train=Train())])
def test_ops_that_only_the_recipe_makes_run_on_stand_in_kernels(
    tmp_path: Path, options: PlanOptions
) -> None:
    loaded = read(tmp_path, CONV)
    path = tmp_path / "plan.json"
    path.write_bytes(encode_plan(make_plan(loaded.graph, options).plan))
    result = verify(str(loaded.path), str(path), "--run")
    assert result.exit_code == 0
    assert "stand-in kernels" in result.stdout


def test_a_plan_that_is_wrong_on_paper_is_not_run(planned: tuple[str, str], tmp_path: Path) -> None:
    from peakfold.planning import decode_plan

    plan = decode_plan(Path(planned[1]).read_bytes())
    path = tmp_path / "wrong.json"
    path.write_bytes(encode_plan(replace(plan, order=plan.order[::-1])))
    result = verify(planned[0], str(path), "--run", "--json")
    assert "run" not in checks(result)
    assert result.exit_code == 5


def test_numbers_that_differ_fail_the_verification(
    planned: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that judges 1 and 2 cannot see: here, a kernel that is not what it says."""
    judge = reference.judge

    def lying(program, *args, **kwargs):
        kernels = list(program.kernels)
        kernels[1] = with_fields(kernels[1], into=lambda given, out: out.fill(0))
        return judge(with_fields(program, kernels=tuple(kernels)), *args, **kwargs)

    monkeypatch.setattr(reference, "judge", lying)
    result = verify(*planned, "--run", "--json")
    assert checks(result)["run"] is False
    assert result.exit_code == 5
