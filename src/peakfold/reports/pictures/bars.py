"""Several networks in all modes, inference beside training: the table and bar chart of R41."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

from rich.console import RenderableType
from rich.text import Text

from peakfold.ir import Graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.printable import shorten
from peakfold.reports.pictures.memory_map import PALETTE
from peakfold.reports.records import ModesDocument, ModesRow, schema_name
from peakfold.reports.text.step_lines import told, told_lines
from peakfold.reports.text.tables import CUT, cut_note, plain_table, render
from peakfold.units import format_bytes

MODES = ("naive", "inplace", "share", "both", "arena")
_BAR, _GAP, _HEIGHT, _LEFT, _TOP = 26, 34, 300, 90, 56
_STYLE = """\
text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}
.h{font-size:18px;font-weight:600}.m{fill:#555}.grid{stroke:#e4e4e4}.axis{stroke:#888}"""


def modes_document(models: Iterable[tuple[str, Graph]], options: PlanOptions) -> ModesDocument:
    """Plan every model in every mode; with a training step, its forward pass beside it.

    Args:
        models: name and graph.
        options: of the plans; `train` adds a second row a model.

    Raises:
        ModelError: a size is not known.
        UsageError: options that do not go together.
    """
    rows = []
    for name, graph in models:
        rows.append(_row(name, "forward", graph, replace(options, train=None)))
        if options.train is not None:
            rows.append(_row(name, "forward and backward", graph, options))
    loss, optimizer = told(options.train)
    return ModesDocument(
        schema=schema_name("modes"),
        target=options.target,
        rows=rows,
        loss=loss,
        optimizer=optimizer,
    )


def _row(name: str, which: str, graph: Graph, options: PlanOptions) -> ModesRow:
    summary = make_plan(graph, replace(options, mode="both")).summary
    return ModesRow(
        model=name,
        run=which,
        naive_bytes=summary.naive_bytes,
        inplace_bytes=summary.inplace_bytes,
        share_bytes=summary.share_bytes,
        both_bytes=summary.both_bytes,
        arena_bytes=summary.arena_bytes,
        lower_bound_bytes=summary.lower_bound_bytes,
        search=summary.search,
        cut_short=summary.cut_short,
    )


def _bytes_of(row: ModesRow) -> tuple[int, ...]:
    return (row.naive_bytes, row.inplace_bytes, row.share_bytes, row.both_bytes, row.arena_bytes)


def modes_text(document: ModesDocument, *, width: int, color: bool) -> str:
    """A row a model and run, a column a mode."""
    rows = [
        (
            shorten(row.model, 24),
            "forward" if row.run == "forward" else "training",
            *(
                format_bytes(n) + CUT * (mode in row.cut_short)
                for mode, n in zip(MODES, _bytes_of(row), strict=True)
            ),
        )
        for row in document.rows
    ]
    columns = [("model", "left"), ("run", "left"), *((mode, "right") for mode in MODES)]
    body: list[RenderableType] = [
        Text(f"target {document.target}"),
        *map(Text, told_lines(document.loss, document.optimizer)),
        "",
        plain_table(columns, rows),
        *cut_note(any(row.cut_short for row in document.rows)),
    ]
    return render(body, width=width, color=color)


def modes_svg(document: ModesDocument) -> str:
    """Grouped bars, one group a model and run; heights are bytes, from zero."""
    groups = document.rows
    top = max((max(_bytes_of(row)) for row in groups), default=1) or 1
    wide = len(MODES) * _BAR + _GAP
    width = _LEFT + max(len(groups), 1) * wide + 20
    height = _TOP + _HEIGHT + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text class="h" x="{_LEFT}" y="24">Memory of results, by mode</text>',
        *_legend(),
        *_grid(top, width),
    ]
    for at, row in enumerate(groups):
        parts += _group(row, _LEFT + _GAP // 2 + at * wide, top)
    base = _TOP + _HEIGHT
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{width}" y1="{base}" y2="{base}"/>')
    return "\n".join([*parts, "</svg>\n"])


def _legend() -> Iterable[str]:
    for at, mode in enumerate(MODES):
        x = _LEFT + at * 80
        yield f'<rect x="{x}" y="34" width="12" height="12" fill="{PALETTE[at]}"/>'
        yield f'<text x="{x + 17}" y="44">{mode}</text>'


def _grid(top: int, width: int) -> Iterable[str]:
    for part in range(5):
        y = _TOP + _HEIGHT - part * _HEIGHT / 4
        label = format_bytes(top * part // 4)
        yield f'<line class="grid" x1="{_LEFT}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="m" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _group(row: ModesRow, left: int, top: int) -> Sequence[str]:
    parts = []
    base = _TOP + _HEIGHT
    for at, (mode, nbytes) in enumerate(zip(MODES, _bytes_of(row), strict=True)):
        tall = nbytes / top * _HEIGHT
        parts.append(
            f'<rect class="bar" x="{left + at * _BAR}" y="{base - tall:.2f}" width="{_BAR - 3}" '
            f'height="{tall:.2f}" fill="{PALETTE[at]}"><title>{escape(shorten(row.model))}, '
            f"{row.run}, {mode}: {nbytes} B</title></rect>"
        )
    middle = left + len(MODES) * _BAR / 2
    name = escape(shorten(row.model, 20))
    parts.append(f'<text x="{middle}" y="{base + 20}" text-anchor="middle">{name}</text>')
    parts.append(
        f'<text class="m" x="{middle}" y="{base + 38}" text-anchor="middle">{row.run}</text>'
    )
    return parts
