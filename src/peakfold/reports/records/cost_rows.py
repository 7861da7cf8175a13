"""A cost as rows of one kind: per op, per scope or per kind; sorted, cut, and as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from peakfold.analysis import Cost, Figures, OpCost, Total
from peakfold.analysis.cost.records import enclosing
from peakfold.errors import UsageError
from peakfold.printable import csv_text

BY = ("op", "scope", "kind")
SORTS = ("flops", "macs", "params", "bytes", "fused", "output", "intensity", "name", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One row; `None` = not known.

    Attributes:
        name: of the op, the scope or the kind.
        kind: of the op; empty for a sum.
        ops: how many ops the row sums up.
        flops_share: of all known FLOPs.
        lower_bounds: names of figures that leave something out.
    """

    name: str
    kind: str
    scope: str
    ops: int
    engine: str
    dtype: str
    macs: int | None
    other_ops: int | None
    flops: int | None
    flops_share: float | None
    params: int | None
    elements: int | None
    output_bytes: int | None
    bytes_read: int | None
    bytes_written: int | None
    bytes_moved: int | None
    fused_bytes_moved: int | None
    intensity: float | None
    lower_bounds: tuple[str, ...] = ()


def cost_rows(cost: Cost, by: str = "op", whole: Total | None = None) -> list[CostRow]:
    """The rows of a cost.

    Args:
        cost: what was counted.
        by: ``op``, ``scope`` (each with what it contains, outermost first) or ``kind``.
        whole: what shares refer to; `None` = the cost's own total.

    Raises:
        UsageError: another word.
    """
    flops = (whole or cost.total()).figures.flops
    if by == "op":
        return [_op_row(op, flops) for op in cost.by_op()]
    if by not in BY:
        raise UsageError(f"there are no rows by {by!r}", hint=f"known: {', '.join(BY)}")
    groups = cost.by_scope() if by == "scope" else cost.by_kind()
    rows = [_sum_row(name, total, flops) for name, total in groups.items()]
    return _nested(rows, cost) if by == "scope" else rows


def _op_row(op: OpCost, whole: int | None) -> CostRow:
    return _row(
        op.figures,
        whole,
        name=op.name,
        kind=op.kind,
        scope=op.scope,
        ops=1,
        engine=op.engine,
        dtype=op.dtype,
    )


def _sum_row(name: str, total: Total, whole: int | None) -> CostRow:
    return _row(
        total.figures,
        whole,
        name=name,
        kind="",
        scope="",
        ops=total.ops,
        engine="",
        dtype="",
        lower_bounds=total.lower_bounds,
    )


def _row(
    f: Figures,
    whole: int | None,
    *,
    name: str,
    kind: str,
    scope: str,
    ops: int,
    engine: str,
    dtype: str,
    lower_bounds: tuple[str, ...] = (),
) -> CostRow:
    share = f.flops / whole if f.flops is not None and whole else None
    return CostRow(
        name=name,
        kind=kind,
        scope=scope,
        ops=ops,
        engine=engine,
        dtype=dtype,
        macs=f.macs,
        other_ops=f.other_ops,
        flops=f.flops,
        flops_share=share,
        params=f.params,
        elements=f.elements,
        output_bytes=f.output_bytes,
        bytes_read=f.read,
        bytes_written=f.written,
        bytes_moved=f.bytes_moved,
        fused_bytes_moved=f.fused_bytes,
        intensity=f.intensity,
        lower_bounds=lower_bounds,
    )


def _nested(rows: list[CostRow], cost: Cost) -> list[CostRow]:
    """Scopes so that each is followed by those inside it, in order of first appearance."""
    row_of = {row.name: row for row in rows}
    inside: dict[str, dict[str, None]] = {}
    for op in cost.ops:
        for outer, inner in pairwise(enclosing(op.scope)):
            inside.setdefault(outer, {})[inner] = None
    ordered: list[CostRow] = []
    pending = [""] if rows else []
    while pending:
        name = pending.pop()
        ordered.append(row_of[name])
        pending.extend(reversed(inside.get(name, {})))
    return ordered


def selected(rows: Sequence[CostRow], sort: str, top: int | None) -> list[CostRow]:
    """Rows in the order asked for, `top` of them: the first, or in the file's order the costliest.

    Args:
        rows: as `cost_rows` returns them.
        sort: one of `SORTS`; figures descend, unknown ones last, ``file`` keeps the order.
        top: how many to keep; `None` keeps all.

    Raises:
        UsageError: another word.
    """
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}", hint=f"known: {', '.join(SORTS)}")
    ordered = list(rows)
    if sort == "file" and top is not None:
        costly = sorted(range(len(ordered)), key=lambda at: -_weight(ordered[at], "flops"))
        return [ordered[at] for at in sorted(costly[:top])]
    if sort == "name":
        ordered.sort(key=lambda row: row.name)
    elif sort != "file":
        ordered.sort(key=lambda row: -_weight(row, sort))
    return ordered[:top]


def _weight(row: CostRow, sort: str) -> float:
    column = {"bytes": "bytes_moved", "fused": "fused_bytes_moved", "output": "output_bytes"}
    value: float | None = getattr(row, column.get(sort, sort))
    return -1.0 if value is None else float(value)


def to_csv(rows: Iterable[CostRow]) -> str:
    """The rows as CSV with a header; what is not known is an empty cell.

    Example:
        >>> to_csv([]).split(",")[:3]
        ['name', 'kind', 'scope']
    """
    names = [item.name for item in fields(CostRow)]
    return csv_text([names, *([getattr(row, name) for name in names] for row in rows)])
