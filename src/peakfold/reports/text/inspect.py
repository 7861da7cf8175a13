"""What ``inspect`` prints: the four key figures, the cost, and memory by role and by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis import Cost
from peakfold.analysis.cost.breakdown import Breakdown, OpAccount
from peakfold.ir import Role
from peakfold.printable import shorten
from peakfold.reports.records.extras import Extras, extras_part
from peakfold.reports.text.cost import DEFAULT_TOP, account, cost_part, headline
from peakfold.reports.text.notices import notice_part, notices
from peakfold.reports.text.tables import counted, heading, plain_table, render, tell_apart
from peakfold.units import format_bytes

_BAR = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Which model: `ops` and `tensors` after folding, `folded` ops that folding removed."""

    name: str
    format: str
    ops: int
    tensors: int
    folded: int


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
    time: Sequence[RenderableType] = (),
    extras: Extras | None = None,
) -> str:
    """The four key figures, what they are made of, memory by role and by op (R7 to R15, R69)."""
    title = Text(shorten(model.name or "graph", 40), "bold")
    title.append(f"  {model.format}, {counted(model.ops, 'op')}", "not bold")
    if model.folded:
        title.append(f" ({model.folded} folded away before the run)", "not bold")
    lines = notices(
        unsupported=unsupported,
        opaque=found.opaque,
        uncounted=cost.unsupported(),
        workspace_unknown=found.workspace_unknown,
        notes=notes,
    )
    body: list[RenderableType] = [
        headline(cost, choice.rate), title, "", *account(cost, choice.rate), "",
        *cost_part(cost, by=choice.by, sort=choice.sort, top=choice.top, width=width), "",
        *time, *extras_part(extras or Extras(), width),
        *_roles(found), "", *_op_part(found, width, choice.top), *notice_part(lines),
        "", Text("Next: peakfold plan MODEL folds the dynamic part.", "dim"),
    ]  # fmt: skip
    return render(body, width=width, color=color)


def _roles(found: Breakdown) -> list[RenderableType]:
    """The account by role: static once, dynamic before any reuse, the signature apart."""
    static = {role.value.replace("_", " "): found.static[role] for role in Role if role.static}
    known = sum(op.workspace or 0 for op in found.ops)
    dynamic = {
        "activation": found.activation,
        "output": found.outputs,
        "gradient": found.gradient,
        "workspace": known,
    }
    total = max(found.static_total + found.dynamic_total, 1)
    rows: list[list[Text]] = []

    def row(label: str, nbytes: int, style: str, least: str = "") -> None:
        share = nbytes / total
        cells = [label, f"{least}{format_bytes(nbytes)}", f"{share:.1%}", "█" * round(share * _BAR)]
        rows.append([Text(cell, style) for cell in cells])

    row("static, allocated once", found.static_total, "bold")
    for label, nbytes in static.items():
        if nbytes or label == "parameter":
            row(f"  {label}", nbytes, "")
    least = ">= " if found.opaque else ""
    row("dynamic, before any reuse", found.dynamic_total, "bold cyan", least)
    for label, nbytes in dynamic.items():
        if nbytes or label == "activation":
            row(f"  {label}", nbytes, "cyan", least if label in ("activation", "output") else "")
    table = plain_table(
        [("memory", "left"), ("bytes", "right"), ("share", "right"), ("", "left")], rows
    )
    return [table, Text(f"inputs, held by the caller: {format_bytes(found.inputs)}")]


def _op_part(found: Breakdown, width: int, top: int | None) -> list[RenderableType]:
    def weight(op: OpAccount) -> int:
        return op.static_bytes + (op.output_bytes or 0) + (op.workspace or 0)

    shown = list(found.ops)
    title = "Memory by op"
    if top is not None and len(shown) > top:
        keep = sorted(range(len(shown)), key=lambda at: (-weight(shown[at]), at))[:top]
        shown = [shown[at] for at in sorted(keep)]
        title = f"Memory by op: the largest {top} of {len(found.ops):,} (--all lists every one)"
    rest = [_op_cells(op, found) for op in shown]
    columns = [
        ("kind", "left"),
        ("params", "right"),
        ("static", "right"),
        ("", "right"),
        ("dynamic", "right"),
        ("", "right"),
    ]
    taken = sum(
        max([len(head), *(len(row[at]) for row in rest)]) + 2
        for at, (head, _) in enumerate(columns)
    )
    room = max(width - taken - 2, 12)
    labels = tell_apart([op.name for op in shown], room)
    rows = [[label, *row] for label, row in zip(labels, rest, strict=True)]
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
