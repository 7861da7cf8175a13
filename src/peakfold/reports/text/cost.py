"""The cost part of `inspect` for people: the four key figures, the account, the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis import Cost
from peakfold.printable import clean, shorten
from peakfold.reports.records.cost_rows import CostRow, cost_rows, selected
from peakfold.reports.text.notices import notice_part, notices
from peakfold.reports.text.tables import (
    DEFAULT_WIDTH,
    counted,
    heading,
    listed,
    plain_table,
    render,
    tell_apart,
)
from peakfold.units import format_bytes, format_count

DEFAULT_TOP = 12
_ROOMY = 24
"""Characters for names from which on scopes are set in by two."""


def cost_text(cost: Cost, name: str, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """The cost alone: the four key figures, the account and the costliest ops."""
    lines = notices(unsupported={}, uncounted=cost.unsupported())
    title = [Text(clean(name))] if name else []
    body = [
        headline(cost),
        *title,
        "",
        *account(cost),
        "",
        *cost_part(cost, by="op", sort="file", top=DEFAULT_TOP, width=width),
        *notice_part(lines),
    ]
    return render(body, width=width, color=color)


_MOVED = frozenset({"read", "written"})
_FUSED = frozenset({"fused_read", "fused_written"})
_WORK = frozenset({"macs", "other_ops"})


def headline(cost: Cost, rate: float = 1.0) -> Text:
    """Parameters, FLOPs, memory access and the bandwidth it asks for (R69), per sample."""
    total = cost.total()
    f, low = total.figures, total.lower_bounds
    flops, moved = _each(cost, f.flops), _each(cost, f.bytes_moved)
    parts = [
        f"{_brief(format_count(f.params))} params",
        _bound("macs" in low or "other_ops" in low, f.flops) + _brief(format_count(flops, "FLOPs")),
        f"{_bound(bool(_MOVED.intersection(low)), moved)}{_brief(_bytes(moved))} memory access",
        f"{_bound(bool(_MOVED.intersection(low)), moved)}"
        f"{_brief(format_count(_need(moved, rate), 'B/s'))} bandwidth",
    ]
    return Text(", ".join(parts), "bold")


def _brief(text: str) -> str:
    """An amount with four digits."""
    number, _, unit = text.partition(" ")
    return text if number == "?" or "." not in number else f"{float(number):.4g} {unit}"


def _need(moved: float | None, rate: float) -> float | None:
    return None if moved is None else moved * rate


def account(cost: Cost, rate: float = 1.0) -> list[RenderableType]:
    """The totals, each with how it was counted."""
    total = cost.total()
    f, low = total.figures, total.lower_bounds
    partly = bool(_MOVED.intersection(low))
    fused = f"{_size(f.fused_bytes, bool(_FUSED.intersection(low)))} with element-wise chains fused"
    intensity = "?" if f.intensity is None else f"{f.intensity:.2f} FLOPs/byte"
    partial = f.intensity is not None and (partly or _WORK.intersection(low))
    known = ", of what is known" if partial else ""
    rows = [
        ("MACs", _amount(f.macs, "macs" in low), "multiply-accumulates"),
        ("FLOPs", _amount(f.flops, "macs" in low or "other_ops" in low),
         f"2 x MACs + {format_count(f.other_ops)} other operations"),
        ("memory access", _size(f.bytes_moved, partly), f"read and written, op by op; {fused}"),
        ("bandwidth", _bound(partly, f.bytes_moved)
         + format_count(_need(_each(cost, f.bytes_moved), rate), "B/s"),
         f"needed for {rate:g} {'sample' if rate == 1 else 'samples'} per second (--rate R)"),
        ("intensity", intensity, f"FLOPs per byte of memory access{known}"),
        ("activations", _amount(f.elements, "elements" in low),
         f"elements of all results, {_size(f.output_bytes, 'output_bytes' in low)}"),
        ("weights", format_count(f.params), _stored(cost)),
    ]  # fmt: skip
    cells = [[Text(a), Text(b, "bold"), Text(c)] for a, b, c in rows]
    table = plain_table([("cost", "left"), (_per(cost), "right"), ("", "left")], cells)
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    return [table, *map(Text, conventions(cost))]


def _per(cost: Cost) -> str:
    if not cost.batch:
        return "of a run"
    return f"of batch {cost.batch}"


def _stored(cost: Cost) -> str:
    by_type = ", ".join(f"{format_bytes(n)} {name}" for name, n in cost.param_bytes.items())
    trained = "" if cost.trainable is None else f"; {format_count(cost.trainable)} trainable"
    beside = f"; {counted(cost.statistics, 'stored value')} beside" if cost.statistics else ""
    return f"each once; {by_type or 'nothing'} stored{trained}{beside}"


def conventions(cost: Cost) -> list[str]:
    """What the figures depend on, in sentences: the batch, dimensions, causal attention, loops."""
    lines: list[str] = []
    if cost.batch and cost.batch > 1:
        lines.append(f"per sample = a run / {cost.batch} ({clean(cost.batch_from)})")
    if cost.unbound:
        lines.append(f"not known while these dimensions have no number: {listed(cost.unbound)}")
    if cost.options.causal == "half" and cost.halved:
        lines.append(
            f"causal attention: masked positions of {counted(cost.halved, 'op')} are left out "
            "(--causal half)"
        )
    elif cost.options.causal == "half":
        lines.append(
            "--causal half: nothing is left out, no op's own causal mask hides a position (a mask "
            "that is a tensor cannot be seen)"
        )
    if cost.open_loops:
        lines.append(f"counted for one trip only: {listed(cost.open_loops)} (--trips NAME=N)")
    return lines


def cost_part(
    cost: Cost, *, by: str, sort: str, top: int | None, width: int
) -> list[RenderableType]:
    """The table of ops, scopes or kinds.

    Args:
        cost: what was counted.
        by: rows, as `cost_rows` takes them.
        sort: order; ``file`` shows the costliest rows in the file's order.
        top: rows to show; `None` = all.
        width: characters of a line.
    """
    if by == "op" and sort == "file" and top is not None:
        count, shown = len(cost.ops), _costliest(cost, top)
    else:
        rows = cost_rows(cost, by)
        count, shown = len(rows), selected(rows, sort, top)
    many = len(shown) < count
    title = f"Cost by {by}" if not many else f"Cost by {by}: {len(shown)} of {count:,}"
    if many:
        title += " (--all lists every one)"
    return [heading(title), _table(shown, by, width)]


def _costliest(cost: Cost, top: int) -> list[CostRow]:
    """The ops with the most FLOPs, in the model's order; only their rows are made."""
    flops = [-1 if op.flops is None else op.flops for op in cost.ops]
    keep = sorted(sorted(range(len(flops)), key=lambda at: -flops[at])[:top])
    return cost_rows(replace(cost, ops=tuple(cost.ops[at] for at in keep)), whole=cost.total())


