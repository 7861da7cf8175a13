"""Models side by side, and one model before and after a change, op by op."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis import Cost, OpCost
from peakfold.analysis.cost.sparsity import Effective
from peakfold.planning.fit.total import Need, Total
from peakfold.printable import clean, csv_text, shorten
from peakfold.reports.text.tables import heading, plain_table, render, tell_apart
from peakfold.reports.text.timing import seconds
from peakfold.units import format_bytes, format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model of a comparison; `None` = not known, or not asked for.

    Attributes:
        params: weights, each once; `param_bytes` is all that is stored.
        peak_bytes: the arena of a plan with the generic target.
        total: what that plan takes of the arena's memory, by use.
        total_bytes: its sum; `None` where a term is not known.
        total_at_least_bytes: the sum of what is known.
        time_s: bound or estimate on the device that was named.
        accuracy: from the table that was given, in its unit.
        effective_macs, two_four_macs, structured_macs: those that zeros among the weights leave,
            as in `peakfold.analysis.cost.sparsity`.
        lower_bounds: names of figures that leave something out.
    """

    name: str
    format: str
    ops: int
    params: int | None
    param_bytes: int
    macs: int | None
    flops: int | None
    bytes_moved: int | None
    fused_bytes_moved: int | None
    activation_elements: int | None
    intensity: float | None
    peak_bytes: int | None
    total: Total | None
    total_bytes: int | None
    total_at_least_bytes: int | None
    time_s: float | None
    accuracy: float | None
    effective_macs: int | None
    two_four_macs: int | None
    structured_macs: int | None
    lower_bounds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpChange:
    """One op before and after; `None` on the side where it does not exist, or is not known.

    Attributes:
        change: same, changed, added or removed.
        effective_macs_before, effective_macs_after: MACs whose weight is not zero.
    """

    name: str
    kind_before: str | None
    kind_after: str | None
    change: str
    macs_before: int | None
    macs_after: int | None
    flops_before: int | None
    flops_after: int | None
    params_before: int | None
    params_after: int | None
    bytes_moved_before: int | None
    bytes_moved_after: int | None
    output_bytes_before: int | None
    output_bytes_after: int | None
    effective_macs_before: int | None
    effective_macs_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument:
    """Output of ``compare --json``; `ops` only with ``--ops``.

    Attributes:
        time_note: what the times rest on, with their error where that is known.
        notes: why figures of a model are not known.
    """

    schema: str
    models: list[ModelRow]
    device: str | None
    time_note: str | None
    notes: list[str]
    ops: list[OpChange] | None


def model_row(
    name: str,
    kind: str,
    cost: Cost,
    *,
    need: Need | None = None,
    time_s: float | None = None,
    accuracy: float | None = None,
    sparse: Effective | None = None,
) -> ModelRow:
    """The row of one model; `need` is a plan's."""
    total = cost.total()
    f = total.figures
    return ModelRow(
        name=name,
        format=kind,
        ops=len(cost.ops),
        params=f.params,
        param_bytes=sum(cost.param_bytes.values()),
        macs=f.macs,
        flops=f.flops,
        bytes_moved=f.bytes_moved,
        fused_bytes_moved=f.fused_bytes,
        activation_elements=f.elements,
        intensity=f.intensity,
        time_s=time_s,
        peak_bytes=None if need is None else need.arena,
        total=None if need is None else need.total,
        total_bytes=None if need is None else need.nbytes,
        total_at_least_bytes=None if need is None else need.at_least,
        accuracy=accuracy,
        lower_bounds=total.lower_bounds,
        effective_macs=None if sparse is None else sparse.unstructured,
        two_four_macs=None if sparse is None else sparse.two_four,
        structured_macs=None if sparse is None else sparse.structured,
    )


