"""Whole reports as text: what each verb prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from peakfold.planning import PlanResult
from peakfold.planning.fit.total import Budgets
from peakfold.printable import clean
from peakfold.reports.pictures.curves import curves_of
from peakfold.reports.records import (
    ClaimRecord,
    LanesDocument,
    OpsDocument,
    TargetsDocument,
    VerifyDocument,
)
from peakfold.reports.text import plan as parts
from peakfold.reports.text.budget import answer
from peakfold.reports.text.notices import notice_part, notices
from peakfold.reports.text.refcount_trace import placement_part, trace_part
from peakfold.reports.text.tables import (
    CUT,
    cut_note,
    heading,
    listed,
    plain_table,
    render,
    waiting,
)
from peakfold.reports.text.timeline import picture
from peakfold.target import Eager
from peakfold.units import format_bytes


def plan_text(
    result: PlanResult, *, name: str = "", width: int, color: bool, advice: Sequence[str] = ()
) -> str:
    """Before and after, the picture, the peak, and what a reader must know."""
    plan = result.plan
    unknown: dict[str, int] = {}
    for op, fact in zip(result.context.graph.ops, result.context.facts, strict=True):
        if fact.workspace is None:
            unknown[op.kind] = unknown.get(op.kind, 0) + 1
    lines = notices(
        unsupported=plan.unsupported,
        opaque=plan.opaque,
        copies=plan.copies,
        workspace_unknown=dict(sorted(unknown.items())),
        notes=[*result.context.graph.notes, *advice],
    )
    body: list[RenderableType] = [
        parts.title(result, name),
        parts.headline(result),
        Text(clean(answer(result.need, Budgets.of(result.context.options), result.context.target))),
        "",
        parts.savings(result),
        "",
        *cut_note(bool(result.summary.cut_short)),
        parts.proof_line(result),
        parts.beside(result),
        *parts.lanes_part(result),
        *parts.zero_copy(result),
        *parts.overlaps(result),
        "",
        heading("Memory over time"),
        *picture(curves_of(result), width=width),
        *parts.peak_part(result, width=width),
        *(trace_part(result) + placement_part(result) if result.trace else []),
        *notice_part(lines),
    ]
    return render(body, width=width, color=color)


def verify_text(document: VerifyDocument, *, width: int, color: bool) -> str:
    """One line a check, then what is only claimed, then the verdict."""
    rows = [
        [
            Text("ok" if check.ok else "FAILED", "green" if check.ok else "bold red"),
            Text(clean(check.name)),
            Text(clean(check.detail)),
        ]
        for check in document.checks
    ]
    table = plain_table([("", "left"), ("check", "left"), ("", "left")], rows)
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    claimed = [f"Claimed, not checked: {c.field} ({c.detail})." for c in _claims(document)]
    verdict = "The plan is valid." if document.ok else "The plan is NOT valid."
    lines = [Text(clean(line)) for line in claimed]
    return render([table, *lines, Text(verdict, "bold")], width=width, color=color)


def _claims(document: VerifyDocument) -> list[ClaimRecord]:
    """Claims, those that say the same in one row."""
    by_detail: dict[str, list[str]] = {}
    for claim in document.claimed:
        by_detail.setdefault(claim.detail, []).append(claim.field)
    return [ClaimRecord(field=", ".join(f), detail=detail) for detail, f in by_detail.items()]


def ops_text(document: OpsDocument, *, width: int, color: bool) -> str:
    """The registry as a table."""

    def yes(value: bool) -> str:
        return "yes" if value else "-"

    rows = [
        [row.kind, yes(row.inplace), yes(row.overlap), yes(row.views), yes(row.parts),
         yes(row.workspace), yes(row.macs), row.engine]
        for row in document.ops
    ]  # fmt: skip
    heads = ("kind", "in place", "overlap", "views", "parts", "workspace", "MACs", "engine")
    note = Text(
        f"{len(rows)} kinds. Workspace and MACs: yes when peakfold can tell them without a "
        "kernel. Any other kind is planned conservatively and shown as unsupported."
    )
    table = plain_table([(head, "left") for head in heads], rows)
    # A long kind breaks over two lines rather than lose a letter or push a column out.
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    return render([table, "", note], width=width, color=color)


def lanes_text(document: LanesDocument, *, width: int, color: bool) -> str:
    """Memory against parallelism, and what each plan makes wait beyond the graph."""
    rows = [
        (
            str(row.lanes),
            f"{row.speedup:.2f}x",
            format_bytes(row.arena_bytes) + CUT * (row.search != "complete"),
            "proven" if row.optimal else f"bound {format_bytes(row.lower_bound_bytes)}",
            str(len(row.edges)),
        )
        for row in document.rows
    ]
    columns = [
        ("lanes", "right"),
        ("at best", "right"),
        ("arena", "right"),
        ("minimal", "left"),
        ("edges", "right"),
    ]
    body: list[RenderableType] = [Text(document.model, "bold"), "", plain_table(columns, rows), ""]
    for row in document.rows:
        if row.edges:
            waits = [waiting(edge.after, edge.before) for edge in row.edges]
            body.append(Text(f"lanes {row.lanes}, beyond the graph: {listed(waits)}"))
    body += cut_note(any(row.search != "complete" for row in document.rows))
    body.append(
        Text("at best: run time against one lane, every op costing the bytes of its results.")
    )
    return render(body, width=width, color=color)


def targets_text(document: TargetsDocument, *, width: int, color: bool) -> str:
    """The targets, a paragraph each."""
    body: list[RenderableType] = []
    for target in document.targets:
        kinds = ", ".join(target.inplace_kinds) or "whatever the registry allows"
        body += [
            Text(target.name, "bold"),
            Text(f"  {target.description}"),
            Text(
                f"  align {target.align} B; inputs {target.inputs}; outputs {target.outputs}; "
                f"views {'free' if target.views else 'copied'}; "
                f"zero-copy concat {'yes' if target.zero_copy_concat else 'no'}"
            ),
            Text(f"  in place: {kinds}"),
            *([Text(f"  in flash: {', '.join(target.flash)}")] if target.flash else []),
            Text(f"  overlap: {', '.join(target.overlap_kinds) or 'nothing'}"),
            *map(Text, _eager(target.eager)),
        ]
    return render(body, width=width, color=color)


def _eager(kept: Eager | None) -> list[str]:
    """What a framework's kernels keep in a training step."""
    if kept is None:
        return []
    mask = "bool" if kept.dropout_mask == "bool" else "the input's type"
    lines = [
        f"  training: masks of dropout of {mask}; attention {kept.attention}; LSTM "
        f"{kept.lstm}; optimizer {kept.optimizer_form}"
    ]
    if kept.caching is not None:
        lines.append(
            f"  caching allocator, blocks of {kept.caching.round} B; context "
            f"{format_bytes(kept.context_bytes)}; for products {kept.product_threads} x "
            f"{format_bytes(kept.product_workspace_bytes)}"
        )
    return lines