def _table(rows: Sequence[CostRow], by: str, width: int) -> RenderableType:
    columns = [("kind", "left")] if by == "op" else [("ops", "right")]
    columns += [
        ("MACs", "right"),
        ("FLOPs", "right"),
        ("", "right"),
        ("params", "right"),
        ("moved", "right"),
        ("FLOPs/B", "right"),
    ]
    cells = [_cells(row, by) for row in rows]
    taken = sum(
        max([len(head), *(len(row[at]) for row in cells)]) + 2
        for at, (head, _) in enumerate(columns)
    )
    room = max(width - taken - 2, 12)
    if by == "scope":
        labels = [_scope_label(row, room) for row in rows]
    else:
        labels = tell_apart([row.name for row in rows], room)
    return plain_table(
        [(by, "left"), *columns],
        [[label, *rest] for label, rest in zip(labels, cells, strict=True)],
    )


def _scope_label(row: CostRow, room: int) -> str:
    if not row.name:
        return "(all)"
    mark = "/" if "/" in row.name else "."
    depth = row.name.strip(mark).count(mark) + 1
    indent = (2 if room >= _ROOMY else 1) * depth
    return " " * indent + shorten(row.name.rpartition(mark)[2], max(room - indent, 6))


def _cells(row: CostRow, by: str) -> list[str]:
    low = row.lower_bounds
    share = "?" if row.flops_share is None else f"{row.flops_share:.0%}"
    return [
        shorten(row.kind, 14) if by == "op" else f"{row.ops:,}",
        _amount(row.macs, "macs" in low),
        _amount(row.flops, "macs" in low or "other_ops" in low),
        share,
        format_count(row.params),
        _bound("read" in low, row.bytes_moved) + _bytes(row.bytes_moved),
        "?" if row.intensity is None else f"{row.intensity:.1f}",
    ]


def _each(cost: Cost, figure: int | None) -> float | None:
    return figure if not cost.batch else cost.per_sample(figure)


def _bytes(count: float | None) -> str:
    return format_bytes(None if count is None else round(count))


def _bound(lower: bool, figure: float | None) -> str:
    return ">= " if lower and figure is not None else ""


def _size(count: int | None, lower: bool) -> str:
    return _bound(lower, count) + format_bytes(count)


def _amount(count: int | None, lower: bool) -> str:
    return _bound(lower, count) + format_count(count)
