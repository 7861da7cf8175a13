"""The parts of a plan's report: before and after, who is alive at the peak, the step trace."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from peakfold.planning import PlanResult
from peakfold.planning.counter import CounterPlan
from peakfold.reports.names import block_name, others
from peakfold.reports.text import counted, heading, plain_table, shorten
from peakfold.units import format_bytes

_MEANING = {
    "naive": "every result in a buffer of its own",
    "inplace": "results written over inputs, views free",
    "share": "buffers handed on when dead",
    "both": "handed on, in place and views",
    "arena": "offsets in one block, in place, views",
}
_HOW = {"new": "new", "free": "from the box", "inplace": "in place", "view": "view"}
_PEAK_ROWS = 8
# Up to this many tensors every counter is shown at every step, as a textbook would.
_FULL_COUNTERS = 16


def title(result: PlanResult, name: str) -> Text:
    """Model, target and policies in a line or two."""
    plan, graph = result.plan, result.study.graph
    policy = plan.policies
    line = Text(shorten(name or graph.name or "graph", 40), "bold")
    line.append(f"  {plan.graph.format or 'pf'}, {counted(len(graph.ops), 'op')}", "")
    line.append(
        f"\ntarget {plan.target}: align {policy.align} B, inputs {policy.inputs}, "
        f"outputs {policy.outputs}",
        "not bold",
    )
    return line


def savings(result: PlanResult) -> Table:
    """Bytes of the five modes, with the factor saved, and the bounds."""
    summary = result.summary
    sizes = {
        "naive": summary.naive_bytes, "inplace": summary.inplace_bytes,
        "share": summary.share_bytes, "both": summary.both_bytes, "arena": summary.arena_bytes,
    }  # fmt: skip
    rows: list[list[Text]] = []
    for mode, nbytes in sizes.items():
        chosen = mode == summary.mode
        cells = [
            f"{'>' if chosen else ' '} {mode}", format_bytes(nbytes),
            factor(summary.naive_bytes, nbytes), _MEANING[mode],
        ]  # fmt: skip
        rows.append([Text(cell, "bold cyan" if chosen else "") for cell in cells])
    bounds = [
        ("lower bound", summary.lower_bound_bytes, "no offsets for this order need less"),
        ("  of objects", summary.objects_bound_bytes, "no handing on in this order needs less"),
        ("  any order", summary.any_order_bound_bytes, "no order and no layout needs less"),
    ]
    for label, nbytes, meaning in bounds:
        cells = [f"  {label}", format_bytes(nbytes), factor(summary.naive_bytes, nbytes), meaning]
        rows.append([Text(cell, "green") for cell in cells])
    columns = [("  mode", "left"), ("bytes", "right"), ("saved", "right"), ("", "left")]
    return plain_table(columns, rows)


def factor(before: int, after: int) -> str:
    """How many times smaller.

    Example:
        >>> factor(27591112, 6021120), factor(0, 0), factor(5, 0)
        ('4.58x', '1.00x', '-')
    """
    if after == 0:
        return "1.00x" if before == 0 else "-"
    return f"{before / after:.2f}x"


def proof_line(result: PlanResult) -> Text:
    """What is proven, in one sentence; "minimal" only with both proofs."""
    summary, layout = result.summary, result.layout
    if summary.mode in ("naive", "inplace"):
        return Text(f"Mode {summary.mode} shares no memory between buffers: nothing to prove.")
    if summary.mode != "arena":
        if layout.optimal:
            return Text("Proven: no shared objects for these buffers need less.", "green")
        gap = (layout.total - layout.bound) / max(layout.bound, 1)
        return Text(f"Within {gap:.2%} of the bound of its shared objects; not proven.", "yellow")
    if summary.optimal and summary.order_optimal:
        return Text("Proven minimal: no order of these ops and no layout needs less.", "green")
    if summary.optimal:
        return Text(
            "Proven: no layout of this order and these buffers needs less. "
            "Another order might.", "green",
        )  # fmt: skip
    return Text(
        f"Within {summary.gap:.2%} of the lower bound of this order; not proven minimal.", "yellow"
    )


def beside(result: PlanResult) -> Text:
    """What lies inside the planned memory, and what beside it."""
    summary, policies = result.summary, result.plan.policies
    inside, outside = ["activations"], [f"parameters {format_bytes(summary.static_bytes)}"]
    inputs = outside if policies.inputs == "external" else inside
    inputs.append(f"inputs {format_bytes(summary.input_bytes)}")
    outputs = outside if policies.outputs == "external" else inside
    outputs.append(f"outputs {format_bytes(summary.output_bytes)}")
    return Text(f"Inside: {', '.join(inside)}. Beside it: {', '.join(outside)}.")


def peak_part(result: PlanResult, *, width: int) -> list[RenderableType]:
    """Who is alive at the peak, largest first."""
    layout = result.layout
    step = layout.timeline.peak_step
    room = max(width - 34, 16)
    rows: list[list[str]] = []
    alive = layout.timeline.alive_at(step)
    held = {
        id(block): sum(p.upper - p.lower for p in block.pieces if p.start <= step < p.stop)
        for block in alive
    }
    alive.sort(key=lambda block: -held[id(block)])
    peak = max(layout.timeline.peak, 1)
    for block in alive[:_PEAK_ROWS]:
        more = others(layout, block)
        tail = f" (+{more} in the same bytes)" if more else ""
        name = shorten(block_name(result, layout, block), max(room - len(tail), 12)) + tail
        rows.append([format_bytes(held[id(block)]), f"{held[id(block)] / peak:.0%}", name])
    if len(alive) > _PEAK_ROWS:
        rest = sum(held[id(block)] for block in alive[_PEAK_ROWS:])
        rows.append([format_bytes(rest), f"{rest / peak:.0%}", f"{len(alive) - _PEAK_ROWS} more"])
    head = f"Alive at the peak: {format_bytes(layout.timeline.peak)} at step {step + 1}, "
    head += shorten(result.summary.peak_op or "no op", max(width - len(head), 16))
    columns = [("bytes", "right"), ("share", "right"), ("buffer", "left")]
    return ["", heading(head), plain_table(columns, rows)]


def trace_part(result: PlanResult) -> list[RenderableType]:
    """The step table of the reference-counting run; empty when there is no trace."""
    if result.trace is None:
        return []
    heads = ("op", "counters after", "buffer given", "released", "free box after")
    columns = [("step", "right"), *((head, "left") for head in heads)]
    table = plain_table(columns, _trace_rows(result, result.trace))
    for column in table.columns:
        column.no_wrap, column.overflow = False, "fold"
    sizes = ", ".join(f"#{n} {format_bytes(s)}" for n, s in enumerate(result.trace.sizes[:12]))
    more = f" and {len(result.trace.sizes) - 12} more" if len(result.trace.sizes) > 12 else ""
    return [
        "", heading("Step trace of the reference-counting planner"), table,
        Text(f"Buffers: {sizes or 'none'}{more}"),
    ]  # fmt: skip


def traced(result: PlanResult) -> list[int]:
    """Tensors whose counters mean something: those that live in a planned buffer."""
    index, policies = result.study.index, result.study.policies
    external = policies.inputs == "external"
    return [
        t for t in range(len(index.nbytes))
        if t not in index.opaque and not index.static[t]
        and (index.producer[t] >= 0 or not external)
    ]  # fmt: skip


def _trace_rows(result: PlanResult, run: CounterPlan) -> Iterator[list[str]]:
    index = result.study.index
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
    name = shorten(result.study.index.name(tensor), 24)
    if how == "external" or obj < 0:
        return f"{name}: the caller's"
    return f"{name}: #{obj} {_HOW.get(how, how)}"


def _objects(objects: tuple[int, ...], nothing: str) -> str:
    return " ".join(f"#{obj}" for obj in objects) or nothing
