"""`measure --runtime torch --train`: prediction and both truths, side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType
from rich.text import Text

from peakfold.reports.payload import MeasuredStep, MeasureTrainingDocument, schema_name
from peakfold.reports.text import plain_table, render
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.frontends.torch_step import StepOptions
    from peakfold.runtimes.torch.measure import StepMeasurement

TENSORS: Final = 0.002
"""How far storages may be from their prediction."""
ALLOCATIONS: Final = 0.01
"""How far allocations may be from theirs."""


def measure_document(spec: str, options: StepOptions) -> MeasureTrainingDocument:
    """Predict and really run two training steps.

    Args:
        spec: ``package.module:callable``; built with its values.
        options: of the step; the example's own loss and optimizer come first.

    Raises:
        UsageError: nothing to train.
        ModelError: the module cannot be built or run.
    """
    from peakfold.frontends.torch_load import load_example
    from peakfold.runtimes.torch.measure import measure_training

    example = load_example(spec, real=True)
    options = replace(
        options, loss=example.loss or options.loss, optimizer=example.optimizer or options.optimizer
    )
    found = measure_training(example.module, example.args, example.kwargs, options)
    both = (found.first, found.steady)
    close = all(
        abs(step.tensor_error) <= TENSORS and abs(step.allocator_error) <= ALLOCATIONS
        for step in both
    )
    return MeasureTrainingDocument(
        schema=schema_name("measure-training"), runtime="torch", model=spec,
        notes=list(found.predicted.notes), before_bytes=None,
        planned_bytes=found.steady.predicted_scratch, after_bytes=found.steady.allocator,
        obeyed=close, outputs_equal=None, first=_record(found.first),
        steady=_record(found.steady),
    )  # fmt: skip


def _record(step: StepMeasurement) -> MeasuredStep:
    return MeasuredStep(
        predicted_bytes=step.predicted, tensor_bytes=step.tensors,
        predicted_with_scratch_bytes=step.predicted_scratch, allocator_bytes=step.allocator,
        phases=dict(step.phases),
    )  # fmt: skip


def measure_text(document: MeasureTrainingDocument, *, width: int, color: bool) -> str:
    """A row a truth, for both steps."""
    rows = []
    for name, step in (("first", document.first), ("steady", document.steady)):
        rows.append(_row(f"{name} step, tensors", step.predicted_bytes, step.tensor_bytes))
        rows.append(_row(f"{name} step, allocations", step.predicted_with_scratch_bytes,
                         step.allocator_bytes))  # fmt: skip
    columns = [("highest of", "left"), ("predicted", "right"), ("measured", "right"),
               ("off by", "right")]  # fmt: skip
    body: list[RenderableType] = [
        Text(document.model, "bold"), *map(Text, document.notes), "",
        plain_table(columns, rows), "",
        Text("the prediction holds" if document.obeyed else "the prediction is off",
             "green" if document.obeyed else "red"),
    ]  # fmt: skip
    return render(body, width=width, color=color)


def _row(what: str, predicted: int, measured: int) -> tuple[str, ...]:
    off = predicted / measured - 1 if measured else 0.0
    return what, format_bytes(predicted), format_bytes(measured), f"{off:+.3%}"
