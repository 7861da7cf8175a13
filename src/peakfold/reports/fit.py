"""`fit`: the levers, what each leaves, and which plan to take."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis import Index, static_bytes
from peakfold.device import Device
from peakfold.errors import UsageError
from peakfold.planning.fit import FitResult
from peakfold.planning.options import PlanOptions
from peakfold.reports.payload import FitDocument, LeverRecord, schema_name
from peakfold.reports.text import plain_table, render, shorten
from peakfold.units import format_bytes


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


def fit_document(
    model: str, result: FitResult, have: int, beside: int, device: Device | None
) -> FitDocument:
    """The output of ``fit --json``."""
    return FitDocument(
        schema=schema_name("fit"), model=model,
        device=None if device is None else device.name, fits=result.fits,
        need_bytes=result.need_bytes + beside, have_bytes=have,
        beside_bytes=beside, bound_bytes=result.bound_bytes, largest_batch=result.largest_batch,
        options=[
            LeverRecord(
                what=lever.what, peak_bytes=lever.peak_bytes, extra_flops=lever.extra_flops,
                extra_time_s=None, applied=lever.applied, changes_model=lever.changes_model,
                flag=lever.flag,
            )
            for lever in result.levers
        ],
    )  # fmt: skip


def fit_text(document: FitDocument, *, width: int, color: bool) -> str:
    """The verdict first, then a row a lever."""
    have = max(document.have_bytes - document.beside_bytes, 0)
    rows = [
        (
            "*" if lever.applied else "",
            shorten(lever.what, max(width - 44, 20)),
            format_bytes(lever.peak_bytes),
            "fits" if lever.peak_bytes <= have else f"+{format_bytes(lever.peak_bytes - have)}",
            _work(lever),
        )
        for lever in document.options
    ]
    columns = [("", "left"), ("lever", "left"), ("arena", "right"), ("", "right"),
               ("extra work", "right")]  # fmt: skip
    verdict = "fits" if document.fits else "does not fit"
    body: list[RenderableType] = [
        Text(document.model, "bold"),
        Text(f"{verdict}: needs {format_bytes(document.need_bytes)} of "
             f"{format_bytes(document.have_bytes)}", "green" if document.fits else "red"),
        "", plain_table(columns, rows), "",
    ]  # fmt: skip
    if document.beside_bytes:
        body.append(Text(f"beside the arena: {format_bytes(document.beside_bytes)}"))
    body.append(
        Text("proven: no order and no layout of the unchanged network needs less than "
             f"{format_bytes(document.bound_bytes)}")
    )  # fmt: skip
    if document.largest_batch is not None:
        body.append(Text(f"largest batch that fits: {document.largest_batch}"))
    last = next((v.flag for v in reversed(document.options) if v.applied), "")
    body.append(Text(f"the plan: peakfold plan MODEL {last}".rstrip()))
    body.append(Text("* part of the recommended plan. Every figure is a real plan's."))
    return render(body, width=width, color=color)


def _work(lever: LeverRecord) -> str:
    if lever.changes_model:
        return "other results"
    if lever.extra_flops is None:
        return "unknown"
    return f"{lever.extra_flops / 1e6:.1f} MFLOPs" if lever.extra_flops else "none"
