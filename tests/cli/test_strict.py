"""``--strict``: exit code 1 where anything of a model is doubtful."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from .conftest import Call, error_line

F = TensorProto.FLOAT


def _model(path: Path, kind: str, declared: list[int]) -> Path:
    domain = "" if kind == "Relu" else "my"
    nodes = [helper.make_node(kind, ["x"], ["a"], domain=domain),
             helper.make_node("Neg", ["a"], ["y"])]  # fmt: skip
    x, y, a = (
        helper.make_tensor_value_info(name, F, shape)
        for name, shape in (("x", [2, 2]), ("y", [2, 2]), ("a", declared))
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
        assert call(verb, file, *more).exit_code == 0
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
