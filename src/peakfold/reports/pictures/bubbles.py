"""Bubble charts from tables: accuracy against parameters (R61), compute demand over time (R62).

One self-contained SVG each: no script, no font, nothing from elsewhere.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path

from peakfold.boundary import foreign, read_text
from peakfold.errors import ModelError, UsageError
from peakfold.printable import shorten
from peakfold.reports.pictures.memory_map import PALETTE
from peakfold.units import format_count, format_short

_MAX_BYTES = 1 << 24
_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 480, 80, 56
_LARGE, _SMALL = 34.0, 3.5
_STYLE = """\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}
.h{font-size:18px;font-weight:600}.m{fill:#555}
.grid{stroke:#e4e4e4}.axis{stroke:#888}.era{stroke:#c00;stroke-dasharray:6 4}
.fit{stroke:#111;stroke-width:1.4}.dot{fill-opacity:.55}"""


@dataclass(frozen=True, slots=True)
class Bubble:
    """A point; `size` decides its area."""

    name: str
    x: float
    y: float
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart.

    Attributes:
        log_x, log_y: logarithmic axes.
        era: x of a vertical line, with its label; `None` = no line.
        trend: draw the least-squares line of log10(y) over x.
    """

    title: str
    x_label: str
    y_label: str
    bubbles: tuple[Bubble, ...]
    log_x: bool = False
    log_y: bool = False
    era: tuple[float, str] | None = None
    trend: bool = False


def read_table(path: str, *wanted: str) -> list[dict[str, str]]:
    """Rows of a CSV file that has these columns.

    Raises:
        UsageError: the file cannot be read.
        ModelError: a column is missing, or there is no row.
    """
    text = read_text(Path(path), _MAX_BYTES, "a table")
    with foreign("is no CSV file", path):
        reader = csv.DictReader(StringIO(text, newline=""))
        rows = list(reader)
        names = reader.fieldnames or []
    for name in wanted:
        if name not in names:
            hint = f"its columns: {', '.join(names) or 'none'}"
            raise ModelError(f"has no column {name!r}", where=path, hint=hint)
    if not rows:
        raise ModelError("has no row", where=path)
    return rows


def number_at(row: Mapping[str, str], name: str, where: str) -> float:
    """A number of a row.

    Raises:
        ModelError: it is none, or not finite.
    """
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ModelError(f"{row.get(name)!r} is no number", where=f"{where}, column {name!r}")
    return value


def accuracies(path: str) -> dict[str, float]:
    """Accuracy by model from a table with the columns ``model,accuracy``.

    Raises:
        UsageError: the file cannot be read.
        ModelError: a column or a number is missing, or a model has two accuracies.
    """
    found: dict[str, float] = {}
    for row in read_table(path, "model", "accuracy"):
        name, accuracy = row["model"], number_at(row, "accuracy", path)
        if found.setdefault(name, accuracy) != accuracy:
            raise ModelError(f"model {name!r} has two accuracies", where=path)
    return found


def accuracy_chart(points: Sequence[tuple[str, float, float]]) -> Chart:
    """Accuracy against parameters: the bubble's area is the parameter count (R61).

    Args:
        points: name, parameters, accuracy.

    Raises:
        UsageError: no model has an accuracy.
    """
    if not points:
        raise UsageError("no model has an accuracy", hint="its CSV file has model,accuracy")
    bubbles = tuple(Bubble(name, params, accuracy, params) for name, params, accuracy in points)
    return Chart(
        title="Accuracy and parameters",
        x_label="parameters",
        y_label="accuracy",
        bubbles=bubbles,
        log_x=True,
    )


def growth_chart(path: str, era: float | None = None) -> Chart:
    """Compute demand of models over time, with the line where the large-scale era begins (R62).

    Args:
        path: a table with the columns ``name,year,flops`` and optionally ``params``; a year may
            have a fraction. FLOPs are those of the whole training, a count and no speed.
        era: year of the line.

    Raises:
        UsageError: the file cannot be read.
        ModelError: a column or a number is missing, or FLOPs are not above 0.
    """
    rows = read_table(path, "name", "year", "flops")
    bubbles = []
    for row in rows:
        flops = number_at(row, "flops", path)
        if flops <= 0:
            raise ModelError(f"{row['flops']} FLOPs are not above 0", where=path)
        size = number_at(row, "params", path) if row.get("params") else 1.0
        bubbles.append(Bubble(row["name"], number_at(row, "year", path), flops, size))
    return Chart(
        title="Compute demand of models over time",
        x_label="year",
        y_label="training compute, FLOPs",
        bubbles=tuple(bubbles),
        log_y=True,
        trend=True,
        era=None if era is None else (era, "large scale"),
    )


def svg_chart(chart: Chart) -> str:
    """The chart as an SVG document."""
    height = _TOP + _HEIGHT + 54
    scale = _Scale(chart)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}">',
            f"<title>{_safe(chart.title)}</title>",
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text class="h" x="{_LEFT}" y="30">{_safe(chart.title)}</text>',
            *_axes(chart, scale),
            *_lines(chart, scale),
            *_dots(chart, scale),
            "</svg>\n",
        ]
    )


class _Scale:
    """From values to pixels."""

    def __init__(self, chart: Chart) -> None:
        self.log_x, self.log_y = chart.log_x, chart.log_y
        xs = [self.at_x(b.x) for b in chart.bubbles]
        if chart.era is not None:
            xs.append(self.at_x(chart.era[0]))
        self.left, self.right = _padded(xs)
        self.low, self.high = _padded([self.at_y(b.y) for b in chart.bubbles])

    def at_x(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log_x else value

    def at_y(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log_y else value

    def x(self, value: float) -> float:
        wide = _WIDTH - _LEFT - 30
        return _LEFT + wide * (self.at_x(value) - self.left) / (self.right - self.left)

    def y(self, value: float) -> float:
        share = (self.at_y(value) - self.low) / (self.high - self.low)
        return _TOP + _HEIGHT * (1 - share)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    span = (high - low) or max(abs(high), 1.0)
    return low - 0.12 * span, high + 0.12 * span


def _ticks(low: float, high: float, *, log: bool) -> list[float]:
    if log:
        every = range(math.ceil(low), math.floor(high) + 1)
        step = max(1, len(every) // 8)
        return [10.0**power for power in list(every)[::step]]
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    wide = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    first = math.ceil(low / wide)
    return [wide * n for n in range(first, math.floor(high / wide) + 1)]


def _axes(chart: Chart, scale: _Scale) -> Iterator[str]:
    base, right = _TOP + _HEIGHT, _WIDTH - 30
    for tick in _ticks(scale.left, scale.right, log=chart.log_x):
        at = scale.x(tick)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{base}"/>'
        label = _label(tick, log=chart.log_x)
        yield f'<text class="m" text-anchor="middle" x="{at:.1f}" y="{base + 17}">{label}</text>'
    for tick in _ticks(scale.low, scale.high, log=chart.log_y):
        at = scale.y(tick)
        yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        label = _label(tick, log=chart.log_y)
        yield f'<text class="m" text-anchor="end" x="{_LEFT - 7}" y="{at + 4:.1f}">{label}</text>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{base}" y2="{base}"/>'
    yield (
        f'<text class="m" text-anchor="middle" x="{(_LEFT + right) / 2:.0f}" y="{base + 38}">'
        f"{_safe(chart.x_label)}</text>"
    )
    yield f'<text class="m" x="{_LEFT}" y="{_TOP - 8}">{_safe(chart.y_label)}</text>'


def _label(tick: float, *, log: bool) -> str:
    if not log:
        return f"{tick:g}"
    return format_short(tick)


def _lines(chart: Chart, scale: _Scale) -> Iterator[str]:
    base = _TOP + _HEIGHT
    if chart.era is not None:
        at = scale.x(chart.era[0])
        yield f'<line class="era" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{base}"/>'
        yield f'<text x="{at + 6:.1f}" y="{_TOP + 14}">{_safe(chart.era[1])}</text>'
    if chart.trend and len({b.x for b in chart.bubbles}) > 1:
        slope, start = trend([(b.x, b.y) for b in chart.bubbles])
        ends = [min(b.x for b in chart.bubbles), max(b.x for b in chart.bubbles)]
        (x1, y1), (x2, y2) = ((scale.x(x), scale.y(10 ** (start + slope * x))) for x in ends)
        times = 10**slope
        yield (
            f'<line class="fit" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}">'
            f"<title>times {times:.3g} a year</title></line>"
        )
        yield f'<text class="m" x="{_WIDTH - 220}" y="{_TOP - 8}">trend: x{times:.3g} a year</text>'


def trend(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and intercept of the least-squares line of log10(y) over x.

    Example:
        >>> slope, start = trend([(0, 1), (1, 10), (2, 100)])
        >>> round(slope, 9), round(start, 9)
        (1.0, 0.0)
    """
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    logs = [math.log10(y) for _, y in points]
    mean_y = sum(logs) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for (x, _), y in zip(points, logs, strict=True))
    slope /= spread
    return slope, mean_y - slope * mean_x


def _dots(chart: Chart, scale: _Scale) -> Iterator[str]:
    largest = max((b.size for b in chart.bubbles), default=1.0) or 1.0
    order = sorted(range(len(chart.bubbles)), key=lambda at: -chart.bubbles[at].size)
    for at in order:
        b = chart.bubbles[at]
        radius = max(_LARGE * math.sqrt(max(b.size, 0) / largest), _SMALL)
        if len({other.size for other in chart.bubbles}) == 1:
            radius = _SMALL * 2
        x, y = scale.x(b.x), scale.y(b.y)
        label = f"{shorten(b.name)}: {chart.x_label} {_amount(b.x, chart.log_x)}, "
        label += f"{chart.y_label} {_amount(b.y, chart.log_y)}"
        yield (
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" '
            f'fill="{PALETTE[at % len(PALETTE)]}"><title>{_safe(label)}</title></circle>'
        )
        yield (
            f'<text text-anchor="middle" x="{x:.1f}" y="{y - radius - 4:.1f}">'
            f"{_safe(shorten(b.name, 28))}</text>"
        )


def _amount(value: float, log: bool) -> str:
    return format_count(value) if log else f"{value:g}"


def _safe(text: str) -> str:
    """Text inside XML."""
    return escape("".join(c if c.isprintable() else "?" for c in text))
