"""`fit --train` of a torch module: does it fit, what each lever saves, and the largest batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis.cost.cost_delta import Extra, Spent, extra
from peakfold.device import Device
from peakfold.errors import PeakfoldError, UsageError
from peakfold.reports.records import TrainingFitDocument, TrainingLever, schema_name
from peakfold.reports.text.lever_cells import batch_line, reasons, work_cell
from peakfold.reports.text.step_lines import first_lines, taken
from peakfold.reports.text.tables import plain_table, render
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.frontends.torch.module import Example
    from peakfold.frontends.torch.training.options import StepOptions
    from peakfold.ir.run import Steps
    from peakfold.runtimes.torch.levers import Lever


def fit_training(
    spec: str, options: StepOptions, have: int, dims: Mapping[str, int], device: Device | None
) -> TrainingFitDocument:
    """Whether a training step fits; every row is a capture, nothing is extrapolated.

    Args:
        spec: ``package.module:callable``; for a largest batch, one dimension is called so.
        options: of the step.
        have: bytes there are.
        dims: numbers for named dimensions.
        device: whose memory it is.

    Raises:
        UsageError: nothing to train, or a name the example does not have.
        ModelError: a capture failed.
    """
    from peakfold.frontends.torch.load import load_example
    from peakfold.runtimes.torch import fit
    from peakfold.runtimes.torch.levers import levers

    example = load_example(spec)
    options = fit.own_options(example, options)
    name, note = _batch(example)
    batch = fit.batch_number(example, name, dims) if name else None
    steps = fit.steps_of(example, options, dims)
    best = fit.room(steps, options, have)
    rows = [_row("as it is", best.need, Extra(0, 0.0), fits=best.fits, applied=best.fits)]
    before = _Costs(example, device)
    base = before.of(options, dims)
    for lever in levers(options, dims, name, batch, device):
        if example.route == "run" and lever.options.attention != options.attention:
            continue  # the kernels that run are this CPU's
        changed = fit.steps_of(example, lever.options, lever.dims)
        if _same(steps, changed) and not lever.whole:
            continue  # nothing of the kind is there to change
        found = fit.room(changed, lever.options, have)
        takes = found.fits and not best.fits
        rows.append(
            _row(lever.what, found.need, before.extra(base, lever), fits=found.fits, applied=takes)
        )
        best = found if takes else best
        if lever.whole and found.fits:
            break  # smaller parts fit, too, and cost more
    rest = {key: value for key, value in dims.items() if key != name}
    most = fit.largest_batch(example, options, have, rest) if name else None
    return TrainingFitDocument(
        schema=schema_name("fit-training"),
        model=spec,
        notes=list(steps.notes),
        **taken(steps, keep_result=options.keep_result),
        device=None if device is None else device.name,
        fits=best.fits,
        need_bytes=best.need,
        have_bytes=have,
        largest_batch=most,
        batch_note=note,
        options=rows,
    )


def _batch(example: Example) -> tuple[str, str]:
    """The name of the batch, or why there is none."""
    from peakfold.runtimes.torch.fit import batch_name

    try:
        return batch_name(example), ""
    except UsageError as error:
        return "", str(error)


class _Costs:
    """What steps cost; a step that cannot be counted still has its memory."""

    def __init__(self, example: Example, device: Device | None) -> None:
        self._example, self._device = example, device

    def of(self, options: StepOptions, dims: Mapping[str, int]) -> Spent | str:
        """What a step asks for, or why that is not known."""
        from peakfold.runtimes.torch.levers import step_cost

        try:
            return step_cost(self._example, options, dims, self._device)
        except PeakfoldError as error:
            return error.what

    def extra(self, base: Spent | str, lever: Lever) -> Extra:
        """What a lever adds."""
        after = base if isinstance(base, str) else self.of(lever.options, lever.dims)
        if isinstance(base, str) or isinstance(after, str):
            return Extra(None, None, str(after))
        return extra(base, after)


def _same(one: Steps, two: Steps) -> bool:
    """Whether two histories hold the same storages at the same times."""
    return one.first.storages == two.first.storages and one.steady.storages == two.steady.storages


def _row(what: str, need: int, added: Extra, *, fits: bool, applied: bool) -> TrainingLever:
    return TrainingLever(
        what=what,
        peak_bytes=need,
        fits=fits,
        extra_flops=added.flops,
        extra_time_s=added.time_s,
        why_unknown=added.why,
        applied=applied,
    )


def fit_training_text(document: TrainingFitDocument, *, width: int, color: bool) -> str:
    """The verdict first, then a row a lever."""
    have = document.have_bytes
    rows = [
        (
            "*" if lever.applied else "",
            lever.what,
            format_bytes(lever.peak_bytes),
            "fits" if lever.fits else f"+{format_bytes(lever.peak_bytes - have)}",
            work_cell(lever),
        )
        for lever in document.options
    ]
    columns = [
        ("", "left"),
        ("lever, each alone", "left"),
        ("needs", "right"),
        ("", "right"),
        ("extra work", "right"),
    ]
    verdict = "fits" if document.fits else "does not fit"
    body: list[RenderableType] = [
        Text(document.model, "bold"),
        *map(Text, (*first_lines(document), *document.notes)),
        Text(
            f"{verdict}: needs {format_bytes(document.need_bytes)} of {format_bytes(have)}",
            "green" if document.fits else "red",
        ),
        "",
        plain_table(columns, rows),
        "",
        Text(batch_line("largest batch as it is", document)),
        Text("Every figure is a step run on tensors without memory; times are roofline bounds."),
        *reasons(document.options),
    ]
    return render(body, width=width, color=color)
