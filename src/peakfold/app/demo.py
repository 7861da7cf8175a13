"""What the demo shows beside the plan's report: what was proven, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from peakfold.app.results import PlanReport, VerifyReport
from peakfold.planning import encode_plan
from peakfold.printable import clean
from peakfold.reports.records import DemoDocument, schema_name, to_json
from peakfold.reports.text.plan import factor
from peakfold.reports.text.tables import heading, render
from peakfold.units import format_bytes


def contents(report: PlanReport, *, png: bool) -> dict[str, bytes]:
    """The demo's files: the plan and its pictures."""
    made = {"plan": encode_plan(report.plan), "svg": report.to_svg().encode()}
    if png:
        made["png"] = report.to_png()
    return made


def proven(report: PlanReport, verdict: VerifyReport, *, width: int, color: bool) -> str:
    """What was checked and what is proven, in one line each."""
    summary = report.summary
    lines = [
        f"{'ok' if check.ok else 'FAILED'}: {clean(check.name)}: {clean(check.detail)}"
        for check in verdict.document.checks
    ]
    saved = factor(summary.naive_bytes, summary.plan_bytes)
    lines.append(
        f"memory folded from {format_bytes(summary.naive_bytes)} to "
        f"{format_bytes(summary.plan_bytes)}: {saved} less"
    )
    if summary.optimal:
        lines.append("packing proven: no layout of this order and these buffers is smaller")
    if summary.order_optimal:
        lines.append("order proven: no order of this model needs less")
    parts = [heading("What was proven"), *(Text(f"- {line}") for line in lines)]
    return render(["", *parts], width=width, color=color)


def demo_json(model: str, report: PlanReport, verdict: VerifyReport, written: Sequence[str]) -> str:
    """The output of ``demo --json``."""
    return to_json(
        DemoDocument(
            schema=schema_name("demo"),
            model=model,
            summary=report.summary,
            verified=verdict.document,
            written=list(written),
        )
    )
