"""`apply`, `measure` and `verify FILE`, from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import parse_model
from tests.cli.conftest import Call
from tests.runtimes.tflite.build import chain
from tests.runtimes.tflite.models import path_of

KWS = path_of("models/tflite/mww_hey_mycroft")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.tflite"
    path.write_bytes(chain(["RELU", "TANH"]).bytes())
    return path


@pytest.mark.req("TFL5", "TFL6")
def test_plan_apply_verify_measure(call: Call, model: Path, tmp_path: Path) -> None:
    plan, new = tmp_path / "plan.json", tmp_path / "new.tflite"
    assert call("plan", str(model), "--target", "tflm", "-o", str(plan)).exit_code == 0
    done = call("apply", str(model), str(plan), "--to", "tflite", "-o", str(new), "--json")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["written"] == str(new)
    assert (said["arena_bytes"], said["unplanned_bytes"]) == (1024, 2048)
    checked = call("verify", str(new), "--json")
    assert json.loads(checked.stdout)["ok"]
    done = call("measure", str(model), str(plan), "--json", "--self-check")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    keys = ("runtime", "before_bytes", "planned_bytes", "after_bytes", "obeyed", "outputs_equal")
    assert [found[key] for key in keys] == ["tflm", 2048, 1024, 1024, True, True]
    assert found["tensors_equal"] is True
    zero, early = found["controls"]
    assert not zero["rejected"]  # both operators may work in place, so this file is right
    assert not zero["results_differ"]
    assert early["rejected"]
    assert early["results_differ"]
    assert found["after_arena_bytes"] <= found["before_arena_bytes"]
    again = call("apply", str(model), str(plan), "-o", str(new))
    assert again.exit_code == 2
    assert "--force" in again.stderr


@pytest.mark.req("TFL6")
def test_wrong_files_are_rejected(call: Call, model: Path, tmp_path: Path) -> None:
    for name, edit in (
        ("zero", Edit(offsets={(0, 0): 0, (0, 1): 16, (0, 2): 32})),
        ("order", Edit(order={0: [1, 0]})),
    ):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(rewrite(model.read_bytes(), edit))
        done = call("verify", str(path), "--json")
        assert done.exit_code == 5
        assert not json.loads(done.stdout)["ok"]


def test_plans_that_do_not_go_with_the_file(call: Call, model: Path, tmp_path: Path) -> None:
    plan, other = tmp_path / "plan.json", tmp_path / "other.tflite"
    other.write_bytes(chain(["ABS"]).bytes())
    assert call("plan", str(other), "--target", "tflm", "-o", str(plan)).exit_code == 0
    out = tmp_path / "out.tflite"
    for arguments in (
        ("apply", str(model), str(plan), "-o", str(out)),
        ("measure", str(model), str(plan)),
    ):
        done = call(*arguments)
        assert done.exit_code == 5
        assert "another model" in done.stderr
    generic = tmp_path / "generic.json"
    assert call("plan", str(model), "-o", str(generic)).exit_code == 0
    done = call("apply", str(model), str(generic), "-o", str(out))
    assert done.exit_code == 5
    assert "--target tflm" in done.stderr
    assert not out.exists()


def test_calls_that_are_wrong(call: Call, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "m.pf"
    text.write_text("peakfold-graph 1\ninput x: int8[4]\ny: int8[4] = relu(x)\noutput y\n")
    out = str(tmp_path / "out")
    for arguments in (
        ("apply", str(text), "-o", out),
        ("apply", str(model), "--to", "c", "-o", out),
        ("apply", str(tmp_path / "none.tflite"), "-o", out),
        ("measure", str(text)),
        ("verify", str(text)),
        ("measure", str(model), "-o", out),
        ("verify", str(model), "--run"),
        ("measure", str(text), "--scratch"),
    ):
        done = call(*arguments)
        assert done.exit_code == 2, (arguments, done.stderr)
        assert done.stderr.count("\n") == 1


def test_without_a_plan_the_file_means_the_same(call: Call, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tflite"
    assert call("apply", str(model), "-o", str(out)).exit_code == 0
    assert out.read_bytes() == rewrite(model.read_bytes(), Edit())
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(model.read_bytes()[:100])
    done = call("apply", str(broken), "-o", str(tmp_path / "never.tflite"))
    assert done.exit_code == 1
    assert not (tmp_path / "never.tflite").exists()


@pytest.mark.shared
@pytest.mark.req("TFL8")
def test_measured_scratch_goes_into_a_plan(call: Call, tmp_path: Path) -> None:
    model = str(path_of("models/tflite/dtln_noise_suppression"))
    profile, plan = tmp_path / "profile.json", tmp_path / "plan.json"
    assert call("measure", model, "--scratch", "-o", str(profile)).exit_code == 0
    measured = json.loads(profile.read_text())
    assert [op["scratch_bytes"] for op in measured["ops"]] == [1024, 1024, 0, 0]
    flags = ("--target", "tflm", "--profile", str(profile), "-o", str(plan), "--json")
    done = call("plan", model, "--target", "tflm", "--profile", str(profile), "--json")
    with_profile = json.loads(done.stdout)
    without = json.loads(call("plan", model, "--target", "tflm", "--json").stdout)
    # The carried table says the same as the measurement.
    assert with_profile["summary"] == without["summary"]
    assert with_profile["plan"]["buffers"] == without["plan"]["buffers"]
    assert len(with_profile["plan"]["profile"]) == 4
    # Another figure makes another plan, and the judge holds the plan to its own profile.
    measured["ops"][0]["scratch_bytes"] = 4096
    profile.write_text(json.dumps(measured))
    assert call(*("plan", model), *flags[:-1]).exit_code == 0
    larger = json.loads(plan.read_text())
    assert larger["arena_bytes"] > without["summary"]["arena_bytes"]
    assert call("verify", model, str(plan)).exit_code == 0
    larger["profile"][measured["ops"][0]["op"]] = 8192
    plan.write_text(json.dumps(larger))
    assert call("verify", model, str(plan)).exit_code == 5
    done = call("plan", model, "--profile", str(profile))
    assert done.exit_code == 2
    assert "--target tflm" in done.stderr
    profile.write_text("{}")
    assert call("plan", model, "--target", "tflm", "--profile", str(profile)).exit_code == 2


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.req("TFL1", "TFL4")
def test_a_model_with_state_over_twenty_runs(call: Call) -> None:
    done = call("measure", str(KWS), "--self-check", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["runs"] == 20
    assert found["obeyed"]
    assert found["after_bytes"] < found["before_bytes"]
    assert found["outputs_equal"]
    assert found["outputs_vary"]
    assert found["tensors"] > 30
    assert found["tensors_equal"]
    assert all(control["rejected"] for control in found["controls"])


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.req("TFL4")
def test_litert_follows_the_order(call: Call) -> None:
    done = call("measure", str(KWS), "--runtime", "litert", "--json")
    if "not installed" in done.stderr and os.environ.get("CI") != "true":
        pytest.skip("LiteRT is not installed")
    found = json.loads(done.stdout)
    assert found["planned_bytes"] is None
    assert found["obeyed"] is None
    assert found["outputs_equal"]
    assert found["after_bytes"] < found["before_bytes"]  # by order alone


@pytest.mark.shared
def test_halves_need_folding_and_the_error_says_so(call: Call, tmp_path: Path) -> None:
    model = path_of("models/tflite/face_detection_short_range")
    done = call("measure", str(model))
    assert done.exit_code == 1
    assert "--fold-weights" in done.stderr
    out = tmp_path / "folded.tflite"
    assert call("apply", str(model), "--fold-weights", "-o", str(out)).exit_code == 0
    assert len(parse_model(out.read_bytes()).subgraphs[0].operators) == 90
