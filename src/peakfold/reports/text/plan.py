"""The parts of a plan's report: before and after, what is proven, who is alive at the peak."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from peakfold.planning import PlanResult
from peakfold.planning.timeline import Buffer
from peakfold.printable import shorten
from peakfold.reports.pictures.buffer_names import buffer_name, others
from peakfold.reports.text.step_lines import told, told_lines
from peakfold.reports.text.tables import CUT, counted, heading, listed, plain_table, waiting
from peakfold.units import format_bytes

_MEANING = {
    "naive": "every result in a buffer of its own",
    "inplace": "results written over inputs, views free",
    "share": "buffers handed on when dead",
    "both": "handed on, in place and views",
    "arena": "offsets in one block, in place, views",
}
_PEAK_ROWS = 8


def title(result: PlanResult, name: str) -> Text:
    """Model, target and policies in a line or two."""
    plan, graph = result.plan, result.context.graph
    policy = plan.policies
    line = Text(shorten(name or graph.name or "graph", 40), "bold")
    line.append(f"  {plan.graph.format or 'pf'}, {counted(len(graph.ops), 'op')}", "")
    line.append(
        f"\ntarget {plan.target}: align {policy.align} B, inputs {policy.inputs}, "
        f"outputs {policy.outputs}",
        "not bold",
    )
    for said in told_lines(*told(result.context.options.train)):
        line.append(f"\n{said}", "not bold")
    return line


def headline(result: PlanResult) -> Text:
    """The outcome in one sentence."""
    before, after = result.summary.naive_bytes, result.summary.plan_bytes
    if after >= before:
        return Text(f"{format_bytes(after)}: as much as a buffer for every result.", "bold")
    line = Text(f"{format_bytes(after)} instead of {format_bytes(before)}", "bold")
    return line.append(
        f", {factor(before, after)} less memory for the results of its ops.", "not bold"
    )


def savings(result: PlanResult) -> Table:
    """Bytes of the five modes, with the factor saved, and the bounds."""
    summary = result.summary
    sizes = {
        "naive": summary.naive_bytes,
        "inplace": summary.inplace_bytes,
        "share": summary.share_bytes,
        "both": summary.both_bytes,
        "arena": summary.arena_bytes,
    }
    rows: list[list[Text]] = []
    for mode, nbytes in sizes.items():
        chosen = mode == summary.mode
        cells = [
            f"{'>' if chosen else ' '} {mode}",
            format_bytes(nbytes) + CUT * (mode in summary.cut_short),
            factor(summary.naive_bytes, nbytes),
            _MEANING[mode],
        ]
        rows.append([Text(cell, "bold cyan" if chosen else "") for cell in cells])
    bounds = [
        ("lower bound", summary.lower_bound_bytes, "no offsets for these buffers need less"),
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
    if result.plan.doubtful:
        return Text(
            "Not proven: shapes or ops of the model are doubtful, as noted below.", "yellow"
        )
    if summary.mode != "arena":
        if layout.optimal:
            return Text("Proven: no shared objects for these buffers need less.", "green")
        gap = (layout.total - layout.bound) / max(layout.bound, 1)
        return Text(f"Within {gap:.2%} of the bound of its shared objects; not proven.", "yellow")
    if summary.optimal and summary.order_optimal:
        return Text("Proven minimal: no order of these ops and no layout needs less.", "green")
    if summary.optimal:
        return Text(
            "Proven: no layout of this order and these buffers needs less. Another order might.",
            "green",
        )
    return Text(
        f"Within {summary.gap:.2%} of the lower bound of this order; not proven minimal.", "yellow"
    )


def beside(result: PlanResult) -> Text:
    """What lies inside the planned memory, and what beside it."""
    summary, policies = result.summary, result.plan.policies
    inside, outside = ["activations"], [f"parameters {format_bytes(summary.static_bytes)}"]
    if result.context.target.flash:
        outside[0] += " (in flash)"
    inputs = outside if policies.inputs == "external" else inside
    inputs.append(f"inputs {format_bytes(summary.input_bytes)}")
    outputs = outside if policies.outputs == "external" else inside
    outputs.append(f"outputs {format_bytes(summary.output_bytes)}")
    return Text(f"Inside: {', '.join(inside)}. Beside it: {', '.join(outside)}.")


def zero_copy(result: PlanResult) -> list[RenderableType]:
    """What concatenations built in their place save, since not every runtime can obey it."""
    summary = result.summary
    if summary.mode != "arena" or not summary.zero_copy_concats:
        return []
    return [
        Text(
            f"{counted(summary.zero_copy_concats, 'concatenation')} built in place, without a "
            f"copy; a runtime that copies needs {format_bytes(summary.arena_copying_bytes)}."
        )
    ]


def overlaps(result: PlanResult) -> list[RenderableType]:
    """What results over part of an operand save, since it holds for the target's kernels only."""
    summary = result.summary
    if summary.mode != "arena" or not summary.overlaps:
        return []
    return [
        Text(
            f"{counted(summary.overlaps, 'result')} written over part of an operand; kept apart, "
            f"the arena needs {format_bytes(summary.arena_apart_bytes)}."
        )
    ]


