"""The published chart as the product makes it (R41)."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from tests.zoo_onnx import write_alexnet, write_vgg_a

FLAGS = (
    "--target",
    "mxnet",
    "--share",
    "nnvm",
    "--align",
    "1",
    "--time-limit",
    "0",
    "--train",
    "--loss",
    "softmax-output",
    "--grad-reads",
    "mxnet",
    "--input-grad",
)
# Forward, then forward and backward, batch 64: arXiv 1604.06174, figure 7, GiB read off its bars.
BARS = {
    "alexnet": ((0.374, 0.212, 0.137, 0.112), (0.776, 0.615, 0.503, 0.435)),
    "vgg": ((3.917, 2.142, 1.582, 0.984), (7.876, 6.087, 5.447, 4.689)),
}


@pytest.mark.req("R41")
def test_bars_of_the_published_chart(call, tmp_path):
    write_alexnet(tmp_path / "alexnet.onnx")
    write_vgg_a(tmp_path / "vgg.onnx")
    chart = tmp_path / "modes.svg"
    files = [str(tmp_path / f"{name}.onnx") for name in ("alexnet", "vgg")]
    done = call("modes", *files, *FLAGS, "--chart", chart, "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["run"] for row in rows] == ["forward", "forward and backward"] * 2
    for row, bars in zip(rows, (*BARS["alexnet"], *BARS["vgg"]), strict=True):
        for mode, gib in zip(("naive", "inplace", "share", "both"), bars, strict=True):
            assert row[f"{mode}_bytes"] / 2**30 == pytest.approx(gib, abs=0.008)
    drawn = [e for e in ET.parse(chart).iter() if e.get("class") == "bar"]
    assert len(drawn) == 4 * 5
    top = max(float(e.get("height")) for e in drawn)
    most = max(row["naive_bytes"] for row in rows)
    for bar, row in zip(drawn[::5], rows, strict=True):
        assert float(bar.get("height")) / top == pytest.approx(row["naive_bytes"] / most, abs=1e-4)


def test_without_training_and_without_models(call, tmp_path):
    path = str(write_alexnet(tmp_path / "a.onnx", batch=1))
    done = call("modes", path)
    assert done.exit_code == 0
    assert "backward" not in done.stdout
    assert call("modes").exit_code == 2
    assert call("modes", path, "--loss", "external").exit_code == 2
