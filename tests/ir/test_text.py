"""The text form: everything it can say round-trips, and a bad line is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakfold.errors import ModelError
from peakfold.frontends import Bindings, load
from peakfold.ir import Graph, check_graph, parse_graph, print_graph

FULL = """peakfold-graph 1
name "every feature"
source "pf"
note "a note"
input A: uint8[1]
input "odd name, really": float32[batch,3]
input dG: gradient float32[4]
parameter w: int4[3]
constant c: float64[]
state v: bool[2]
optimizer_state m: float32?(16B)
B: uint8[200] = sigmoid(A)
_, C: opaque?(16B) = "my.op"(B, _, "odd name, really", axis=-1, b=true, empty=[], f=1.5, i=-inf, \
names=["a", "b"], s="x y") name="n" scope="a.b" reads=[v] writes=[v] inplace=[0] \
views=["1<0+128"] workspace=3
y: float32? = if(B) begin
  region "then" captures=[C]
    input C: opaque?(16B)
    z: float32[2] = relu(C)
    output z
  end
  region "else" captures=[]
    parameter q: float32[2]
    output q
  end
end
= sink(B) name="sink"
output C, y
"""


def test_everything_round_trips() -> None:
    graph = parse_graph(FULL)
    check_graph(graph)
    again = print_graph(graph)
    assert parse_graph(again) == graph
    assert print_graph(parse_graph(again)) == again


@pytest.mark.shared
def test_real_models_round_trip_through_the_text_form(
    onnx_models: list[Path], tmp_path: Path
) -> None:
    for path in onnx_models:
        graph = load(path).graph
        copy = tmp_path / f"{path.stem}.pf"
        copy.write_text(print_graph(graph), "utf-8")
        assert load(copy).graph == graph, path.name


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("B: uint7[1] = relu(A)", "unknown element type 'uint7'"),
        ("B: uint8[1 = relu(A)", "expected"),
        ("B: uint8[1] = relu(A", "end of the line"),
        ("B: uint8[1] = relu(A) color=3", "unknown modifier 'color'"),
        ("B: uint8[1] = relu(A) views=[3]", "OUTPUT<INPUT"),
        ("B: uint8[1] = relu(A) inplace=0", "list of input positions"),
        ("B: uint8[1] = relu(A) extra", "expected '='"),
        ("B uint8[1] = relu(A)", "expected ':'"),
        ("B: uint8[1] = relu(A, k=what)", "is no value"),
        ("end", "closes nothing"),
        ('B: uint8[1] = if(A) begin\n  region "x"', "not closed"),
        ("input A uint8[1]", "expected ':'"),
    ],
)
def test_a_bad_line_is_named_by_its_number(line: str, words: str) -> None:
    with pytest.raises(ModelError, match="line [0-9]") as caught:
        parse_graph(f"peakfold-graph 1\ninput A: uint8[1]\n{line}", "model.pf")
    assert words in str(caught.value)
    assert "model.pf" in str(caught.value)


def test_the_header_is_required() -> None:
    for text in ("", "peakfold-graph 2\n", "hello"):
        with pytest.raises(ModelError, match="peakfold-graph 1"):
            parse_graph(text)


def test_symbols_are_bound_in_regions_too() -> None:
    text = """peakfold-graph 1
input k: bool[]
input x: uint8[n]
y: uint8[n] = if(k) begin
  region "then" captures=[x]
    input x: uint8[n]
    z: uint8[n] = relu(x)
    output z
  end
end
output y"""
    graph = parse_graph(text)
    assert graph.symbols == ("n",)
    bound = graph.bind({"n": 5})
    assert bound["y"].nbytes == 5
    assert bound.ops[0].regions[0].graph["z"].nbytes == 5


def test_binding_a_text_model_on_the_way_in(tmp_path: Path) -> None:
    path = tmp_path / "m.pf"
    path.write_text("peakfold-graph 1\ninput x: uint8[n,3]\ny: uint8[n,3] = relu(x)\noutput y")
    graphs: list[Graph] = [
        load(path, Bindings.parse(["n=2"])).graph,
        load(path, Bindings.parse([], ["x=2x3"])).graph,
    ]
    assert graphs[0] == graphs[1]
    assert graphs[0]["y"].nbytes == 6