def lanes_part(result: PlanResult) -> list[RenderableType]:
    """How many ops may run at once, and what the plan makes wait beyond the graph."""
    plan, ops = result.plan, result.context.graph.ops
    if plan.lanes == 1:
        return []
    safe = "any run the graph allows" if plan.lanes == "free" else f"{plan.lanes} ops at once"
    waits = [waiting(ops[after].name, ops[before].name) for before, after in plan.added]
    more = f"; added: {listed(waits)}" if waits else ""
    return [Text(f"Safe for {safe}{more}.")]


def peak_part(result: PlanResult, *, width: int) -> list[RenderableType]:
    """Who is alive at the peak, largest first."""
    layout = result.layout
    step = layout.timeline.peak_step
    room = max(width - 46, 16)
    rows: list[list[str]] = []
    alive = layout.timeline.alive_at(step)
    held = {
        id(buffer): sum(p.upper - p.lower for p in buffer.pieces if p.start <= step < p.stop)
        for buffer in alive
    }
    alive.sort(key=lambda buffer: -held[id(buffer)])
    peak = max(layout.timeline.peak, 1)
    for buffer in alive[:_PEAK_ROWS]:
        more = others(layout, buffer)
        tail = f" (+{more} in the same bytes)" if more else ""
        name = shorten(buffer_name(result, layout, buffer), max(room - len(tail), 12)) + tail
        why = shorten(_why(result, buffer, step), max(width - 22 - room, 12))
        rows.append([format_bytes(held[id(buffer)]), f"{held[id(buffer)] / peak:.0%}", name, why])
    if len(alive) > _PEAK_ROWS:
        rest = sum(held[id(buffer)] for buffer in alive[_PEAK_ROWS:])
        left_out = f"{len(alive) - _PEAK_ROWS} more"
        rows.append([format_bytes(rest), f"{rest / peak:.0%}", left_out, ""])
    head = f"Alive at the peak: {format_bytes(layout.timeline.peak)} at step {step + 1}, "
    head += shorten(result.summary.peak_op or "no op", max(width - len(head), 16))
    columns = [("bytes", "right"), ("share", "right"), ("buffer", "left"), ("why", "left")]
    return ["", heading(head), plain_table(columns, rows)]


def _why(result: PlanResult, buffer: Buffer, step: int) -> str:
    """What a buffer is needed for at a step: made or read there, or kept for a later one."""
    if buffer.workspace >= 0:
        return "scratch"
    if buffer.copy >= 0:
        return "copy of an output"
    index, timeline = result.context.index, result.layout.timeline
    schedule = timeline.schedule
    members = timeline.storages.members[buffer.storage]
    if any(schedule.born[t] == step and index.producer[t] >= 0 for t in members):
        return "made here"
    reads = sorted({schedule.step[op] for t in members for op in index.users_of(t)})
    if step in reads:
        return "read here"
    later = next((at for at in reads if at > step), None)
    if later is not None:
        return f"kept for {result.context.step_name(later)} (step {later + 1})"
    return "kept to the end"
