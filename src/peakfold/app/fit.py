"""`fit`: the levers, what each leaves, and which plan to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from peakfold.device import Device
from peakfold.errors import UsageError
from peakfold.planning.fit.levers import FitResult
from peakfold.planning.fit.needing import Runtime
from peakfold.planning.fit.total import Budgets
from peakfold.planning.options import PlanOptions
from peakfold.planning.plan import Search
from peakfold.printable import clean, shorten
from peakfold.reports.records import FitDocument, LeverRecord, schema_name
from peakfold.reports.text.budget import answer, terms
from peakfold.reports.text.lever_cells import batch_line, reasons, work_cell
from peakfold.reports.text.step_lines import told, told_lines
from peakfold.reports.text.tables import CUT, cut_note, plain_table, render
from peakfold.target import load_target
from peakfold.units import format_bytes


def room(device: Device | None, given: Budgets) -> Budgets:
    """What there is: the budgets given, or else the device's memories.

    Raises:
        UsageError: none is given, or nobody could source the device's memory.
    """
    if device is None:
        if given.total is None and given.arena is None:
            raise UsageError(
                "how much memory is there?", hint="give --budget SIZE or --device NAME"
            )
        return given
    if given.total is None and given.arena is None and device.memory is None:
        raise UsageError(
            "the memory of this device could not be sourced",
            where=device.title,
            hint="give --budget SIZE, too",
        )
    memory, flash = device.memory, device.figures.get("flash")
    total = int(memory.value) if given.total is None and memory is not None else given.total
    if given.flash is None and flash is not None:
        return replace(given, total=total, flash=int(flash.value))
    return replace(given, total=total)


def plan_flags(options: PlanOptions) -> list[str]:
    """Flags of `plan` that `fit` was given, too."""
    flags = [] if options.target == "generic" else ["--target", options.target]
    if options.fold_weights:
        flags.append("--fold-weights")
    if not options.fold:
        flags.append("--no-fold")
    return flags if options.align is None else [*flags, "--align", str(options.align)]


def fit_document(
    model: str,
    result: FitResult,
    runtime: Runtime,
    device: Device | None,
    advice: Sequence[str] = (),
) -> FitDocument:
    """The output of ``fit --json``.

    Args:
        model: its name.
        result: the answer.
        runtime: what executes the plan.
        device: where it runs.
        advice: what else to tell.
    """
    last = next((v.flag for v in reversed(result.levers) if v.applied), "")
    flags = " ".join([*plan_flags(result.options), *([last] if last else [])])
    need, budgets, target = result.need, result.budgets, load_target(result.options.target)
    split = result.options.split is not None
    loss, optimizer = told(result.options.train)
    return FitDocument(
        schema=schema_name("fit"),
        model=model,
        loss=loss,
        optimizer=optimizer,
        device=None if device is None else device.name,
        fits=result.fits,
        answer="as it is: " * split + answer(need, budgets, target),
        plan_fits=result.plan_fits,
        plan_answer=f"in bands of rows: {answer(result.planned, budgets, target)}" * split,
        need_bytes=need.at_least,
        have_bytes=budgets.total,
        have_arena_bytes=budgets.arena,
        flash_bytes=need.flash,
        have_flash_bytes=None if need.flash is None else budgets.flash,
        code_bytes=None,
        total=need.total,
        total_bytes=need.nbytes,
        total_at_least_bytes=need.at_least,
        unknown=list(need.unknown),
        beside_bytes=need.at_least - need.arena,
        bound_bytes=result.bound_bytes,
        largest_batch=result.largest_batch,
        batch_note=result.batch_note,
        plan_flags=flags,
        notes=[*result.doubts, *runtime.notes, *advice],
        search=_search(result.complete),
        options=[
            LeverRecord(
                what=lever.what,
                peak_bytes=lever.need.arena,
                need_bytes=lever.need.at_least,
                extra_flops=lever.extra_flops,
                extra_time_s=lever.extra_time_s,
                why_unknown=lever.why,
                applied=lever.applied,
                changes_model=lever.changes_model,
                flag=lever.flag,
                search=_search(lever.complete),
            )
            for lever in result.levers
        ],
    )


def _search(complete: bool) -> Search:
    return "complete" if complete else "time limit"


def fit_text(document: FitDocument, *, width: int, color: bool) -> str:
    """The verdict first, then a row a lever."""
    rows = [
        (
            "*" if lever.applied else "",
            shorten(lever.what, max(width - 57, 20)),
            format_bytes(lever.peak_bytes) + CUT * (lever.search != "complete"),
            format_bytes(lever.need_bytes),
            _met(document, lever),
            work_cell(lever),
        )
        for lever in document.options
    ]
    columns = [
        ("", "left"),
        ("lever", "left"),
        ("arena", "right"),
        ("in all", "right"),
        ("", "right"),
        ("extra work", "right"),
    ]
    body: list[RenderableType] = [
        Text(document.model, "bold"),
        *map(Text, told_lines(document.loss, document.optimizer)),
        Text(clean(document.answer), "green" if document.fits else "red"),
        *(
            [Text(clean(document.plan_answer), "green" if document.plan_fits else "red")]
            if document.plan_answer
            else []
        ),
        "",
        plain_table(columns, rows),
        "",
        Text(f"in all: {terms(document.total)}"),
        Text(_bound(document)),
        Text(batch_line("largest batch that fits", document)),
        Text(f"the plan: peakfold plan MODEL {document.plan_flags}".rstrip()),
    ]
    body += [*map(Text, document.notes), *reasons(document.options)]
    body += cut_note(document.search != "complete")
    body.append(Text("* part of the recommended plan. Every figure is a real plan's."))
    return render(body, width=width, color=color)


def _bound(document: FitDocument) -> str:
    if document.bound_bytes is None:
        return "not proven: shapes or ops of the model are doubtful, as noted"
    return (
        "proven: no order and no layout of the unchanged network has a smaller arena than "
        f"{format_bytes(document.bound_bytes)}"
    )


def _met(document: FitDocument, lever: LeverRecord) -> str:
    """Whether a lever's known need is met, or by how much it misses."""
    pairs = ((lever.need_bytes, document.have_bytes), (lever.peak_bytes, document.have_arena_bytes))
    over = max(need - have for need, have in pairs if have is not None)
    if over > 0:
        return f"+{format_bytes(over)}"
    return "unknown" if document.unknown else "fits"
