"""`peakfold inspect`: the flags of the cost table."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import peakfold

from .conftest import Call, error_line

BIG = """peakfold-graph 1
input x: float32[2,8]
parameter w: float32[8,8]
parameter v: float32[8,16]
a: float32[2,8] = matmul(x, w) scope="net.first"
b: float32[2,8] = relu(a) scope="net.first"
y: float32[2,16] = matmul(b, v) scope="net.second"
output y
"""


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big.pf"
    path.write_text(BIG)
    return path


@pytest.mark.req("R69")
def test_the_first_line_has_the_four_key_figures(call: Call, big: Path) -> None:
    first = call("inspect", big, "--rate", "10").stdout.splitlines()[0]
    # Per sample of a batch of 2: 392 FLOPs, 64+256+64 + 128 + 64+512+128 = 1,216 bytes in all.
    assert first == "192 params, 392 FLOPs, 608 B memory access, 6.08 KB/s bandwidth"
    document = json.loads(call("inspect", big, "--json", "--rate", "10").stdout)
    totals = document["totals"]
    assert totals["per_sample"] == {
        "flops": 392.0,
        "bytes_moved": 608.0,
        "fused_bytes_moved": 544.0,
    }
    assert (totals["bandwidth_need"], totals["rate"]) == (6080.0, 10.0)


@pytest.mark.req("R60")
def test_rows_by_op_scope_and_kind(call: Call, big: Path) -> None:
    table = call("inspect", big, "--csv", "-").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row["name"], row["macs"]) for row in rows] == [("a", "128"), ("b", "0"), ("y", "256")]
    table = call("inspect", big, "--csv", "-", "--by", "scope").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row["name"], row["macs"], row["params"]) for row in rows] == [
        ("", "384", "192"),
        ("net", "384", "192"),
        ("net.first", "128", "64"),
        ("net.second", "256", "128"),
    ]
    table = call("inspect", big, "--csv", "-", "--by", "kind", "--sort", "macs").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row["name"], row["ops"]) for row in rows] == [("matmul", "2"), ("relu", "1")]
    text = call("inspect", big, "--by", "scope").stdout
    assert "  net" in text
    assert "    first" in text


def test_sorting_and_cutting(call: Call, big: Path) -> None:
    table = call("inspect", big, "--csv", "-", "--sort", "params", "--top", "2").stdout
    assert [row["name"] for row in csv.DictReader(io.StringIO(table))] == ["y", "a"]
    text = call("inspect", big, "--top", "1").stdout
    assert "1 of 3" in text
    assert "1 of 3" not in call("inspect", big, "--all").stdout


def test_markdown_cannot_be_broken_by_a_name(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "evil.pf"
    path.write_text(
        'peakfold-graph 1\ninput x: int8[4]\ny: int8[4] = relu(x) name="a|b<script>`"\noutput y\n'
    )
    table = call("inspect", path, "--markdown", "-").stdout
    assert "| a\\|b&lt;script&gt;\\` | relu |" in table


def test_strict_is_an_exit_code(call: Call, big: Path, models: Path) -> None:
    assert call("inspect", big, "--strict").exit_code == 0
    result = call("inspect", models / "evil.pf", "--strict")
    assert result.exit_code in (0, 1)
    result = call("inspect", models / "roles.pf", "--strict")
    assert result.exit_code == 1
    assert "opaque (3), warp (2)" in error_line(result.stderr)
    assert result.stdout  # the report is printed all the same


def test_trips_are_named(call: Call, big: Path) -> None:
    result = call("inspect", big, "--trips", "steps=4")
    assert result.exit_code == 2
    assert "no loop is called 'steps'" in error_line(result.stderr)
    assert call("inspect", big, "--trips", "steps").exit_code == 2


@pytest.mark.req("R71")
def test_layer_types_need_no_model(call: Call, big: Path) -> None:
    document = json.loads(call("inspect", "--op", "conv 3x3 64->128 @56", "--json").stdout)
    assert [row["macs"] for row in document["rows"]] == [
        231211008,
        57802752,
        1806336,
        25690112,
        27496448,
    ]
    assert "0.1189" in call("inspect", "--op", "conv 3x3 64->128 @56").stdout
    odd = call("inspect", "--op", "conv 3x3 6->8 @4 g4")
    assert "no grouped form: 4 groups do not divide 6 input channels" in odd.stdout
    assert call("inspect", "--op", "pool").exit_code == 2
    assert call("inspect", big, "--op", "fc 4->4").exit_code == 2
    assert call("inspect").exit_code == 2


@pytest.mark.req("R80")
def test_advice_on_demand(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "wide.pf"
    path.write_text(
        "peakfold-graph 1\ninput x: float32[1,16,32,32]\nparameter w: float32[256,16,1,1]\n"
        "y: float32[1,256,32,32] = conv(x, w)\noutput y\n"
    )
    assert json.loads(call("inspect", path, "--json").stdout)["lints"] is None
    (lint,) = json.loads(call("inspect", path, "--json", "--lint").stdout)["lints"]
    assert (lint["rule"], lint["ops"]) == ("unbalanced-channels", ["y"])
    assert lint["saves_bytes"] == 4 * 1024 * (16 + 256 - 2 * 64)
    assert "unbalanced-channels (576.000 KiB)" in call("inspect", path, "--lint").stdout


@pytest.mark.shared
@pytest.mark.req("R20")
def test_effective_counts_on_demand(call: Call, shared: Path, big: Path) -> None:
    path = shared / "data" / "mlperf_tiny" / "ad01_fp32.tflite"
    found = json.loads(call("inspect", path, "--json", "--sparsity").stdout)["sparsity"]
    assert (found["macs"], found["unread"]) == (264192, [])
    assert found["unstructured_macs"] == 264192 - sum(
        op["macs"] * op["zeros"] // op["elements"] for op in found["ops"]
    )
    assert "Dense and effective MACs" in call("inspect", path, "--sparsity").stdout
    result = call("inspect", big, "--sparsity")
    assert result.exit_code == 2
    assert "weights cannot be read" in error_line(result.stderr)


def test_files_hold_every_row_unless_told_otherwise(call: Call, tmp_path: Path) -> None:
    lines = ["peakfold-graph 1", "input x: float32[4]"]
    lines += [f"t{at}: float32[4] = relu({f't{at - 1}' if at else 'x'})" for at in range(20)]
    path = tmp_path / "chain.pf"
    path.write_text("\n".join([*lines, "output t19", ""]))
    for flags, count in (((), 20), (("--top", "3"), 3), (("--all",), 20)):
        table = call("inspect", path, "--csv", "-", *flags).stdout
        assert len(list(csv.DictReader(io.StringIO(table)))) == count
        lines = call("inspect", path, "--markdown", "-", *flags).stdout.splitlines()
        assert sum("relu" in line for line in lines) == count
    assert "12 of 20" in call("inspect", path).stdout
    assert "largest 3 of 20" in call("inspect", path, "--top", "3").stdout


def test_the_file_order_keeps_the_costliest_in_text_and_csv(call: Call, big: Path) -> None:
    table = call("inspect", big, "--csv", "-", "--top", "1").stdout
    assert [row["name"] for row in csv.DictReader(io.StringIO(table))] == ["y"]


@pytest.mark.parametrize(
    "option", ["--rate nan", "--rate inf", "--device t4 --measured nan", "--rate 0"]
)
def test_a_number_must_be_one(call: Call, models: Path, option: str) -> None:
    found = call("inspect", models / "roles.pf", *option.split())
    assert found.exit_code == 2
    assert option.split()[-2].strip("-") in error_line(found.stderr)


def test_figures_made_of_lower_bounds_are_marked_too(call: Call, tmp_path: Path) -> None:
    half = tmp_path / "half.pf"
    half.write_text(
        "peakfold-graph 1\ninput x: float32[4,8]\nparameter w: float32[8,8]\n"
        "a: float32[4,8] = matmul(x, w)\nb: float32[n,8] = warp(a)\n"
        "c: float32[4,8] = relu(x)\noutput c"
    )
    text = repr(peakfold.cost(str(half)))
    first = text.splitlines()[0]
    assert first.count(">=") == 3  # FLOPs, memory access and the bandwidth it asks for
    assert re.search(r"bandwidth +>= ", text)
    assert re.search(r"intensity.*of what is\s+known", text)


def test_a_folder_is_no_model(call: Call, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").mkdir()
    assert "is a folder, not a file" in error_line(call("inspect", tmp_path / "net.onnx").stderr)


def test_results_of_unknown_size_leave_lower_bounds(call: Call, tmp_path: Path) -> None:
    """An op nobody knows ends what is known of shapes; what is known is still told."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    weights = [
        onnx.numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.float32), "w"),
        onnx.numpy_helper.from_array(np.zeros((8, 8, 3, 3), np.float32), "v"),
    ]
    graph = onnx.helper.make_graph(
        [
            node("Conv", ["x", "w"], ["a"]),
            node("Warp", ["a"], ["b"], domain="my.ops"),
            node("Conv", ["b", "v"], ["y"]),
        ],
        "g",
        [info("x", 1, [1, 3, 32, 32])],
        [info("y", 1, [1, 8, "h", "w"])],
        weights,
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("my.ops", 1)]
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), path)
    text = call("inspect", path).stdout
    assert f">= {2 * 27 * 8 * 30 * 30 / 1000:.1f} KFLOPs" in text
    assert "size unknown, outside every figure: 2 tensors (b, y)" in text
    assert f">= {8 * 30 * 30 * 4 / 1024:.3f} KiB" in text
    document = json.loads(call("inspect", path, "--json").stdout)
    assert document["opaque"] == ["b", "y"]
    assert [op["output_bytes"] for op in document["ops"]] == [8 * 30 * 30 * 4, None, None]
    assert call("inspect", path, "--strict").exit_code == 1
    assert "its shape is not known" in error_line(call("plan", path).stderr)
