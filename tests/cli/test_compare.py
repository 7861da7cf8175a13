"""`peakfold compare`: models side by side, changes op by op, charts."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from .conftest import Call, error_line

MODEL = """peakfold-graph 1
input x: {type}[n,8]
parameter w: {type}[8,{width}]
a: {type}[n,{width}] = matmul(x, w) name="fc"
y: {type}[n,{width}] = relu(a) name="act"
output y
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    small, large = tmp_path / "small.pf", tmp_path / "large.pf"
    small.write_text(MODEL.format(type="int8", width=8))
    large.write_text(MODEL.format(type="float32", width=16).replace("[n,", "[2,"))
    return small, large


@pytest.mark.req("R60")
def test_models_side_by_side(call: Call, pair: tuple[Path, Path]) -> None:
    document = json.loads(call("compare", *pair, "--dim", "n=2", "--json").stdout)
    small, large = document["models"]
    assert (small["name"], small["params"], small["macs"]) == ("small", 64, 2 * 64)
    assert (large["params"], large["param_bytes"], large["flops"]) == (128, 512, 2 * 256 + 32)
    assert small["peak_bytes"] == 64  # 16 bytes, written over in place, padded
    assert document["ops"] is None
    table = call("compare", *pair, "--dim", "n=2", "--csv", "-", "--no-peak").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row["name"], row["macs"], row["peak_bytes"]) for row in rows] == [
        ("small", "128", ""),
        ("large", "256", ""),
    ]
    text = call("compare", *pair, "--dim", "n=2").stdout
    assert re.search(r"small\s+64\s+128", text)
    assert "| small | 64 |" in call("compare", *pair, "--dim", "n=2", "--markdown", "-").stdout


@pytest.mark.req("R60")
def test_times_on_a_device(call: Call, pair: tuple[Path, Path]) -> None:
    call_ = ("compare", *pair, "--dim", "n=2", "--no-peak", "--device", "t4", "--json")
    document = json.loads(call(*call_).stdout)
    assert document["device"] == "t4"
    assert all(row["time_s"] > 0 for row in document["models"])
    alone = json.loads(call("inspect", pair[1], "--device", "t4", "--json").stdout)
    assert document["models"][1]["time_s"] == alone["totals"]["time_s"]
    assert call("compare", *pair, "--dim", "n=2", "--device", "nosuch").exit_code == 2


def test_a_dimension_that_no_model_has_is_an_error(call: Call, pair: tuple[Path, Path]) -> None:
    result = call("compare", *pair, "--dim", "m=2")
    assert result.exit_code == 2
    assert "called 'm'" in error_line(result.stderr)


@pytest.mark.req("R20")
def test_before_and_after_op_by_op(call: Call, tmp_path: Path) -> None:
    before, after = tmp_path / "before.pf", tmp_path / "after.pf"
    text = MODEL.format(type="float32", width=16).replace("[n,", "[2,")
    before.write_text(text)
    after.write_text(
        text.replace("float32[8,16]", "int8[8,16]").replace(
            'relu(a) name="act"', 'clip(a) name="clamp"'
        )
    )
    document = json.loads(call("compare", before, after, "--ops", "--json", "--no-peak").stdout)
    changes = {row["name"]: row for row in document["ops"]}
    assert {name: row["change"] for name, row in changes.items()} == {
        "fc": "changed",
        "act": "removed",
        "clamp": "added",
    }
    fc = changes["fc"]
    assert fc["macs_before"] == fc["macs_after"] == 256
    assert fc["bytes_moved_before"] - fc["bytes_moved_after"] == 128 * 3
    assert changes["act"]["macs_after"] is None
    assert "Ops that differ: 3 of 3" in call("compare", before, after, "--ops", "--no-peak").stdout
    assert call("compare", before, "--ops").exit_code == 2


def circles(path: Path) -> list[ET.Element]:
    return list(ET.parse(path).iter("{http://www.w3.org/2000/svg}circle"))


@pytest.mark.req("R61")
def test_accuracy_against_parameters(call: Call, pair: tuple[Path, Path], tmp_path: Path) -> None:
    table, chart = tmp_path / "top1.csv", tmp_path / "chart.svg"
    table.write_text("model,accuracy\nsmall.pf,60.5\nlarge,70\n")
    result = call(
        "compare", *pair, "--dim", "n=2", "--no-peak", "--accuracy", table, "--chart", chart
    )
    assert result.exit_code == 0, result.stderr
    assert "60.5" in result.stdout
    large, small = circles(chart)
    # Twice the parameters, twice the area; more to the right, and higher up.
    area = [float(c.get("r", "0")) ** 2 for c in (large, small)]
    assert area[0] / area[1] == pytest.approx(2, rel=0.02)
    assert float(large.get("cx", "0")) > float(small.get("cx", "0"))
    assert float(large.get("cy", "0")) < float(small.get("cy", "0"))
    assert call("compare", *pair, "--dim", "n=2", "--chart", tmp_path / "x.svg").exit_code == 2


@pytest.mark.req("R62")
def test_compute_demand_over_time(call: Call, tmp_path: Path) -> None:
    table, chart = tmp_path / "growth.csv", tmp_path / "growth.svg"
    table.write_text("name,year,flops,params\nA,2012,1e17,1e6\nB,2014,1e19,1e8\nC,2016,1e21,1e9\n")
    result = call("compare", "--growth", table, "--era", "2015.5", "--chart", chart)
    assert result.exit_code == 0, result.stderr
    drawn = chart.read_text()
    assert "times 10 a year" in drawn
    assert "large scale" in drawn
    assert len(circles(chart)) == 3
    for text, words in (
        ("name,year\nA,2012\n", "no column 'flops'"),
        ("name,year,flops\n", "no row"),
        ("name,year,flops\nA,soon,1e3\n", "'soon' is no number"),
        ("name,year,flops\nA,2012,-1\n", "not above 0"),
    ):
        table.write_text(text)
        result = call("compare", "--growth", table, "--chart", chart, "--force")
        assert result.exit_code == 1
        assert words in error_line(result.stderr)


