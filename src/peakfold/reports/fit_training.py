"""`fit --train` of a torch module: does it fit, what each lever saves, and the largest batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from peakfold.device import Device
from peakfold.reports.payload import TrainingFitDocument, TrainingLever, schema_name
from peakfold.reports.text import plain_table, render
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.frontends.torch_step import StepOptions


def fit_training(
    spec: str, options: StepOptions, have: int, dims: Mapping[str, int], device: Device | None
) -> TrainingFitDocument:  # fmt: skip
    """Whether a training step fits; every row is a capture, nothing is extrapolated.

    Args:
        spec: ``package.module:callable``; its batch is a named dimension.
        options: of the step.
        have: bytes there are.
        dims: numbers for named dimensions.
        device: whose memory it is.

    Raises:
        UsageError: the batch has no name.
        ModelError: a capture failed.
    """
    from peakfold.frontends.torch_load import load_example
    from peakfold.runtimes.torch import fit

    example = load_example(spec)
    options = replace(
        options, loss=example.loss or options.loss, optimizer=example.optimizer or options.optimizer
    )
    name = fit.batch_name(example)
    steps = fit.steps_of(example, options, dims)
    best = fit.room(steps, options, have)
    rows = [_row("as it is", best.need, fits=best.fits, applied=best.fits)]
    for what, lever, batch in _levers(options, dims.get(name)):
        scaled = dims if batch is None else {**dims, name: batch}
        found = fit.room(fit.steps_of(example, lever, scaled), lever, have)
        takes = found.fits and not best.fits
        rows.append(_row(what, found.need, fits=found.fits, applied=takes))
        best = found if takes else best
    rest = {key: value for key, value in dims.items() if key != name}
    return TrainingFitDocument(
        schema=schema_name("fit-training"), model=spec, notes=list(steps.notes),
        device=None if device is None else device.name, fits=best.fits, need_bytes=best.need,
        have_bytes=have, largest_batch=fit.largest_batch(example, options, have, rest),
        options=rows,
    )  # fmt: skip


def _row(what: str, need: int, *, fits: bool, applied: bool) -> TrainingLever:
    return TrainingLever(what=what, peak_bytes=need, fits=fits, extra_flops=None,
                         extra_time_s=None, applied=applied)  # fmt: skip


def _levers(
    options: StepOptions, batch: int | None
) -> Iterator[tuple[str, StepOptions, int | None]]:
    """Changes that keep the result, near enough, in the order of their cost; each alone."""
    import torch

    if options.form == "default" and isinstance(options.optimizer, str):
        yield "optimizer one parameter at a time", replace(options, form="for-loop"), None
    if options.attention == "as-is":
        yield "fused attention", replace(options, attention="fused"), None
    if options.autocast is None:
        yield "autocast to bfloat16", replace(options, autocast=torch.bfloat16), None
    parts = 2
    while batch is not None and batch % parts == 0 and parts <= 64:
        what = f"batch in {parts} parts, gradients accumulated"
        yield what, replace(options, accumulate=parts * options.accumulate), batch // parts
        parts *= 2


def fit_training_text(document: TrainingFitDocument, *, width: int, color: bool) -> str:
    """The verdict first, then a row a lever."""
    have = document.have_bytes
    rows = [
        (
            "*" if lever.applied else "", lever.what, format_bytes(lever.peak_bytes),
            "fits" if lever.fits else f"+{format_bytes(lever.peak_bytes - have)}",
        )
        for lever in document.options
    ]  # fmt: skip
    columns = [("", "left"), ("lever, each alone", "left"), ("needs", "right"), ("", "right")]
    verdict = "fits" if document.fits else "does not fit"
    body: list[RenderableType] = [
        Text(document.model, "bold"), *map(Text, document.notes),
        Text(f"{verdict}: needs {format_bytes(document.need_bytes)} of {format_bytes(have)}",
             "green" if document.fits else "red"),
        "", plain_table(columns, rows), "",
        Text(f"largest batch as it is: {document.largest_batch}"),
        Text("Every figure is a step run on tensors without memory."),
    ]  # fmt: skip
    return render(body, width=width, color=color)
