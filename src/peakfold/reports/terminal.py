"""Whole reports as text: what each verb prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis import Cost
from peakfold.ir import Role
from peakfold.planning import PlanResult
from peakfold.reports import plan_parts as parts
from peakfold.reports.breakdown import Breakdown, OpAccount
from peakfold.reports.cost_text import DEFAULT_TOP, account, cost_part, headline
from peakfold.reports.curves import curves_of
from peakfold.reports.notices import notice_part, notices
from peakfold.reports.payload import LanesDocument, OpsDocument, TargetsDocument, VerifyDocument
from peakfold.reports.text import clean, counted, heading, listed, plain_table, render, shorten
from peakfold.reports.timeline import picture
from peakfold.reports.trace import placement_part, trace_part
from peakfold.units import format_bytes

_LARGEST = DEFAULT_TOP
_BAR = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Which model: `ops` and `tensors` after folding, `folded` ops that folding removed."""

    name: str
    format: str
    ops: int
    tensors: int
    folded: int


def plan_text(result: PlanResult, *, name: str = "", width: int, color: bool) -> str:
    """Before and after, the picture, the peak, and what a reader must know."""
    plan = result.plan
    unknown: dict[str, int] = {}
    for op, fact in zip(result.study.graph.ops, result.study.facts, strict=True):
        if fact.workspace is None:
            unknown[op.kind] = unknown.get(op.kind, 0) + 1
    lines = notices(
        unsupported=plan.unsupported, opaque=plan.opaque, copies=plan.copies,
        workspace_unknown=dict(sorted(unknown.items())), notes=result.study.graph.notes,
    )  # fmt: skip
    body: list[RenderableType] = [
        parts.title(result, name),
        parts.headline(result),
        "",
        parts.savings(result),
        "",
        parts.proof_line(result),
        parts.beside(result),
        *parts.lanes_part(result),
        *parts.zero_copy(result),
        "",
        heading("Memory over time"),
        *picture(curves_of(result), width=width),
        *parts.peak_part(result, width=width),
        *(trace_part(result) + placement_part(result) if result.trace else []),
        *notice_part(lines),
    ]
    return render(body, width=width, color=color)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice:
    """Which rows of the cost table are shown, and in what order.

    Attributes:
        by: op, scope or kind.
        sort: a figure, name or file.
        top: how many; `None` = all.
        rate: samples per second that the bandwidth is asked for.
    """

    by: str = "op"
    sort: str = "file"
    top: int | None = DEFAULT_TOP
    rate: float = 1.0


def inspect_text(
    model: ModelFacts,
    found: Breakdown,
    cost: Cost,
    unsupported: Mapping[str, int],
    notes: Sequence[str],
    choice: TableChoice,
    *,
    width: int,
    color: bool,
) -> str:
    """The four key figures, what they are made of, memory by role and by op (R7 to R15, R69)."""
    title = Text(shorten(model.name or "graph", 40), "bold")
    title.append(f"  {model.format}, {counted(model.ops, 'op')}", "not bold")
    if model.folded:
        title.append(f" ({model.folded} folded away before the run)", "not bold")
    lines = notices(
        unsupported=unsupported, opaque=found.opaque, uncounted=cost.unsupported(),
        workspace_unknown=found.workspace_unknown, notes=notes,
    )  # fmt: skip
    body: list[RenderableType] = [
        headline(cost, choice.rate), title, "", *account(cost, choice.rate), "",
        *cost_part(cost, by=choice.by, sort=choice.sort, top=choice.top, width=width), "",
        *_roles(found), "", *_op_part(found, width, choice.top is None), *notice_part(lines),
        "", Text("Next: peakfold plan MODEL folds the dynamic part.", "dim"),
    ]  # fmt: skip
    return render(body, width=width, color=color)


def _roles(found: Breakdown) -> list[RenderableType]:
    """The account by role: static once, dynamic before any reuse, the signature apart."""
    static = {role.value.replace("_", " "): found.static[role] for role in Role if role.static}
    known = sum(op.workspace or 0 for op in found.ops)
    dynamic = {"activation": found.activation, "output": found.outputs,
               "gradient": found.gradient, "workspace": known}  # fmt: skip
    total = max(found.static_total + found.dynamic_total, 1)
    rows: list[list[Text]] = []

    def row(label: str, nbytes: int, style: str, *, bar: bool = True) -> None:
        share = nbytes / total
        cells = [label, format_bytes(nbytes), f"{share:.1%}", "█" * round(share * _BAR)]
        rows.append([Text(cell, style) for cell in (cells if bar else cells[:3])])

    row("static, allocated once", found.static_total, "bold")
    for label, nbytes in static.items():
        if nbytes or label == "parameter":
            row(f"  {label}", nbytes, "")
    row("dynamic, before any reuse", found.dynamic_total, "bold cyan")
    for label, nbytes in dynamic.items():
        if nbytes or label == "activation":
            row(f"  {label}", nbytes, "cyan")
    table = plain_table([("memory", "left"), ("bytes", "right"), ("share", "right"),
                         ("", "left")], rows)  # fmt: skip
    return [table, Text(f"inputs, held by the caller: {format_bytes(found.inputs)}")]


