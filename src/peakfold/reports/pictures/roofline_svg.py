"""The roofline plot as one self-contained SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from peakfold.printable import shorten
from peakfold.reports.pictures.memory_map import PALETTE
from peakfold.reports.pictures.roofline_plot import Dot, RooflinePlot, decades
from peakfold.units import format_short

_WIDTH, _PLOT_W, _PLOT_H = 1000, 700, 460
_LEFT, _TOP = 86, 56
# Beyond this many ops only the points that take the most time keep a hover title.
_TITLED = 2000
# Radius of the point that takes the most time, and of the smallest.
_LARGE, _SMALL = 13.0, 2.6

_STYLE = """\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}
.h{font-size:18px;font-weight:600}.m{fill:#555}
.grid{stroke:#e4e4e4}.axis{stroke:#888}
.roof{stroke:#111;stroke-width:1.8;fill:none}
.ridge{stroke:#111;stroke-dasharray:2 4}
.dot{fill-opacity:.55}"""


def svg_roofline(plot: RooflinePlot) -> str:
    """The plot as an SVG document."""
    height = _TOP + _PLOT_H + 58 + 16 * len(plot.notes)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}">',
            f"<title>{_safe(plot.title)}: roofline</title>",
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text class="h" x="{_LEFT}" y="30">{_safe(shorten(plot.title, 90))}</text>',
            *_axes(plot),
            f'<svg x="{_LEFT}" y="{_TOP}" width="{_PLOT_W}" height="{_PLOT_H}">',
            *_roofs(plot),
            *_dots(plot),
            "</svg>",
            *_labels(plot),
            *_legend(plot),
            *_notes(plot),
            "</svg>\n",
        ]
    )


def _x(plot: RooflinePlot, value: float) -> float:
    """Pixels from the left edge of the plot."""
    span = math.log10(plot.right / plot.left)
    return _PLOT_W * math.log10(value / plot.left) / span


def _y(plot: RooflinePlot, value: float) -> float:
    """Pixels from the top edge of the plot."""
    span = math.log10(plot.top / plot.bottom)
    return _PLOT_H * (1 - math.log10(value / plot.bottom) / span)


def _axes(plot: RooflinePlot) -> Iterator[str]:
    base = _TOP + _PLOT_H
    for tick in decades(plot.left, plot.right):
        at = _LEFT + _x(plot, tick)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{base}"/>'
        yield (
            f'<text class="m" text-anchor="middle" x="{at:.1f}" y="{base + 17}">'
            f"{format_short(tick)}</text>"
        )
    for tick in decades(plot.bottom, plot.top):
        at = _TOP + _y(plot, tick)
        right = _LEFT + _PLOT_W
        yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield (
            f'<text class="m" text-anchor="end" x="{_LEFT - 7}" y="{at + 4:.1f}">'
            f"{format_short(tick)}</text>"
        )
    yield f'<line class="axis" x1="{_LEFT}" x2="{_LEFT + _PLOT_W}" y1="{base}" y2="{base}"/>'
    middle = _LEFT + _PLOT_W / 2
    yield (
        f'<text class="m" text-anchor="middle" x="{middle}" y="{base + 36}">operations a byte '
        "of memory access</text>"
    )
    at = _TOP + _PLOT_H / 2
    yield (
        f'<text class="m" text-anchor="middle" transform="rotate(-90 22 {at})" x="22" '
        f'y="{at}">operations a second</text>'
    )


def _roofs(plot: RooflinePlot) -> Iterator[str]:
    for roof in plot.roofs:
        start = _y(plot, max(plot.left * plot.bandwidth, 1e-30))
        ridge, flat = _x(plot, roof.ridge), _y(plot, roof.peak)
        yield (
            f'<polyline class="roof" points="0,{start:.1f} {ridge:.1f},{flat:.1f} '
            f'{_PLOT_W},{flat:.1f}"/>'
        )
        yield (
            f'<line class="ridge" x1="{ridge:.1f}" x2="{ridge:.1f}" y1="{flat:.1f}" '
            f'y2="{_PLOT_H}"/>'
        )


def _dots(plot: RooflinePlot) -> Iterator[str]:
    # Large points first, so that small ones stay visible on them.
    order = sorted(plot.dots, key=lambda dot: (-dot.share, dot.label))
    for at, dot in enumerate(order):
        radius = max(_LARGE * math.sqrt(dot.area), _SMALL)
        title = f"<title>{_safe(dot.label)}</title>" if at < _TITLED else ""
        yield (
            f'<circle class="dot" fill="{_color(dot)}" cx="{_x(plot, dot.x):.1f}" '
            f'cy="{_y(plot, dot.y):.1f}" r="{radius:.1f}">{title}</circle>'
        )


def _color(dot: Dot) -> str:
    return PALETTE[dot.group % len(PALETTE)]


def _labels(plot: RooflinePlot) -> Iterator[str]:
    """Names of the roofs at their right end, ridge points at the bottom."""
    taken: list[float] = []
    for roof in plot.roofs:
        at = _TOP + _y(plot, roof.peak)
        while any(abs(at - other) < 13 for other in taken):
            at += 13
        taken.append(at)
        yield (f'<text x="{_LEFT + _PLOT_W + 8}" y="{at + 4:.1f}">{_safe(roof.label)}</text>')
    for row, roof in enumerate(plot.roofs):
        at = _LEFT + _x(plot, roof.ridge)
        yield (
            f'<text text-anchor="end" x="{at - 4:.1f}" y="{_TOP + _PLOT_H - 8 - 14 * row}">'
            f"ridge {roof.ridge:.1f}</text>"
        )
    # Right of the slope, a little above where it enters the plot: at its left edge or its foot.
    entry = max(plot.left, plot.bottom / plot.bandwidth)
    end = max((roof.ridge for roof in plot.roofs), default=plot.right)
    x = min(2.24 * entry, math.sqrt(entry * max(end, entry)))
    yield (
        f'<text x="{_LEFT + _x(plot, x) + 10:.1f}" '
        f'y="{_TOP + _y(plot, x * plot.bandwidth) + 12:.1f}">'
        f"{format_short(plot.bandwidth)}B/s</text>"
    )


def _legend(plot: RooflinePlot) -> Iterator[str]:
    x, y = _LEFT + _PLOT_W + 12, _TOP + _PLOT_H - 18 * len(plot.groups)
    for at, group in enumerate(plot.groups):
        top = y + 18 * at
        fill = PALETTE[at % len(PALETTE)]
        yield f'<circle class="dot" fill="{fill}" cx="{x + 5}" cy="{top - 4}" r="6"/>'
        yield f'<text x="{x + 18}" y="{top}">{_safe(shorten(group, 26))}</text>'


def _notes(plot: RooflinePlot) -> Iterator[str]:
    for at, note in enumerate((*plot.notes, "Area of a point: its share of the time.")):
        y = _TOP + _PLOT_H + 54 + 16 * (at - 1) + 4
        yield f'<text class="m" x="{_LEFT}" y="{y}">{_safe(note)}</text>'


def _safe(text: str) -> str:
    return escape("".join(c if c.isprintable() else "?" for c in text))
