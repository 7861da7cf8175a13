"""Layer types side by side: what ``inspect --op`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis.cost.layer_types import Variant, layer_variants, missing_forms, parse_layer
from peakfold.printable import clean
from peakfold.reports.records import LayerRow, LayersDocument, schema_name
from peakfold.reports.text.tables import plain_table, render
from peakfold.units import format_bytes, format_count


def layers_document(text: str) -> LayersDocument:
    """The forms of a layer.

    Raises:
        UsageError: `text` is no layer.
    """
    layer = parse_layer(text)
    rows = [_row(variant) for variant in layer_variants(layer)]
    return LayersDocument(
        schema=schema_name("layers"),
        layer=" ".join(text.split()),
        rows=rows,
        missing=missing_forms(layer),
    )


def _row(variant: Variant) -> LayerRow:
    f = variant.cost.total().figures
    return LayerRow(
        name=variant.name,
        macs_formula=variant.macs_formula,
        params=f.params or 0,
        macs=f.macs or 0,
        flops=f.flops or 0,
        bytes_moved=f.bytes_moved or 0,
        intensity=f.intensity,
        ratio=variant.ratio,
    )


def layers_text(document: LayersDocument, *, width: int, color: bool) -> str:
    """The forms as a table, and what the letters mean."""
    rows: list[Sequence[str]] = [
        (
            row.name,
            format_count(row.params),
            format_count(row.macs),
            format_count(row.flops),
            format_bytes(row.bytes_moved),
            "?" if row.intensity is None else f"{row.intensity:.1f}",
            f"{row.ratio:.4g}",
        )
        for row in document.rows
    ]
    columns = [
        ("", "left"),
        ("params", "right"),
        ("MACs", "right"),
        ("FLOPs", "right"),
        ("moved", "right"),
        ("FLOPs/B", "right"),
        ("of std", "right"),
    ]
    formulas = [Text(f"{row.name}: MACs = {row.macs_formula}", "dim") for row in document.rows]
    missing = [Text(f"no {name} form: {why}") for name, why in document.missing.items()]
    title = Text(clean(document.layer), "bold")
    body: list[RenderableType] = [title, "", plain_table(columns, rows), *missing, "", *formulas]
    return render(body, width=width, color=color)
