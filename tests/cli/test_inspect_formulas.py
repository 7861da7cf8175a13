"""`peakfold inspect --formulas`: totals in terms of dimensions that nobody bound."""

from __future__ import annotations

import json
from fractions import Fraction
from math import prod
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.conftest import ROOT
from tests.frontends.models import model, save

from .conftest import Call, error_line

ATTENTION = (
    "g (float[N,S,8] x) => (float[N,S,8] y) <float[8,8] w = {" + ",".join(["1"] * 64) + "}> {"
    "q = MatMul (x, w) t = Transpose <perm=[0,2,1]> (q) a = MatMul (q, t)"
    " p = Softmax <axis=-1> (a) y = MatMul (p, q) }"
)


def told(call: Call, path: Path, *flags: object) -> dict[str, object]:
    document = json.loads(call("inspect", path, "--formulas", "--json", *flags).stdout)
    schema = json.loads((ROOT / "docs/schema/formulas.json").read_text("utf-8"))
    jsonschema.validate(document, schema)
    return document  # type: ignore[no-any-return]


def value(document: dict[str, object], name: str, **dims: int) -> Fraction:
    row = next(row for row in document["totals"] if row["name"] == name)  # type: ignore[attr-defined]
    return sum(
        (
            Fraction(term["coefficient"]) * prod(dims[d] ** p for d, p in term["powers"].items())
            for term in row["terms"]
        ),
        Fraction(0),
    )


def test_attention_is_quadratic_in_the_sequence(call: Call, tmp_path: Path) -> None:
    path = save(tmp_path / "attention.onnx", model(ATTENTION))
    text = " ".join(call("inspect", path, "--formulas").stdout.split())
    # x w: N S 64; q t and p q: N S^2 8 each.
    assert "16 N S^2 + 64 N S" in text
    assert "equal to the counts at N, S = 7, 5; 12, 9; 257, 130" in text
    assert text.startswith("attention.onnx onnx, N, S not bound")
    assert "from 2 on" in text  # a transposition of one row moves nothing
    assert told(call, path)["dims"] == ["N", "S"]
    one = told(call, path, "--dim", "N=3")
    assert (one["dims"], value(one, "macs", S=10)) == (["S"], 48 * 100 + 192 * 10)


def test_formulas_agree_with_a_report_far_away(call: Call, tmp_path: Path) -> None:
    path = save(tmp_path / "attention.onnx", model(ATTENTION))
    document = told(call, path)
    whole = json.loads(call("inspect", path, "--dim", "N=31", "--dim", "S=57", "--json").stdout)
    names = [row["name"] for row in document["totals"]]  # type: ignore[attr-defined]
    assert {n: value(document, n, N=31, S=57) for n in names} == {
        n: whole["totals"][n] for n in names
    }


@pytest.mark.shared
def test_an_image_network_has_formulas_for_multiples(call: Call, shared: Path) -> None:
    path = shared / "models/onnx/mtcnn_pnet.onnx"
    document = told(call, path, "--dim", "N=1")
    assert document["multiple_of"] == 32
    dims = ("--dim", "N=1", "--dim", "M1=640", "--dim", "M2=480")
    whole = json.loads(call("inspect", path, *dims, "--json").stdout)["totals"]
    for name in ("macs", "flops", "bytes_moved", "activation_elements"):
        assert value(document, name, M1=640, M2=480) == whole[name]
    refused = call("inspect", path, "--formulas")
    assert refused.exit_code == 2
    assert "3 dimensions (N, M1, M2)" in error_line(refused.stderr)


@pytest.mark.shared
def test_frames_that_are_rounded_are_no_polynomial(call: Call, shared: Path) -> None:
    # Small sequences all make one frame: a formula from them alone would say 192,640 batch.
    path = shared / "models/onnx/silero_vad_16k_op15.onnx"
    rows = {row["name"]: row for row in told(call, path)["totals"]}  # type: ignore[attr-defined]
    assert rows["macs"]["formula"] is None
    assert "Bind batch, sequence" in call("inspect", path, "--formulas").stdout
    document = told(call, path, "--dim", "sequence=512")
    whole = json.loads(
        call("inspect", path, "--dim", "sequence=512", "--dim", "batch=40", "--json").stdout
    )
    assert value(document, "macs", batch=40) == whole["totals"]["macs"]


def test_what_is_no_polynomial_gets_no_formula(call: Call, tmp_path: Path) -> None:
    # A gather reads the rows it picks, but never more than the table has: min(N, 100) rows.
    text = "g (float[100,4] t, int64[N] i) => (float[N,4] y) { y = Gather (t, i) }"
    path = save(tmp_path / "gather.onnx", model(text))
    rows = {row["name"]: row for row in told(call, path)["totals"]}  # type: ignore[attr-defined]
    assert rows["bytes_moved"]["formula"] is None
    assert "no polynomial" in rows["bytes_moved"]["why_not"]
    assert rows["activation_elements"]["formula"] == "4 N"


def test_a_strange_op_makes_a_lower_bound(call: Call, tmp_path: Path) -> None:
    text = model(
        "g (float[N,4] x) => (float[N,4] z) { y = Relu (x) z = my.domain.Warp (y) }",
        more=', "my.domain" : 1',
    )
    shown = call("inspect", save(tmp_path / "warp.onnx", text), "--formulas").stdout
    assert ">= 4 N" in shown


def test_mistakes(call: Call, tmp_path: Path) -> None:
    fixed = save(tmp_path / "fixed.onnx", model("g (float[2] x) => (float[2] y) {y = Relu (x)}"))
    free = save(tmp_path / "free.onnx", model("g (float[N] x) => (float[N] y) {y = Relu (x)}"))
    for path, flags, message in (
        (fixed, (), "every dimension is a number"),
        (free, ("--device", "t4"), "--formulas does not go with --device"),
        (free, ("--strict",), "--formulas does not go with --strict"),
        (free, ("--dim", "M=3"), "no dimension of the model is called 'M'"),
    ):
        result = call("inspect", path, "--formulas", *flags)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in error_line(result.stderr)
    alone = call("inspect", "--op", "fc 4->4", "--device", "t4")
    assert alone.exit_code == 2
    assert "--op does not go with --device" in error_line(alone.stderr)
