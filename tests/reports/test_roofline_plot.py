"""The roofline plot: geometry against the definition, and pictures that open anywhere."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from peakfold.analysis.time.roofline import Work, roofline
from peakfold.device import Device, load_device
from peakfold.errors import UsageError
from peakfold.reports.pictures.roofline_plot import RooflinePlot, roofline_plot
from peakfold.reports.pictures.roofline_png import png_roofline
from peakfold.reports.pictures.roofline_svg import svg_roofline

T4 = load_device("t4")
WORKS = [
    Work(
        name="conv",
        kind="conv",
        macs=231_211_008,
        other_ops=0,
        bytes_moved=2_703_360,
        engine="matrix",
    ),
    Work(
        name="half",
        kind="conv",
        macs=231_211_008,
        other_ops=0,
        bytes_moved=1_351_680,
        engine="matrix",
        dtype="float16",
    ),
    Work(name="dw", kind="conv", macs=1_806_336, other_ops=0, bytes_moved=1_607_936),
    Work(name='<fc> & "\x1b', kind="gemm", macs=4_096_000, other_ops=0, bytes_moved=16_404_384),
    Work(name="move", kind="transpose", macs=0, other_ops=0, bytes_moved=1_000_000, engine="copy"),
    Work(name="view", kind="reshape", macs=0, other_ops=0, bytes_moved=0, engine="none"),
    Work(name="odd", kind="mystery", macs=None, other_ops=None, bytes_moved=None),
]


def plotted(works: list[Work] = WORKS, device: Device = T4, **more: object) -> RooflinePlot:
    return roofline_plot(roofline(works, device), device, title="net", **more)


@pytest.mark.req("R79")
def test_every_op_with_arithmetic_and_traffic_is_a_point_on_its_roof() -> None:
    plot = plotted()
    assert len(plot.dots) == 4
    assert {roof.name: round(roof.ridge, 1) for roof in plot.roofs} == {
        "matrix float16": 216.7,
        "vector float32": 27.0,
    }
    peaks = {"conv": 8.1e12, "half": 65e12, "dw": 8.1e12}
    for dot in plot.dots:
        work = next(w for w in WORKS if dot.label.startswith(w.name[:3]))
        assert dot.x == pytest.approx(2 * (work.macs or 0) / (work.bytes_moved or 1))
        roof = min(peaks.get(work.name, 8.1e12), dot.x * 300e9)
        assert dot.y == pytest.approx(roof)
        assert plot.left <= dot.x <= plot.right
        assert plot.bottom <= dot.y <= plot.top
    assert any("1 op without arithmetic" in note for note in plot.notes)
    assert any("1 op whose cost is not known" in note for note in plot.notes)
    assert max(dot.area for dot in plot.dots) == 1.0


def test_estimated_times_lie_below_the_roofs() -> None:
    found = roofline(WORKS, T4)
    times = [None if op.time_s is None else 3 * op.time_s for op in found.ops]
    plot = plotted(times=times)
    bounds = {dot.label.split(":")[0]: dot.y for dot in plotted().dots}
    for dot in plot.dots:
        assert dot.y == pytest.approx(bounds[dot.label.split(":")[0]] / 3)
    assert plot.notes[0] == "Points: estimated times"


def test_rare_kinds_share_a_colour() -> None:
    works = [
        Work(name=f"o{at}", kind=f"kind{at}", macs=0, other_ops=100 - at, bytes_moved=1000 - at)
        for at in range(12)
    ]
    plot = plotted(works)
    assert plot.groups == (*(f"kind{at}" for at in range(6)), "other kinds")
    assert sorted({dot.group for dot in plot.dots}) == list(range(7))


def test_the_svg_is_whole_and_needs_nothing_else() -> None:
    text = svg_roofline(plotted())
    root = ET.fromstring(text)
    circles = root.findall(".//{*}circle")
    assert len(circles) == 4 + len(plotted().groups)
    assert "ridge 27.0" in text
    assert "ridge 216.7" in text
    assert "vector float32: 8.1 TFLOP/s" in text
    assert "&lt;fc&gt; &amp; " in text
    assert "\x1b" not in text
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text == svg_roofline(plotted())


@pytest.mark.req("R64", "R74")
def test_integers_are_operations_and_floats_flops() -> None:
    work = Work(
        name="q",
        kind="conv",
        macs=10**9,
        other_ops=0,
        bytes_moved=10**6,
        engine="matrix",
        dtype="int8",
    )
    (roof,) = plotted([work]).roofs
    assert roof.label == "matrix int8: 130 TOP/s"


def test_the_svg_puts_points_where_the_axes_say() -> None:
    plot = plotted()
    root = ET.fromstring(svg_roofline(plot))
    inner = root.find("{*}svg")
    assert inner is not None
    width, height = float(inner.get("width", "0")), float(inner.get("height", "0"))
    found = sorted(
        (float(c.get("cx", "0")), float(c.get("cy", "0"))) for c in inner.findall("{*}circle")
    )
    expected = sorted(
        (
            width * math.log10(dot.x / plot.left) / math.log10(plot.right / plot.left),
            height * math.log10(plot.top / dot.y) / math.log10(plot.top / plot.bottom),
        )
        for dot in plot.dots
    )
    for (x, y), (want_x, want_y) in zip(found, expected, strict=True):
        assert x == pytest.approx(want_x, abs=0.06)
        assert y == pytest.approx(want_y, abs=0.06)


@pytest.mark.parametrize("works", [WORKS, WORKS[3:4], WORKS[:1]])
@pytest.mark.parametrize("name", ["t4", "k80", "h100-sxm5"])
def test_the_bandwidth_stands_beside_its_slope_inside_the_plot(
    works: list[Work], name: str
) -> None:
    page = ET.fromstring(svg_roofline(plotted(works, load_device(name))))
    space = "{http://www.w3.org/2000/svg}"
    [label] = [e for e in page.iter(f"{space}text") if (e.text or "").endswith("B/s")]
    x, y = float(label.get("x", "0")), float(label.get("y", "0"))
    assert 86 <= x <= 700
    assert 56 <= y <= 516 - 4  # above the axis and its numbers


def test_the_png_is_one() -> None:
    pytest.importorskip("matplotlib")
    data = png_roofline(plotted())
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data == png_roofline(plotted())


def test_nothing_to_draw_is_still_a_picture() -> None:
    plot = plotted([])
    assert (plot.dots, len(plot.roofs)) == ((), 1)
    ET.fromstring(svg_roofline(plot))
    pytest.importorskip("matplotlib")
    assert png_roofline(plot)


def test_a_device_without_roofs_is_one_clear_error() -> None:
    with pytest.raises(UsageError, match="bandwidth is not known"):
        plotted(WORKS, load_device("stm32h743"))
    with pytest.raises(UsageError, match="no peak"):
        plotted(WORKS, replace(T4, peaks={}))
