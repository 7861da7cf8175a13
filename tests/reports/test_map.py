from __future__ import annotations

import importlib.util
import io
import struct
import xml.etree.ElementTree as ET

import pytest

from peakfold.errors import BackendMissing
from peakfold.planning import PlanResult
from peakfold.reports.pictures.memory_map import PALETTE, SCRATCH, Box, Panel, memory_map, raster
from peakfold.reports.pictures.memory_png import png_map
from peakfold.reports.pictures.memory_svg import svg_map

from . import graphs
from .conftest import Planner

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def result(planned: Planner) -> PlanResult:
    return planned(graphs.branches(40), align=1)


@pytest.mark.req("R16")
def test_the_map_holds_before_and_after_with_totals(result: PlanResult) -> None:
    drawn = memory_map(result, "net")
    assert drawn.before.total == result.summary.naive_bytes
    assert drawn.after.total == result.summary.arena_bytes
    assert "after: mode arena" in drawn.after.title.lower()
    assert drawn.before.height == drawn.after.height == result.summary.naive_bytes
    assert drawn.after.bound == result.summary.lower_bound_bytes
    assert drawn.after.peak_op == result.summary.peak_op
    # Every tensor that an op makes is in the list before planning.
    labels = " ".join(box.label for box in drawn.before.boxes)
    assert all(f"t{n}: " in labels for n in range(1, 41))


@pytest.mark.req("R16")
@pytest.mark.parametrize("text", [graphs.branches(40), graphs.HALVES])
def test_boxes_are_the_pieces_of_the_plan_and_never_overlap(planned: Planner, text: str) -> None:
    result = planned(text, align=1)
    drawn = memory_map(result)
    pieces = sorted(
        (p.start, p.stop, b.offset + p.lower, b.offset + p.upper)
        for b in result.plan.buffers
        for p in b.live
    )
    assert sorted((b.start, b.stop, b.lower, b.upper) for b in drawn.after.boxes) == pieces
    for panel in (drawn.before, drawn.after):
        for at, one in enumerate(panel.boxes):
            assert one.stop <= panel.steps
            assert one.upper <= panel.total
            for two in panel.boxes[:at]:
                times = max(one.start, two.start) < min(one.stop, two.stop)
                places = max(one.lower, two.lower) < min(one.upper, two.upper)
                assert not (times and places)


def test_a_tensor_has_the_colour_of_its_buffer_in_both_panels(planned: Planner) -> None:
    result = planned(graphs.EX4, align=1, mode="both", strategy="counter")
    drawn = memory_map(result)
    before = {box.label.split(":")[0]: box.color for box in drawn.before.boxes}
    assert before["B"] == before["E"] == before["G"]
    assert len({before["B"], before["C"], before["F"]}) == 3


def test_a_flat_plan_is_drawn_enlarged(planned: Planner) -> None:
    assert memory_map(planned(graphs.branches(40), align=1)).enlarged is not None
    assert memory_map(planned(graphs.EX4, align=1)).enlarged is None


def box(start: int, stop: int, lower: int, upper: int, color: int, scratch: bool) -> Box:
    return Box(
        start=start,
        stop=stop,
        lower=lower,
        upper=upper,
        color=color,
        scratch=scratch,
        name="",
        label="",
    )


def test_the_raster_shows_every_box() -> None:
    boxes = tuple(box(n, n + 1, n, n + 1, n, False) for n in range(50))
    grid = raster(Panel("", boxes, 50, 50, 50), 50, 50)
    assert [grid[n, n] for n in range(50)] == [n % len(PALETTE) for n in range(50)]
    assert (grid >= 0).sum() == 50
    tiny = raster(Panel("", (box(0, 1, 0, 1, 3, True),), 10**6, 10**6, 1), 20, 10)
    assert (tiny >= 0).sum() == 1
    assert tiny.max() == SCRATCH


@pytest.mark.req("R16")
def test_the_svg_has_a_titled_rectangle_per_box(result: PlanResult) -> None:
    root = ET.fromstring(svg_map(result, "net"))
    drawn = memory_map(result)
    count = sum(len(p.boxes) for p in (drawn.before, drawn.after, drawn.enlarged) if p)
    titled = [r for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    assert len(titled) == count
    assert all(float(r.get("width", 0)) > 0 and float(r.get("height", 0)) > 0 for r in titled)
    hatched = [r for r in titled if r.get("fill") == "url(#hatch)"]
    scratch = sum(
        b.scratch for p in (drawn.before, drawn.after, drawn.enlarged) if p for b in p.boxes
    )
    assert len(hatched) == scratch > 0
    text = " ".join(t.text or "" for t in root.iter(f"{SVG}text"))
    assert "Before" in text
    assert "After" in text
    assert f"peak: {result.summary.peak_op}" in text
    assert any(line.get("class") == "bound" for line in root.iter(f"{SVG}line"))


@pytest.mark.req("R16")
def test_boxes_with_room_carry_their_tensors_name(planned: Planner) -> None:
    root = ET.fromstring(svg_map(planned(graphs.EX4, align=1, mode="both", strategy="counter")))
    names = {t.text for t in root.iter(f"{SVG}text") if t.get("class") in ("n", "d")}
    assert names == {"B", "C", "F", "E", "G", "E +1"}


def test_the_svg_needs_nothing_from_elsewhere(result: PlanResult) -> None:
    svg = svg_map(result)
    assert svg.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    root = ET.fromstring(svg)
    assert not [e for e in root.iter() if e.tag.removeprefix(SVG) in ("script", "image", "use")]
    assert not [k for e in root.iter() for k in e.attrib if "href" in k or k.startswith("on")]


def test_names_cannot_break_the_svg(planned: Planner) -> None:
    result = planned(graphs.evil())
    root = ET.fromstring(svg_map(result, graphs.EVIL))
    titles = " ".join(t.text or "" for t in root.iter(f"{SVG}title"))
    assert '<b>&"\\x1b[31m\\u202e' in titles
    assert "\x1b" not in titles
    assert not list(root.iter(f"{SVG}b"))


def test_the_svg_of_many_buffers_stays_small(planned: Planner) -> None:
    svg = svg_map(planned(graphs.branches(4000), align=1))
    root = ET.fromstring(svg)
    assert len(svg) < 2_000_000
    assert len(list(root.iter(f"{SVG}rect"))) < 1000
    fills = {p.get("fill") for p in root.iter(f"{SVG}path")}
    assert {"url(#hatch)", *PALETTE} <= fills


@pytest.mark.req("R16")
def test_the_png_is_an_image_and_the_same_every_time(result: PlanResult) -> None:
    pytest.importorskip("matplotlib")
    data = png_map(result, "net")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (1400, 1020)
    assert png_map(result, "net") == data
    import matplotlib.image as image

    pixels = image.imread(io.BytesIO(data))[..., :3]
    colours = {tuple(round(float(v) * 255) for v in pixel) for row in pixels[::7] for pixel in row}
    wanted = {tuple(int(c[at : at + 2], 16) for at in (1, 3, 5)) for c in PALETTE}
    assert len(wanted & colours) == len(wanted)


def test_names_cannot_break_the_png(planned: Planner) -> None:
    pytest.importorskip("matplotlib")
    assert png_map(planned(graphs.evil()), graphs.EVIL).startswith(b"\x89PNG")


def test_a_png_without_matplotlib_says_what_to_install(
    result: PlanResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendMissing, match=r'pip install "peakfold\[plot\]"'):
        png_map(result)
