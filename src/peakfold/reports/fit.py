"""`fit`: the levers, what each leaves, and which plan to take."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis import Index, static_bytes
from peakfold.device import Device
from peakfold.errors import PeakfoldError, UsageError
from peakfold.frontends import Loaded
from peakfold.ir import Graph
from peakfold.planning.fit import FitResult, Runtime
from peakfold.planning.options import PlanOptions
from peakfold.planning.study import recipe_of
from peakfold.reports.lever_cells import batch_line, reasons, work_cell
from peakfold.reports.payload import FitDocument, LeverRecord, schema_name
from peakfold.reports.text import plain_table, render, shorten
from peakfold.units import format_bytes

_NEVER = 1 << 62


def bytes_beside(index: Index, options: PlanOptions, device: Device | None) -> int:
    """What shares a device's memory with the arena: weights, and inputs that lie outside it.

    A microcontroller reads weights from its flash. Of a plain budget nothing is taken off.
    """
    if device is None:
        return 0
    inputs = sum(index.nbytes[t] for t in index.inputs if not index.static[t])
    outside = inputs if options.inputs in (None, "external") else 0
    return outside + (0 if device.kind == "mcu" else sum(static_bytes(index.graph).values()))


def room(device: Device | None, budget: int | None) -> int:
    """Bytes in all: the budget, or else the device's memory.

    Raises:
        UsageError: neither is given, or nobody could source the device's memory.
    """
    if budget is not None:
        return budget
    if device is None:
        raise UsageError("how much memory is there?", hint="give --budget SIZE or --device NAME")
    if device.memory is None:
        raise UsageError("the memory of this device could not be sourced", where=device.title,
                         hint="give --budget SIZE, too")  # fmt: skip
    return int(device.memory.value)


def runtime_of(model: str, loaded: Loaded, options: PlanOptions) -> tuple[Runtime, list[str]]:
    """What the target's interpreter does with a file by itself, and what to say of it.

    Args:
        model: the file.
        loaded: what was read from it.
        options: of the plans.
    """
    if options.target not in ("tflm", "tflm-cmsis") or Path(model).suffix != ".tflite":
        return Runtime(), []
    if loaded.bindings.shapes or loaded.bindings.dims:
        return Runtime(), ["The file states other shapes, so its own arena is not known."]
    from peakfold.runtimes.tflite.arena import Arena, predict_arena
    from peakfold.runtimes.tflite.planned import after_recipe
    from peakfold.runtimes.tflite.scratch import known_scratch

    @cache
    def file_of(recipe: tuple[str, ...]) -> Arena:
        parsed = after_recipe(Path(model), loaded.graph, recipe)
        return predict_arena(parsed, known_scratch(parsed, options.target))

    def whole(arena: int, asked: PlanOptions) -> int:
        try:
            file = file_of(recipe_of(asked))
            return replace(file, head=max(arena, file.loose)).total
        except PeakfoldError:
            return _NEVER  # a split that no file can say

    try:
        own = file_of(recipe_of(options))
    except PeakfoldError as error:
        return Runtime(), [f"The interpreter's own arena is not known: {error.what}"]
    if options.target != "tflm":
        return Runtime(own=own.head), ["What the interpreter keeps beside the arena with these "
                                       "kernels is not known."]  # fmt: skip
    notes = [f"The interpreter keeps {format_bytes(own.tail)} beside the arena (8-byte pointers, "
             "reference kernels; bands of rows add to it)."]  # fmt: skip
    if own.starting > own.head + own.tail:
        notes.append(f"To start it takes {format_bytes(own.starting)}, more than to run.")
    if _halves(loaded.graph) and not options.fold_weights:
        notes.append("The interpreter refuses half-precision weights: give --fold-weights.")
    if own.unknown:
        notes.append(f"What {', '.join(own.unknown)} takes of the arena is not known.")
    return Runtime(own=own.head, whole=whole, unknown=own.unknown), notes


def _halves(graph: Graph) -> bool:
    return any(
        op.kind == "dequantize" and graph[op.inputs[0]].dtype.name == "float16" for op in graph.ops
    )


def plan_flags(options: PlanOptions) -> list[str]:
    """Flags of `plan` that `fit` was given, too."""
    flags = [] if options.target == "generic" else ["--target", options.target]
    if options.fold_weights:
        flags.append("--fold-weights")
    if not options.fold:
        flags.append("--no-fold")
    return flags if options.align is None else [*flags, "--align", str(options.align)]


def fit_document(
    model: str, result: FitResult, have: int, beside: int, device: Device | None,
    notes: list[str],
) -> FitDocument:  # fmt: skip
    """The output of ``fit --json``."""
    last = next((v.flag for v in reversed(result.levers) if v.applied), "")
    flags = " ".join([*plan_flags(result.options), *([last] if last else [])])
    return FitDocument(
        schema=schema_name("fit"), model=model,
        device=None if device is None else device.name, fits=result.verdict,
        need_bytes=result.need_bytes + beside, have_bytes=have,
        beside_bytes=beside, bound_bytes=result.bound_bytes, largest_batch=result.largest_batch,
        batch_note=result.batch_note,
        plan_flags=flags, notes=notes, unknown=list(result.unknown),
        options=[
            LeverRecord(
                what=lever.what, peak_bytes=lever.peak_bytes,
                need_bytes=lever.need_bytes + beside, extra_flops=lever.extra_flops,
                extra_time_s=lever.extra_time_s, why_unknown=lever.why, applied=lever.applied,
                changes_model=lever.changes_model,
                flag=lever.flag,
            )
            for lever in result.levers
        ],
    )  # fmt: skip


def fit_text(document: FitDocument, *, width: int, color: bool) -> str:
    """The verdict first, then a row a lever."""
    have = document.have_bytes
    rows = [
        (
            "*" if lever.applied else "",
            shorten(lever.what, max(width - 57, 20)),
            format_bytes(lever.peak_bytes),
            format_bytes(lever.need_bytes),
            "fits" if lever.need_bytes <= have else f"+{format_bytes(lever.need_bytes - have)}",
            work_cell(lever),
        )
        for lever in document.options
    ]
    columns = [("", "left"), ("lever", "left"), ("arena", "right"), ("in all", "right"),
               ("", "right"), ("extra work", "right")]  # fmt: skip
    verdict = {True: "fits", False: "does not fit", None: "not known"}[document.fits]
    least = "at least " if document.unknown else ""
    body: list[RenderableType] = [
        Text(document.model, "bold"),
        Text(f"{verdict}: needs {least}{format_bytes(document.need_bytes)} of "
             f"{format_bytes(document.have_bytes)}", "green" if document.fits else "red"),
        "", plain_table(columns, rows), "",
    ]  # fmt: skip
    if document.beside_bytes:
        body.append(Text(f"beside the arena: {format_bytes(document.beside_bytes)}"))
    body.append(
        Text("proven: no order and no layout of the unchanged network needs less than "
             f"{format_bytes(document.bound_bytes)}")
    )  # fmt: skip
    body.append(Text(batch_line("largest batch that fits", document)))
    body.append(Text(f"the plan: peakfold plan MODEL {document.plan_flags}".rstrip()))
    body += [*map(Text, document.notes), *reasons(document.options)]
    body.append(Text("* part of the recommended plan. Every figure is a real plan's."))
    return render(body, width=width, color=color)