def op_changes(before: Cost, after: Cost, sparse: Sequence[Effective] = ()) -> list[OpChange]:
    """Ops of two models by name, in the order of the first, new ones where they stand.

    Args:
        before: one model.
        after: the other.
        sparse: what zeros leave of each, where the weights were read.

    Example:
        >>> from peakfold.analysis import cost_of
        >>> from peakfold.ir import parse_graph
        >>> head = "peakfold-graph 1\\ninput x: int8[4]\\n"
        >>> one = cost_of(parse_graph(head + "y: int8[4] = relu(x)\\noutput y"))
        >>> two = cost_of(parse_graph(head + "y: int8[4] = clip(x)\\noutput y"))
        >>> [(c.name, c.change, c.flops_before, c.flops_after) for c in op_changes(one, two)]
        [('y', 'changed', 4, 8)]
    """
    old, new = _by_name(before.ops), _by_name(after.ops)
    behind: dict[tuple[str, int] | None, list[tuple[str, int]]] = {}
    last: tuple[str, int] | None = None
    for key in new:
        if key in old:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    order = list(behind.get(None, ()))
    for key in old:
        order.append(key)
        order.extend(behind.get(key, ()))
    left = [_left(cost, found) for cost, found in zip((before, after), sparse, strict=False)]
    left += [{}] * (2 - len(left))
    return [
        _change(key[0], old.get(key), new.get(key), left[0].get(key), left[1].get(key))
        for key in order
    ]


def _left(cost: Cost, found: Effective) -> dict[tuple[str, int], int | None]:
    """MACs without zeros of every op; those without stored weights count in full."""
    keys, read, at = _by_name(cost.ops), found.ops, 0
    left: dict[tuple[str, int], int | None] = {}
    for key, op in keys.items():
        known = at < len(read) and (read[at].name, read[at].kind) == (op.name, op.kind)
        known = known and read[at].macs == op.macs
        left[key] = read[at].unstructured if known else op.macs
        at += known
    return left


def _by_name(ops: Iterable[OpCost]) -> dict[tuple[str, int], OpCost]:
    """Ops by name; of equal names, the first of one model is the first of the other."""
    seen: dict[str, int] = {}
    found: dict[tuple[str, int], OpCost] = {}
    for op in ops:
        number = seen.get(op.name, 0)
        seen[op.name] = number + 1
        found[op.name, number] = op
    return found


def _change(
    name: str, old: OpCost | None, new: OpCost | None, left: int | None, left_new: int | None
) -> OpChange:
    a, b = (None if op is None else op.figures for op in (old, new))
    if old is None or new is None:
        change = "added" if old is None else "removed"
    else:
        change = "same" if (old.kind, a, left) == (new.kind, b, left_new) else "changed"
    return OpChange(
        name=name,
        change=change,
        kind_before=old.kind if old else None,
        kind_after=new.kind if new else None,
        macs_before=a.macs if a else None,
        macs_after=b.macs if b else None,
        flops_before=a.flops if a else None,
        flops_after=b.flops if b else None,
        params_before=a.params if a else None,
        params_after=b.params if b else None,
        bytes_moved_before=a.bytes_moved if a else None,
        bytes_moved_after=b.bytes_moved if b else None,
        output_bytes_before=a.output_bytes if a else None,
        output_bytes_after=b.output_bytes if b else None,
        effective_macs_before=left,
        effective_macs_after=left_new,
    )


_COLUMNS = ("params", "MACs", "FLOPs", "moved", "FLOPs/B", "peak", "total")


def _cells(row: ModelRow, heads: Sequence[str]) -> list[str]:
    low = set(row.lower_bounds)
    at_least = {
        name: ">= " if hit and figure is not None else ""
        for name, figure, hit in (
            ("macs", row.macs, "macs" in low),
            ("flops", row.flops, bool(low & {"macs", "other_ops"})),
            ("moved", row.bytes_moved, bool(low & {"read", "written"})),
        )
    }
    cells = {
        "params": format_count(row.params),
        "MACs": at_least["macs"] + format_count(row.macs),
        "FLOPs": at_least["flops"] + format_count(row.flops),
        "moved": at_least["moved"] + format_bytes(row.bytes_moved),
        "FLOPs/B": "?" if row.intensity is None else f"{row.intensity:.1f}",
        "peak": "-" if row.peak_bytes is None else format_bytes(row.peak_bytes),
        "total": _total(row),
        "time": "?" if row.time_s is None else seconds(row.time_s),
        "accuracy": "?" if row.accuracy is None else f"{row.accuracy:g}",
        "no zeros": at_least["macs"] + format_count(row.effective_macs),
    }
    return [cells[name] for name in heads]


def _total(row: ModelRow) -> str:
    if row.total_at_least_bytes is None:
        return "-"
    return ">= " * (row.total_bytes is None) + format_bytes(row.total_at_least_bytes)