def _op_part(found: Breakdown, width: int, every_op: bool) -> list[RenderableType]:
    def weight(op: OpAccount) -> int:
        return op.static_bytes + (op.output_bytes or 0) + (op.workspace or 0)

    shown = list(found.ops)
    title = "Memory by op"
    if not every_op and len(shown) > _LARGEST:
        keep = sorted(range(len(shown)), key=lambda at: (-weight(shown[at]), at))[:_LARGEST]
        shown = [shown[at] for at in sorted(keep)]
        title = f"The {_LARGEST} largest of {len(found.ops):,} ops (--all lists every one)"
    rest = [_op_cells(op, found) for op in shown]
    columns = [("kind", "left"), ("params", "right"), ("static", "right"), ("", "right"),
               ("dynamic", "right"), ("", "right")]  # fmt: skip
    taken = sum(
        max([len(head), *(len(row[at]) for row in rest)]) + 2
        for at, (head, _) in enumerate(columns)
    )
    room = max(width - taken - 2, 12)
    rows = [[shorten(op.name, room), *row] for op, row in zip(shown, rest, strict=True)]
    return [heading(title), plain_table([("op", "left"), *columns], rows)]


def _op_cells(op: OpAccount, found: Breakdown) -> list[str]:
    """Kind, parameters, static bytes and dynamic bytes (results and known scratch) of an op."""
    cells = [
        shorten(op.kind, 16),
        f"{op.params:,}",
        format_bytes(op.static_bytes),
        f"{op.static_bytes / max(found.static_total, 1):.0%}",
    ]
    if op.output_bytes is None:
        return [*cells, "?", "?"]
    dynamic = op.output_bytes + (op.workspace or 0)
    return [*cells, format_bytes(dynamic), f"{dynamic / max(found.dynamic_total, 1):.0%}"]


def verify_text(document: VerifyDocument, *, width: int, color: bool) -> str:
    """One line a check, then the verdict."""
    rows = [
        [
            Text("ok" if check.ok else "FAILED", "green" if check.ok else "bold red"),
            Text(clean(check.name)), Text(clean(check.detail)),
        ]
        for check in document.checks
    ]  # fmt: skip
    table = plain_table([("", "left"), ("check", "left"), ("", "left")], rows)
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    verdict = "The plan is valid." if document.ok else "The plan is NOT valid."
    return render([table, Text(verdict, "bold")], width=width, color=color)


def ops_text(document: OpsDocument, *, width: int, color: bool) -> str:
    """The registry as a table."""

    def yes(value: bool) -> str:
        return "yes" if value else "-"

    rows = [
        [row.kind, yes(row.inplace), yes(row.views), yes(row.parts), yes(row.workspace),
         yes(row.macs), row.engine]
        for row in document.ops
    ]  # fmt: skip
    columns = [("kind", "left"), ("in place", "left"), ("views", "left"), ("parts", "left"),
               ("workspace", "left"), ("MACs", "left"), ("engine", "left")]  # fmt: skip
    note = Text(
        f"{len(rows)} kinds. Workspace and MACs: yes when peakfold can tell them without a "
        "kernel. Any other kind is planned conservatively and shown as unsupported."
    )
    table = plain_table(columns, rows)
    # A long kind breaks over two lines rather than lose a letter or push a column out.
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    return render([table, "", note], width=width, color=color)


def lanes_text(document: LanesDocument, *, width: int, color: bool) -> str:
    """Memory against parallelism, and what each plan makes wait beyond the graph."""
    rows = [
        (
            str(row.lanes), f"{row.speedup:.2f}x", format_bytes(row.arena_bytes),
            "proven" if row.optimal else f"bound {format_bytes(row.lower_bound_bytes)}",
            str(len(row.edges)),
        )
        for row in document.rows
    ]  # fmt: skip
    columns = [("lanes", "right"), ("at best", "right"), ("arena", "right"),
               ("minimal", "left"), ("edges", "right")]  # fmt: skip
    body: list[RenderableType] = [Text(document.model, "bold"), "", plain_table(columns, rows), ""]
    for row in document.rows:
        if row.edges:
            waits = [f"{shorten(e.after, 30)} waits for {shorten(e.before, 30)}" for e in row.edges]
            body.append(Text(f"lanes {row.lanes}, beyond the graph: {listed(waits)}"))
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
        ]
    return render(body, width=width, color=color)
