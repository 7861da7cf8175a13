"""The 2-D memory map as one self-contained SVG: no script, no font, nothing from elsewhere.

Few boxes become rectangles with a hover title each. Beyond `_DENSE` boxes a panel is drawn as
runs of cells, one path per colour, so that the file stays small and opens at once; only the
largest boxes keep a title then.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from peakfold.planning import PlanResult
from peakfold.printable import shorten
from peakfold.reports.pictures.memory_map import (
    PALETTE,
    SCRATCH,
    Box,
    MemoryMap,
    Panel,
    memory_map,
    raster,
)
from peakfold.units import format_bytes

_DENSE = 3000
# Pixels a box needs in both directions for an edge: on thinner ones it would be all one sees.
_STROKED = 4
# Pixels of a letter and of a line, and the fewest letters that still say something.
_LETTER, _LINE, _FEW = 7.5, 16, 8
# Names on fills brighter than this are dark.
_LIGHT = 130
# Pixels that even the smallest box is high.
_THIN = 0.7
_TITLED = 200
_CELL = 2
_WIDTH = 1200
_LEFT, _RIGHT, _GAP = 86, 18, 14
_PLOT = 330
_TOP = 64

_STYLE = """\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}
.t{font-size:14px;font-weight:600}.h{font-size:18px;font-weight:600}.m{fill:#555}
.n{fill:#fff;pointer-events:none}.d{fill:#111;pointer-events:none}
.edge{stroke:#fff;stroke-width:.6}.grid{stroke:#ddd}.axis{stroke:#888}
.bound{stroke:#111;stroke-dasharray:6 4;stroke-width:1.4}
.peak{stroke:#c00;stroke-dasharray:2 3;stroke-width:1.4}"""


def svg_map(result: PlanResult, name: str = "") -> str:
    """The map of a plan, before and after (R16).

    Args:
        result: a planning result.
        name: what to call the model.

    Returns:
        An SVG document.
    """
    return draw(memory_map(result, name))


def draw(drawn: MemoryMap) -> str:
    """A memory map as an SVG document."""
    half = (_WIDTH - _GAP) // 2
    parts = [*_panel(drawn.before, 0, _TOP, half), *_panel(drawn.after, half + _GAP, _TOP, half)]
    height = _TOP + _PLOT + 88
    if drawn.enlarged is not None:
        parts += _panel(drawn.enlarged, 0, height, _WIDTH)
        height += _PLOT + 88
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}">',
            f"<title>{_safe(drawn.title)}: memory before and after planning</title>",
            f"<style>{_STYLE}</style>",
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="6" height="6" fill="#eee"/>'
            '<rect width="2.5" height="6" fill="#777"/></pattern></defs>',
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text class="h" x="{_LEFT}" y="28">{_safe(shorten(drawn.title, 100))}</text>',
            *parts,
            *_legend(drawn, height - 14),
            "</svg>\n",
        ]
    )


def _panel(panel: Panel, x: int, y: int, width: int) -> Iterator[str]:
    """One map at a place: title, axes, boxes, bound and peak."""
    left, plot = x + _LEFT, width - _LEFT - _RIGHT
    yield f'<text class="t" x="{left}" y="{y - 12}">{_safe(panel.title)}</text>'
    yield from _axes(panel, left, y, plot)
    yield f'<svg x="{left}" y="{y}" width="{plot}" height="{_PLOT}">'
    if len(panel.boxes) > _DENSE:
        yield from _dense(panel, plot)
    else:
        yield from _boxes(panel, plot)
    yield "</svg>"
    if panel.bound:
        at = y + _PLOT - _PLOT * panel.bound / panel.height
        yield (
            f'<line class="bound" x1="{left}" x2="{left + plot}" y1="{at:.1f}" y2="{at:.1f}">'
            f"<title>lower bound {format_bytes(panel.bound)}</title></line>"
        )
    if panel.peak_step is not None:
        yield from _peak(panel, left, y, plot)


def _axes(panel: Panel, left: int, y: int, plot: int) -> Iterator[str]:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = y + _PLOT - _PLOT * share
        label = format_bytes(round(panel.height * share)) if share else "0"
        yield f'<line class="grid" x1="{left}" x2="{left + plot}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="m" text-anchor="end" x="{left - 6}" y="{at + 4:.1f}">{label}</text>'
    for step in sorted({0, panel.steps // 2, panel.steps - 1}):
        at = left + plot * (step + 0.5) / panel.steps
        anchor = "end" if step == panel.steps - 1 and step else "middle"
        yield (
            f'<text class="m" text-anchor="{anchor}" x="{at:.1f}" y="{y + _PLOT + 16}">'
            f"{step + 1:,}</text>"
        )
    base = y + _PLOT
    yield f'<line class="axis" x1="{left}" x2="{left + plot}" y1="{base}" y2="{base}"/>'


def _peak(panel: Panel, left: int, y: int, plot: int) -> Iterator[str]:
    step = panel.peak_step or 0
    at = left + plot * (step + 0.5) / panel.steps
    text = f"peak: {shorten(panel.peak_op, 60)} (step {step + 1})"
    anchor = "start" if at < left + plot / 3 else "end" if at > left + plot * 2 / 3 else "middle"
    yield (
        f'<line class="peak" x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + _PLOT + 22}"/>'
        f'<text fill="#c00" style="fill:#c00" text-anchor="{anchor}" x="{at:.1f}" '
        f'y="{y + _PLOT + 34}">{_safe(text)}</text>'
    )


def _boxes(panel: Panel, plot: int) -> Iterator[str]:
    for box in panel.boxes:
        tall = _PLOT * (box.upper - box.lower) >= _STROKED * panel.height
        wide = plot * (box.stop - box.start) >= _STROKED * panel.steps
        edge = ' class="edge"' if tall and wide else ""
        fill = "url(#hatch)" if box.scratch else PALETTE[box.color % len(PALETTE)]
        yield f'<rect{edge} fill="{fill}" {_place(panel, box, plot)}>{_title(box)}</rect>'
        yield from _name(panel, box, plot)


def _name(panel: Panel, box: Box, plot: int) -> Iterator[str]:
    """The tensor's name inside its box, where there is room for it."""
    width = plot * (box.stop - box.start) / panel.steps
    height = _PLOT * (box.upper - box.lower) / panel.height
    room = int((width - 8) / _LETTER)
    if height < _LINE or room < min(len(box.name), _FEW):
        return
    x = plot * box.start / panel.steps + width / 2
    y = _PLOT - _PLOT * (box.lower + box.upper) / 2 / panel.height + 4
    light = box.scratch or _brightness(PALETTE[box.color % len(PALETTE)]) > _LIGHT
    yield (
        f'<text class="{"d" if light else "n"}" text-anchor="middle" x="{x:.1f}" '
        f'y="{y:.1f}">{_safe(shorten(box.name, room))}</text>'
    )


def _brightness(color: str) -> float:
    """How bright ``#rrggbb`` looks, from 0 to 255 (Rec. 601)."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _dense(panel: Panel, plot: int) -> Iterator[str]:
    """Runs of equal cells, one path a colour, and titles for the largest boxes."""
    columns, rows = plot // _CELL, _PLOT // _CELL
    runs: dict[int, list[str]] = {}
    for row, cells in enumerate(raster(panel, columns, rows)):
        start = 0
        for column in range(1, columns + 1):
            if column == columns or cells[column] != cells[start]:
                if cells[start] >= 0:
                    y, x, width = _PLOT - (row + 1) * _CELL, start * _CELL, column - start
                    runs.setdefault(int(cells[start]), []).append(
                        f"M{x} {y}h{width * _CELL}v{_CELL}h-{width * _CELL}z"
                    )
                start = column
    for color in sorted(runs):
        fill = "url(#hatch)" if color == SCRATCH else PALETTE[color]
        yield f'<path fill="{fill}" d="{"".join(runs[color])}"/>'
    largest = sorted(
        panel.boxes, key=lambda b: ((b.lower - b.upper) * (b.stop - b.start), b.start, b.lower)
    )
    for box in largest[:_TITLED]:
        yield f'<rect fill-opacity="0" {_place(panel, box, plot)}>{_title(box)}</rect>'


def _place(panel: Panel, box: Box, plot: int) -> str:
    x, width = plot * box.start / panel.steps, plot * (box.stop - box.start) / panel.steps
    height = max(_PLOT * (box.upper - box.lower) / panel.height, _THIN)
    y = _PLOT - _PLOT * box.lower / panel.height - height
    return f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'


def _title(box: Box) -> str:
    return f"<title>{_safe(box.label)}</title>"


def _legend(drawn: MemoryMap, y: int) -> Iterator[str]:
    text = "x: step   y: address   colour: buffer of the plan (the same in every panel)"
    yield f'<text class="m" xml:space="preserve" x="{_LEFT}" y="{y}">{text}</text>'
    x = _WIDTH - 400
    if any(box.scratch for box in drawn.after.boxes):
        yield f'<rect x="{x - 130}" y="{y - 10}" width="16" height="11" fill="url(#hatch)"/>'
        yield f'<text class="m" x="{x - 108}" y="{y}">kernel scratch</text>'
    yield f'<line class="bound" x1="{x}" x2="{x + 30}" y1="{y - 4}" y2="{y - 4}"/>'
    yield f'<text class="m" x="{x + 36}" y="{y}">lower bound of this order</text>'
    yield f'<line class="peak" x1="{x + 210}" x2="{x + 240}" y1="{y - 4}" y2="{y - 4}"/>'
    yield f'<text class="m" x="{x + 246}" y="{y}">peak step</text>'


def _safe(text: str) -> str:
    """Text inside XML; `clean` has made control characters printable before."""
    return escape("".join(c if c.isprintable() else "?" for c in text))