def test_a_model_whose_figures_are_not_known_says_why(call: Call, tmp_path: Path) -> None:
    free, strange = tmp_path / "free.pf", tmp_path / "strange.pf"
    free.write_text("peakfold-graph 1\ninput x: int8[N,4]\ny: int8[N,4] = relu(x)\noutput y\n")
    strange.write_text("peakfold-graph 1\ninput x: int8[4]\ny: int8[4] = warp(x)\noutput y\n")
    text = call("compare", free, strange, "--no-peak").stdout
    assert "free: N not bound, pass --dim N=N" in text
    assert "strange: no cost of warp (1)" in text
    assert ">= ?" not in text
    bound = call("compare", free, free, "--dim", "N=2", "--no-peak", "--json")
    assert json.loads(bound.stdout)["notes"] == []


def test_an_accuracy_is_that_of_its_model_and_of_no_other(
    call: Call, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    table, model = tmp_path / "top1.csv", tmp_path / "net_0.75.pf"
    model.write_text(pair[1].read_text())
    table.write_text("model,accuracy\nnet_0.25,50\nsmall.pf,60\n")
    line = ("compare", model, pair[0], "--dim", "n=2", "--no-peak", "--accuracy", table)
    other, small = json.loads(call(*line, "--json").stdout)["models"]
    assert (other["name"], other["accuracy"]) == ("net_0.75", None)
    assert (small["name"], small["accuracy"]) == ("small", 60)
    table.write_text("model,accuracy\nsmall,60\nsmall,61\n")
    found = call(*line)
    assert found.exit_code == 1
    assert "model 'small' has two accuracies" in error_line(found.stderr)


def test_names_stand_beside_long_changes(call: Call, tmp_path: Path) -> None:
    head = "peakfold-graph 1\ninput x: float32[128,300]\nparameter w: float32[300,300]\n"
    before, after = tmp_path / "before.pf", tmp_path / "after.pf"
    before.write_text(head + 'a: float32[128,300] = matmul(x, w) name="block_1/fc"\noutput a')
    after.write_text(
        head + 'a: float32[128,300] = global_average_pool(x) name="block_1/fc"\noutput a'
    )
    text = call("compare", before, after, "--ops", "--no-peak").stdout
    row = text.splitlines()[-1]
    assert row.startswith("block_1/fc  ")
    assert "11.520 M > 0" in row
    assert "KiB" in row.split(" > ")[-1]


def test_the_year_of_an_era_is_a_number(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "growth.csv"
    table.write_text("name,year,flops\na,2020,1e24\nb,2021,3e25\n")
    line = ("compare", "--growth", table, "--chart", tmp_path / "out.svg", "--era")
    assert "not a finite number" in error_line(call(*line, "nan").stderr)
    assert call(*line, "2020.5").exit_code == 0
    assert ">1 Y</text>" in (tmp_path / "out.svg").read_text()


@pytest.mark.req("R60")
def test_before_and_after_pruning(call: Call, tmp_path: Path) -> None:
    first = np.ones((16, 8), np.float32)
    pruned, halved = first.copy(), first.copy()
    pruned[:, :3] = 0  # three filters
    halved[::4], halved[1::4] = 0, 0  # two of four inputs
    second = np.ones((8, 4), np.float32)
    for name, weights in (("dense", first), ("pruned", pruned), ("halved", halved)):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
            helper.make_node("MatMul", ["h", "v"], ["y"], name="second"),
        ]
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 16))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 4))],
            [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(second, "v")],
        )
        onnx.save(helper.make_model(graph), tmp_path / f"{name}.onnx")
    line = ("compare", tmp_path / "dense.onnx", tmp_path / "pruned.onnx", "--no-peak")
    document = json.loads(call(*line, "--ops", "--sparsity", "--json").stdout)
    dense, after = document["models"]
    whole = 2 * 16 * 8 + 2 * 8 * 4
    assert (dense["macs"], dense["effective_macs"], dense["structured_macs"]) == (whole,) * 3
    left = 2 * 16 * 5 + 2 * 8 * 4
    assert (after["macs"], after["effective_macs"], after["structured_macs"]) == (whole, left, left)
    assert after["two_four_macs"] == whole
    changed, same = document["ops"]
    assert (changed["name"], changed["change"]) == ("first", "changed")
    assert (changed["effective_macs_before"], changed["effective_macs_after"]) == (256, 160)
    assert (same["change"], same["effective_macs_after"]) == ("same", 64)
    text = call(*line, "--ops", "--sparsity").stdout
    assert "no zeros" in text
    assert re.search(r"first +matmul +256 +256 > 160", text)
    plain = json.loads(call(*line, "--ops", "--json").stdout)
    assert [op["change"] for op in plain["ops"]] == ["same", "same"]
    assert plain["models"][1]["effective_macs"] is None
    row = json.loads(call("compare", tmp_path / "halved.onnx", "--sparsity", "--json").stdout)
    assert row["models"][0]["two_four_macs"] == 128 + 64


def test_a_model_without_weights_at_hand_has_no_sparsity(
    call: Call, pair: tuple[Path, Path]
) -> None:
    found = call("compare", pair[1], "--no-peak", "--sparsity")
    assert found.exit_code == 2
    assert "its weights cannot be read" in error_line(found.stderr)
