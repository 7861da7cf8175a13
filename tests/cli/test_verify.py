"""`verify`: what a plan file says is derived, claimed or refused with 5, whatever stands in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Call

MODEL = """peakfold-graph 1
input x: float32[batch,8]
a: float32[batch,8] = relu(x)
b: float32[batch,8] = relu(a)
c: float32[batch,8] = add(a, b)
d: float32[batch,8] = mul(c, c)
output d
"""


@pytest.fixture
def files(tmp_path: Path, call: Call) -> tuple[str, Path]:
    """A model and a plan for it with batch 2."""
    model = tmp_path / "m.pf"
    model.write_text(MODEL)
    plan = tmp_path / "m.plan.json"
    made = call("plan", model, "--dim", "batch=2", "--no-inplace", "-o", plan, "-q")
    assert made.exit_code == 0
    return str(model), plan


def test_claims_stand_beside_checks(call: Call, files: tuple[str, Path]) -> None:
    model, plan = files
    done = call("verify", model, str(plan), "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert document["ok"]
    assert {"field": "seed", "detail": "a label; nothing rests on it"} in document["claimed"]
    text = call("verify", model, str(plan)).stdout
    assert "Claimed, not checked: version, strategy, seed" in text


def wasteful(tree: Any) -> None:
    at = 0
    for buffer in tree["buffers"]:
        buffer["offset"] = at
        at += buffer["size"]
    tree |= {
        "arena_bytes": at,
        "proof": {"packing": True, "order": True},
        "bound": dict.fromkeys(("offsets", "objects", "any_order"), at),
    }


def test_a_false_proof_never_prints_ok(call: Call, files: tuple[str, Path]) -> None:
    model, plan = files
    tree = json.loads(plan.read_text())
    wasteful(tree)
    plan.write_text(json.dumps(tree))
    done = call("verify", model, str(plan), "--run", "--prove", "1", "--json")
    document = json.loads(done.stdout)
    claimed = {claim["field"] for claim in document["claimed"]}
    assert {"bound.offsets", "proof.packing", "bound.any_order", "proof.order"} <= claimed
    assert not any("proof" in check["detail"] for check in document["checks"])


MADE_WRONG: dict[str, Any] = {
    "a size beyond 64 bits": lambda t: t["buffers"][0].update(size=2**63),
    "a size that no address has": lambda t: t["buffers"][0].update(size=2**61),
    "an offset beyond all": lambda t: t["buffers"][0].update(offset=2**61),
    "a life without end": lambda t: t["buffers"][0]["live"][0].update(stop=2**61),
    "a batch that no size bears": lambda t: t["bindings"].update(dims={"batch": 2**40}),
    "a batch of another plan": lambda t: t["bindings"].update(dims={"batch": 3}),
    "a dimension nobody has": lambda t: t["bindings"].update(dims={"zzz": 3}),
    "no batch": lambda t: t["bindings"].update(dims={}),
    "a shape that is none": lambda t: t["bindings"].update(shapes={"x": "1xx"}),
    "an order of strings": lambda t: t.update(order=["a"]),
    "no buffers": lambda t: t.update(buffers=[], arena_bytes=0),
    "empty buffers": lambda t: t["buffers"].append(
        {"what": "tensor", "offset": 0, "size": 0, "live": []}
    ),
    "another target": lambda t: t.update(target="../generic"),
    "a recipe for something else": lambda t: t.update(recipe=["train optimizer=adam"]),
    "a hundred bands": lambda t: t.update(recipe=["split 100 d"]),
}


@pytest.mark.parametrize("what", MADE_WRONG)
def test_a_plan_that_is_wrong_in_any_way_ends_with_5_and_one_line(
    call: Call, files: tuple[str, Path], what: str
) -> None:
    model, plan = files
    tree = json.loads(plan.read_text())
    MADE_WRONG[what](tree)
    plan.write_text(json.dumps(tree))
    done = call("verify", model, str(plan), "--run")
    assert done.exit_code == 5, done.stderr
    assert done.stderr.startswith("peakfold: error: ")
    assert done.stderr.count("\n") == 1
    assert "internal" not in done.stderr


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        b'{"schema": "peakfold.plan/1"}',
        b"\xff",
        b'{"plan": {"plan": {}}}',
        b"NaN",
    ],
)
def test_a_file_that_is_no_plan_ends_with_5(
    call: Call, files: tuple[str, Path], data: bytes
) -> None:
    model, plan = files
    plan.write_bytes(data)
    assert call("verify", model, str(plan)).exit_code == 5


@pytest.mark.parametrize("path", ["/dev/zero", ".", "missing.json"])
def test_a_plan_is_read_from_a_regular_file(call: Call, files: tuple[str, Path], path: str) -> None:
    done = call("verify", files[0], path)
    assert done.exit_code == 2
    assert path in done.stderr


def test_a_profile_goes_in_again(call: Call, files: tuple[str, Path], tmp_path: Path) -> None:
    model, plan = files
    profile = tmp_path / "profile.json"
    ops = [{"op": "c", "operator": "ADD", "scratch_bytes": 64}]
    tree = {
        "schema": "peakfold.profile/1",
        "target": "generic",
        "runtime": "r",
        "model": "m",
        "ops": ops,
    }
    profile.write_text(json.dumps(tree))
    plan.unlink()
    call("plan", model, "--dim", "batch=2", "--profile", str(profile), "-o", str(plan), "-q")
    alone = json.loads(call("verify", model, str(plan), "--json").stdout)
    assert {"profile", "profile_digest"} <= {claim["field"] for claim in alone["claimed"]}
    given = call("verify", model, str(plan), "--profile", str(profile), "--json")
    assert "profile" not in {claim["field"] for claim in json.loads(given.stdout)["claimed"]}
    ops[0]["scratch_bytes"] = 0
    profile.write_text(json.dumps(tree))
    other = call("verify", model, str(plan), "--profile", str(profile))
    assert other.exit_code == 5
