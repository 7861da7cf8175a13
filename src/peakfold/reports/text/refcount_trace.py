"""The step trace of the reference-counting run, and the final placement it leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType
from rich.text import Text

from peakfold.ir import Op
from peakfold.planning import PlanResult
from peakfold.planning.aliasing.reference_counting import CounterPlan
from peakfold.planning.plan import PlannedBuffer
from peakfold.printable import shorten
from peakfold.reports.text.tables import counted, heading, listed, plain_table
from peakfold.units import format_bytes

_HOW = {"new": "new", "free": "from the box", "inplace": "in place", "view": "view"}
# Up to this many tensors every counter is shown at every step, as a textbook would.
_FULL_COUNTERS = 16
# Buffers and trace objects that are named one by one.
_SHOWN = 40


def trace_part(result: PlanResult) -> list[RenderableType]:
    """The step table of the reference-counting run; empty when there is no trace."""
    if result.trace is None:
        return []
    heads = ("op", "counters after", "buffer given", "released", "free box after")
    columns = [("step", "right"), *((head, "left") for head in heads)]
    table = plain_table(columns, _trace_rows(result, result.trace))
    for column in table.columns:
        column.no_wrap, column.overflow = False, "fold"
    sizes = listed(
        [f"#{n} {format_bytes(size)}" for n, size in enumerate(result.trace.sizes)], _SHOWN
    )
    return [
        "",
        heading("Step trace of the reference-counting planner"),
        table,
        Text(f"Buffers of the trace: {sizes or 'none'}"),
    ]


def traced(result: PlanResult) -> list[int]:
    """Tensors whose counters mean something: those that live in a planned buffer."""
    index, policies = result.context.index, result.context.policies
    external = policies.inputs == "external"
    return [
        t
        for t in range(len(index.nbytes))
        if t not in index.opaque
        and not index.static[t]
        and (index.producer[t] >= 0 or not external)
    ]


def _trace_rows(result: PlanResult, run: CounterPlan) -> Iterator[list[str]]:
    index = result.context.index
    shown = traced(result)
    full = len(shown) <= _FULL_COUNTERS
    known = set(shown)
    counters = {t: run.initial[t] for t in shown}

    def tell(tensors: list[int]) -> str:
        return " ".join(f"{shorten(index.name(t), 24)}={counters[t]}" for t in tensors)

    yield ["0", "-", tell(shown) if full else f"{len(shown)} tensors", "-", "-", "empty"]
    for row in run.rows:
        changed = [t for t, _ in row.counters if t in known]
        counters.update((t, left) for t, left in row.counters if t in known)
        yield [
            str(row.step + 1),
            shorten(index.graph.ops[row.op].name, 24),
            tell(shown if full else changed),
            ", ".join(_given(result, item) for item in row.given) or "-",
            _objects(row.released, "-"),
            _objects(row.free, "empty"),
        ]


def _given(result: PlanResult, item: tuple[int, int, str]) -> str:
    tensor, obj, how = item
    name = shorten(result.context.index.name(tensor), 24)
    if how == "external" or obj < 0:
        return f"{name}: the caller's"
    return f"{name}: #{obj} {_HOW.get(how, how)}"


def _objects(objects: tuple[int, ...], nothing: str) -> str:
    return " ".join(f"#{obj}" for obj in objects) or nothing


@dataclass(frozen=True, slots=True)
class _Row:
    """One buffer: tenants in time order; `reused` when its bytes hold more than one thing."""

    number: int
    offset: int
    size: int
    tenants: list[str]
    reused: bool


def placement_part(result: PlanResult) -> list[RenderableType]:
    """Which tensor lies in which buffer (R34): reused buffers first, then the others.

    In the object modes a buffer is a shared object; in mode arena it is a range of addresses,
    and it is reused when any other buffer has some of these addresses at another time.
    """
    found = sorted(_rows(result), key=lambda row: (not row.reused, row.offset, row.number))
    rows = [
        [
            f"#{row.number}",
            f"{row.offset}",
            format_bytes(row.size),
            "reused" if row.reused else "not reused",
            listed(row.tenants, 12),
        ]
        for row in found
    ]
    left = ("bytes", "left"), ("tensors", "left")
    columns = [("buffer", "left"), ("offset", "right"), ("size", "right"), *left]
    table = plain_table(columns, rows[:_SHOWN])
    table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"
    parts: list[RenderableType] = ["", heading("Final plan: tensors by buffer"), table]
    if len(rows) > _SHOWN:
        parts.append(Text(f"and {counted(len(rows) - _SHOWN, 'buffer')} more; --json has all"))
    outside = [place.tensor for buffer in result.plan.external for place in buffer.tensors]
    if outside:
        parts.append(Text(f"In the caller's memory or a parameter's: {listed(outside, 12)}"))
    return parts


def _rows(result: PlanResult) -> list[_Row]:
    ops = result.context.graph.ops
    groups: dict[int, list[PlannedBuffer]] = {}
    for at, buffer in enumerate(result.plan.buffers):
        groups.setdefault(at if buffer.object is None else buffer.object, []).append(buffer)
    rows: list[_Row] = []
    for key, members in groups.items():
        members.sort(key=lambda buffer: min((p.start for p in buffer.live), default=0))
        tenants = [name for buffer in members for name in _tenants(buffer, ops)]
        size = max(buffer.size for buffer in members)
        rows.append(_Row(key, members[0].offset, size, tenants, len(tenants) > 1))
    return _marked(sorted(rows, key=lambda row: (row.offset, row.number)))


def _marked(rows: list[_Row]) -> list[_Row]:
    """Rows by offset, reused where a row before reaches in or the next one starts inside."""
    marked: list[_Row] = []
    reached = 0
    for at, row in enumerate(rows):
        stop = row.offset + row.size
        after = rows[at + 1] if at + 1 < len(rows) else None
        shared = row.offset < reached or (after is not None and after.offset < stop)
        marked.append(replace(row, reused=row.reused or shared))
        reached = max(reached, stop)
    return marked


def _tenants(buffer: PlannedBuffer, ops: Sequence[Op]) -> list[str]:
    if buffer.what == "workspace":
        return [f"scratch of {ops[buffer.op or 0].name}"]
    prefix = "copy of " if buffer.what == "copy" else ""
    return [prefix + place.tensor for place in buffer.tensors]
