"""Stated facts of known ops against the registry: lies are refused, all else is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakfold.errors import ModelError
from peakfold.frontends import Bindings, load
from peakfold.ir import parse_graph, print_graph
from peakfold.ops.facts import check_facts

HEAD = """peakfold-graph 1
input x: float32[10,4]
input s: float32[]
input c: float32[]
input k: bool[3]
input i: float32[1,3,8,8]
input n: float32[n,4]
parameter w: float32[4,8]
parameter v: float32[5,8]
parameter f: float32[6,3,3,3]
"""


def facts(line: str, source: str = "") -> None:
    check_facts(parse_graph(f"{HEAD}{line}\noutput y\n" + (f"source {source}\n" if source else "")))


BRANCH = """ begin
  region "then" captures=[x]
    input x: float32[10,4]
    z: float32[10,4] = relu(x)
    output z
  end
  region "else" captures=[x]
    input x: float32[10,4]
    z: float32[10,4] = exp(x)
    output z
  end
end"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y: float32[2,8] = matmul(x, w)", r"op 'y' \(matmul\).*float32\[2,8\].*float32\[10,8\]"),
        ("y: float32[10,8] = matmul(x, v)", "do not fit: 4 columns against 5 rows"),
        ("y: float32[10,8] = gemm(x, v)", "do not fit: 4 columns against 5 rows"),
        ("y: float32[4,8] = matmul(s, w)", "do not fit: a scalar is no matrix"),
        ("y: float32[10,8] = add(x, w)", "sizes 4 and 10 do not broadcast"),
        ("y: float32[1] = relu(x)", r"float32\[1\].*float32\[10,4\]"),
        ("y: float32[40] = relu(x)", r"float32\[40\].*float32\[10,4\]"),
        ("y: int8[10,4] = relu(x)", r"int8\[10,4\].*float32\[10,4\]"),
        ("y: float16[10,4] = relu(x)", r"float16\[10,4\].*float32\[10,4\]"),
        ("y: float32[1,6,1,1] = conv(i, f)", r"float32\[1,6,6,6\]"),
        ("y: float32[1,4] = concat(x, x, axis=0)", r"float32\[20,4\]"),
        ("y: float32[4,4] = transpose(x, perm=[1,0])", r"float32\[4,10\]"),
        ("y: float32[n,5] = relu(n)", r"float32\[n,4\]"),
        ("y: float32[10,4] = if(c)" + BRANCH, "its condition is float32"),
        ("y: float32[10,4] = if(k)" + BRANCH, r"its condition is bool\[3\]"),
        ("y: float32[10,1] = if(b)" + BRANCH, r"float32\[10,4\]"),
    ],
)
def test_a_lie_is_refused(line: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        facts("input b: bool[]\n" + line)


@pytest.mark.parametrize(
    "line",
    [
        "y: float32[10,8] = matmul(x, w)",
        "y: float32? = matmul(x, w)",
        "y: float32[m,8] = matmul(x, w)",
        "y: opaque? = matmul(x, w)",
        "y: float32[2,8] = opaque(x, w)",
        "y: float32[2,8] = com.example.matmul(x, w)",
        "y: float32[5,8] = reshape(x, s)",
        "y: float32[5,4] = relu(n)",
        "y: float32[10,4](16B) = relu(x)",
        "y: float32[10,4] = if(b)" + BRANCH,
    ],
)
def test_what_may_be_true_is_believed(line: str) -> None:
    facts("input b: bool[]\n" + line)


def test_a_lie_deep_in_a_body_is_found() -> None:
    with pytest.raises(ModelError, match=r"op 'z' \(exp\)"):
        facts(
            "input b: bool[]\ny: float32[10,4] = if(b)"
            + BRANCH.replace("z: float32[10,4] = exp", "z: float32[10,1] = exp")
        )


def test_sources_that_do_not_state_every_attribute() -> None:
    strided = "y: float32[1,6,3,3] = conv(i, f)"  # torch keeps its strides to itself
    facts(strided, "torch")
    with pytest.raises(ModelError, match="conv"):
        facts(strided, "onnx")
    with pytest.raises(ModelError, match="matmul"):  # which has none
        facts("y: float32[2,8] = matmul(x, w)", "torch")
    with pytest.raises(ModelError, match="relu"):
        facts("y: int8[10,4] = relu(x)", "tflite")


def test_numbers_given_for_symbols_are_held_too(tmp_path: Path) -> None:
    path = tmp_path / "m.pf"
    path.write_text("peakfold-graph 1\ninput x: int8[n]\ny: int8[5] = relu(x)\noutput y\n")
    assert load(path).graph["y"].shape == (5,)
    assert load(path, Bindings.parse(["n=5"])).graph["y"].shape == (5,)
    with pytest.raises(ModelError, match=r"int8\[5\].*int8\[6\]"):
        load(path, Bindings.parse(["n=6"]))


@pytest.mark.shared
def test_the_text_form_of_every_model_loads_again(shared: Path, tmp_path: Path) -> None:
    folder = shared / "models"
    models = [*sorted(folder.glob("onnx/*.onnx")), *sorted(folder.glob("tflite/*.tflite"))]
    assert len(models) > 30
    for path in models:
        graph = load(path).graph
        copy = tmp_path / f"{path.stem}.pf"
        copy.write_text(print_graph(graph), "utf-8")
        assert load(copy).graph == graph, path.name