def _heads(document: CompareDocument) -> list[str]:
    """Columns that have something to say; intensity gives way to what was asked for."""
    extra = ["time"] if document.device else []
    extra += ["no zeros"] if any(r.effective_macs is not None for r in document.models) else []
    extra += ["accuracy"] if any(r.accuracy is not None for r in document.models) else []
    planned = any(r.peak_bytes is not None for r in document.models)
    gone = ({"FLOPs/B"} if extra else set()) | (set() if planned else {"peak", "total"})
    return [name for name in _COLUMNS if name not in gone] + extra


def compare_text(document: CompareDocument, *, width: int, color: bool) -> str:
    """The models as a table; then, with ``--ops``, what changed."""
    heads = _heads(document)
    cells = [_cells(row, heads) for row in document.models]
    taken = sum(max(len(h), *(len(c[at]) for c in cells)) + 2 for at, h in enumerate(heads))
    room = max(width - taken - 2, 12)
    columns = [("model", "left"), *((head, "right") for head in heads)]
    rows = [[shorten(row.name, room), *c] for row, c in zip(document.models, cells, strict=True)]
    body: list[RenderableType] = [plain_table(columns, rows)]
    if "peak" in heads:
        note = "peak: the arena of a plan; total: weights, inputs, outputs too, no kernel scratch"
        body.append(Text(note, "dim"))
    if "no zeros" in heads:
        body.append(Text("no zeros: MACs whose weight is not zero", "dim"))
    if document.device:
        note = f"time: on {clean(document.device)}, {clean(document.time_note or '')}"
        body.append(Text(note, "dim"))
    body += [Text(clean(note)) for note in document.notes]
    if document.ops is not None:
        body += ["", *_changes_part(document.ops, width)]
    return render(body, width=width, color=color)


def _changes_part(changes: Sequence[OpChange], width: int) -> list[RenderableType]:
    different = [c for c in changes if c.change != "same"]
    title = f"Ops that differ: {len(different):,} of {len(changes):,}"
    sparse = any(c.effective_macs_before is not None for c in changes)
    columns = [
        ("op", "left"),
        ("kind", "left"),
        ("MACs", "right"),
        *([("no zeros", "right")] if sparse else []),
        ("params", "right"),
        ("moved", "right"),
    ]
    rest = [
        [
            _pair(c, c.kind_before, c.kind_after),
            _pair(c, _count(c.macs_before), _count(c.macs_after)),
            *(
                [_pair(c, _count(c.effective_macs_before), _count(c.effective_macs_after))]
                if sparse
                else []
            ),
            _pair(c, _count(c.params_before), _count(c.params_after)),
            _pair(c, _size(c.bytes_moved_before), _size(c.bytes_moved_after)),
        ]
        for c in different
    ]
    taken = sum(
        max([len(h), *(len(r[at]) for r in rest)]) + 2 for at, (h, _) in enumerate(columns[1:])
    )
    room = max(width - taken - 2, 12)
    marks = {"added": "+ ", "removed": "- "}
    labels = tell_apart([c.name for c in different], room - 2)
    rows = [
        [marks.get(c.change, "") + label, *r]
        for c, label, r in zip(different, labels, rest, strict=True)
    ]
    return [heading(title), plain_table(columns, rows)]


def _count(value: int | None) -> str | None:
    return None if value is None else format_count(value)


def _size(value: int | None) -> str | None:
    return None if value is None else format_bytes(value)


def _pair(change: OpChange, before: str | None, after: str | None) -> str:
    """Before and after; of an op that only one model has, that one's."""
    if change.change in ("added", "removed"):
        return before or after or "-"
    if before == after:
        return before or "-"
    return f"{before or '-'} > {after or '-'}"


def compare_csv(document: CompareDocument) -> str:
    """The models, or with ``--ops`` the ops, one a line; what is not known is empty."""
    if document.ops is not None:
        return _csv(OpChange, document.ops)
    return _csv(ModelRow, document.models)


def _csv(kind: type, rows: Iterable[object]) -> str:
    names = [item.name for item in fields(kind) if item.name != "total"]
    return csv_text([names, *([getattr(row, name) for name in names] for row in rows)])


def compare_markdown(document: CompareDocument) -> str:
    """The models as a Markdown table."""
    heads = _heads(document)
    lines = ["| " + " | ".join(["model", *heads]) + " |", "|---|" + "---:|" * len(heads)]
    for row in document.models:
        name = escape(shorten(row.name), quote=False).replace("|", "\\|")
        lines.append("| " + " | ".join([name, *_cells(row, heads)]) + " |")
    return "\n".join(lines) + "\n"
