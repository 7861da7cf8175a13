"""``--strict``: exit code 1 where anything of a model is doubtful."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from .conftest import Call, error_line

F = TensorProto.FLOAT


def _model(path: Path, kind: str, declared: list[int], given: tuple[int, ...] = (2, 2)) -> Path:
    domain = "" if kind == "Relu" else "my"
    nodes = [
        helper.make_node(kind, ["x"], ["a"], domain=domain),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    x, y, a = (
        helper.make_tensor_value_info(name, F, shape)
        for name, shape in (("x", given), ("y", given), ("a", declared))
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=[a])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("verb", "more"),
    [("plan", ()), ("fit", ("--budget", "1MiB")), ("compare", ()), ("inspect", ())],
)
def test_what_is_doubtful_is_exit_code_1(
    call: Call, tmp_path: Path, verb: str, more: tuple[str, ...]
) -> None:
    sound = _model(tmp_path / "sound.onnx", "Relu", [2, 2])
    wrong = _model(tmp_path / "wrong.onnx", "Relu", [3, 3])
    strange = _model(tmp_path / "strange.onnx", "Warp", [2, 2])
    assert call(verb, sound, *more, "--strict").exit_code == 0
    for file, words in ((wrong, "declares float32[3, 3]"), (strange, "my::warp")):
        # A size that may be another one leaves a verdict open; an unknown op does not.
        assert call(verb, file, *more).exit_code == (3 if file is wrong and more else 0)
        result = call(verb, file, *more, "--strict")
        assert result.exit_code == 1
        assert words in error_line(result.stderr)
    if verb == "compare":
        assert call(verb, sound, wrong, "--strict").exit_code == 1


def test_a_doubtful_plan_says_that_nothing_is_proven(call: Call, tmp_path: Path) -> None:
    wrong = _model(tmp_path / "wrong.onnx", "Relu", [3, 3])
    said = call("plan", wrong).stdout
    assert "Not proven: shapes or ops of the model are doubtful" in said
    missed = call("plan", wrong, "--budget", "1")
    assert missed.exit_code == 3
    assert "not proven" in error_line(missed.stderr)


SURE = re.compile(r"(?i)(?<!not )(?<!nothing )proven|minimal|optimal.: true")
"""Words of a proof."""


def _detector(path: Path) -> Path:
    """A model whose result is at most so large: what is kept hangs on the values."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Shape", ["at"], ["dims"]),
        helper.make_node("Neg", ["dims"], ["many"]),
        helper.make_node("Cast", ["at"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Abs", ["f"], ["a"]),
        helper.make_node("Add", ["f", "a"], ["z"]),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64])
    made = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("many", TensorProto.INT64, [2]),
    ]
    graph = helper.make_graph(nodes, "g", [given], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("kind", ["wrong", "strange", "bound", "zero"])
def test_doubt_leaves_no_proof_in_what_is_said(call: Call, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "m.onnx"
    if kind == "bound":
        _detector(file)
    else:
        rows = 0 if kind == "zero" else 2
        declared = [3, 3] if kind == "wrong" else [rows, 2]
        _model(file, "Warp" if kind == "strange" else "Relu", declared, (rows, 2))
    plan = tmp_path / "plan.json"
    for words in (
        ("plan", file, "-o", plan, "--force"),
        ("plan", file, "--json"),
        ("plan", file, "--budget", "1"),
        ("plan", file, "--order", "best"),
        ("fit", file, "--budget", "1MiB"),
        ("fit", file, "--budget", "1"),
        ("compare", file, file),
        ("apply", file, plan, "--to", "c", "-o", tmp_path / "p.h", "--force"),
    ):
        done = call(*words)
        said = done.stdout + done.stderr
        assert not SURE.search(said), (words, said)
    assert not SURE.search((tmp_path / "p.h").read_text())
    fitted = json.loads(call("fit", file, "--budget", "1MiB", "--json").stdout)
    assert fitted["bound_bytes"] is None
    assert fitted["notes"]
    if kind in ("wrong", "zero"):  # a size may be another one: both ways
        assert (fitted["fits"], fitted["total_bytes"], fitted["total"]["arena"]) == (None,) * 3
        assert fitted["unknown"]
        assert json.loads(call("plan", file, "--json").stdout)["summary"]["total_bytes"] is None
        tight = json.loads(call("fit", file, "--arena-budget", "1", "--json").stdout)
        assert tight["fits"] is None
        assert call("fit", file, "--arena-budget", "1").exit_code == 3
    else:
        assert fitted["fits"] is True


def test_what_is_at_most_so_large_is_neither_folded_nor_written_over(
    call: Call, tmp_path: Path
) -> None:
    plan = json.loads(call("plan", _detector(tmp_path / "d.onnx"), "--json").stdout)["plan"]
    held = {place["tensor"] for buffer in plan["buffers"] for place in buffer["tensors"]}
    assert "dims" in held  # no weight, since only the run knows its values
    over = {(a["output"], a["input"]) for a in plan["aliases"] if a["how"] == "inplace"}
    assert over == {("many", "dims"), ("y", "z")}  # not z over f: one may be broadcast
