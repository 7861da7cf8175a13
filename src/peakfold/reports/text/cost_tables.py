"""The cost table for documents and notebooks: Markdown and HTML, names made safe."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from peakfold.analysis import Cost
from peakfold.printable import clean, shorten
from peakfold.reports.records.cost_rows import CostRow, cost_rows, selected
from peakfold.reports.text.cost import DEFAULT_TOP, conventions, headline
from peakfold.reports.text.tables import listed
from peakfold.units import format_bytes, format_count

_COLUMNS = ("MACs", "FLOPs", "params", "memory access", "fused", "FLOPs/byte")


def markdown_table(cost: Cost, name: str, rows: Sequence[CostRow], by: str) -> str:
    """The headline and the rows as a Markdown table."""
    lines = [f"**{_safe(shorten(name or 'model'))}**: {headline(cost).plain}", ""]
    lines += [f"{sentence}\n" for sentence in conventions(cost)]
    head = (by, "kind" if by == "op" else "ops", *_COLUMNS)
    lines.append("| " + " | ".join(head) + " |")
    lines.append("|---|" + ("---|" if by == "op" else "---:|") + "---:|" * len(_COLUMNS))
    lines += ["| " + " | ".join(map(_safe, _cells(row, by))) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def html_table(cost: Cost, name: str) -> str:
    """The totals and the costliest ops as an HTML fragment."""
    shown = selected(cost_rows(cost), "flops", DEFAULT_TOP)
    head = "".join(f"<th>{escape(c)}</th>" for c in ("op", "kind", *_COLUMNS))
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row, "op")) + "</tr>"
        for row in shown
    )
    beside = "".join(f"<p>{escape(line)}</p>" for line in conventions(cost))
    unknown = cost.unsupported()
    if unknown:
        kinds = listed(f"{kind} ({count})" for kind, count in unknown.items())
        beside += f"<p>cost not wholly known: {escape(kinds)}</p>"
    title = f"<p><b>{escape(shorten(name or 'model'))}</b>: {escape(headline(cost).plain)}</p>"
    note = "" if len(shown) == len(cost.ops) else f" (the {len(shown)} costliest)"
    count = f"<p>{len(cost.ops):,} ops{note}</p>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{title}{count}{table}{beside}</div>"


def _cells(row: CostRow, by: str) -> list[str]:
    return [
        shorten(row.name) or "(all)",
        shorten(row.kind) if by == "op" else f"{row.ops:,}",
        format_count(row.macs),
        format_count(row.flops),
        format_count(row.params),
        format_bytes(row.bytes_moved),
        format_bytes(row.fused_bytes_moved),
        "?" if row.intensity is None else f"{row.intensity:.2f}",
    ]


def _safe(text: str) -> str:
    """A cell that cannot leave its table, nor become markup."""
    return escape(clean(text), quote=False).replace("|", "\\|").replace("`", "\\`")
