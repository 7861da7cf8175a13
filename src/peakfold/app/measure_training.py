"""`measure --runtime torch --train`: prediction and both truths, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.console import RenderableType
from rich.text import Text

from peakfold.errors import UsageError
from peakfold.reports.records import DevicePhase, MeasuredStep, MeasureTrainingDocument, schema_name
from peakfold.reports.text.step_lines import first_lines, taken
from peakfold.reports.text.tables import plain_table, render
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.frontends.torch.module import Example
    from peakfold.frontends.torch.training.step import StepOptions
    from peakfold.runtimes.torch.cuda import Allocator
    from peakfold.runtimes.torch.measure import StepMeasurement

TENSORS: Final = 0.002
"""How far storages may be from their prediction."""
ALLOCATIONS: Final = 0.01
"""How far allocations may be from theirs, and segments (or one of them)."""
SEGMENT: Final = 20 << 20
DEVICES: Final = ("cpu", "cuda")


def measure_document(
    spec: str, options: StepOptions, device: str | None = None, allocator: Allocator | None = None
) -> MeasureTrainingDocument:
    """Predict and really run two training steps.

    Args:
        spec: ``package.module:callable``; built with its values.
        options: of the step; the example's own loss and optimizer come first.
        device: ``cpu`` or ``cuda``; where the example's tensors are if left out.
        allocator: of a CUDA device; the current one if left out.

    Raises:
        UsageError: nothing to train, or no such device.
        BackendMissing: no CUDA device is here.
        ModelError: the module cannot be built or run.
    """
    if device not in (None, *DEVICES):
        raise UsageError(f"no device {device!r} to measure on", hint="known: cpu, cuda")
    from peakfold.frontends.torch.load import load_example
    from peakfold.runtimes.torch import cuda, fit
    from peakfold.runtimes.torch.measure import measure_training

    if device == "cuda":
        allocator = allocator or cuda.CudaAllocator()  # before a large model is built
    example = load_example(spec, real=True, on_device=device != "cpu")
    chosen = device or _home(example)
    options = replace(fit.own_options(example, options), device=chosen)
    example = _on_host(example)
    inputs = (example.module, example.args, example.kwargs)
    if chosen == "cuda":
        options = replace(options, attention=options.rules.attention)
        found = cuda.measure_on_device(*inputs, options, allocator)
    else:
        found = measure_training(*inputs, options, example.route)
    why = "as asked" if device else "where the example's tensors are"
    steps = (found.first, found.steady)
    return MeasureTrainingDocument(
        schema=schema_name("measure-training"),
        runtime="torch",
        model=spec,
        **taken(found.predicted, keep_result=options.keep_result),
        notes=[*found.predicted.notes, f"measured on {chosen}, {why}"],
        before_bytes=None,
        planned_bytes=found.steady.predicted_scratch,
        after_bytes=found.steady.allocator,
        obeyed=all(close(step, example.route) for step in steps),
        outputs_equal=None,
        device=chosen,
        predicted_context_bytes=None if found.outside is None else options.rules.context_bytes,
        context_bytes=found.outside,
        first=measured_record(found.first),
        steady=measured_record(found.steady),
    )


def _home(example: Example) -> str:
    """Where the example's tensors are."""
    from torch.utils._pytree import tree_leaves

    from peakfold.frontends.torch.objects import tensors_of

    given = (example.args, dict(example.kwargs))
    tensors = (*example.module.parameters(), *tree_leaves(given), *tensors_of(given))
    return "cuda" if any(getattr(t, "is_cuda", False) for t in tensors) else "cpu"


def _on_host(example: Example) -> Example:
    """The example on the CPU, so that a device holds the measured copy alone."""
    from peakfold.frontends.torch.training.phases import moved

    args, kwargs = moved((tuple(example.args), dict(example.kwargs)), "cpu")
    return replace(example, module=example.module.cpu(), args=args, kwargs=kwargs)


def close(step: StepMeasurement, route: str = "") -> bool:
    """Whether a prediction holds. An unwatched run (route run) has no storages apart."""
    tensors = route == "run" or abs(step.tensor_error) <= TENSORS
    near = tensors and abs(step.allocator_error) <= ALLOCATIONS
    if step.reserved is None:
        return near
    predicted, measured = step.reserved
    return near and abs(predicted - measured) <= max(ALLOCATIONS * measured, SEGMENT)


def measured_record(step: StepMeasurement) -> MeasuredStep:
    """What was measured, as documents have it."""
    predicted, measured = step.reserved or (None, None)
    phases = {
        name: DevicePhase(
            predicted_allocated_bytes=one.allocated,
            allocated_bytes=two.allocated,
            predicted_reserved_bytes=one.reserved,
            reserved_bytes=two.reserved,
        )
        for name, (one, two) in step.device.items()
    }
    return MeasuredStep(
        predicted_bytes=step.predicted,
        tensor_bytes=step.tensors,
        predicted_with_scratch_bytes=step.predicted_scratch,
        allocator_bytes=step.allocator,
        predicted_reserved_bytes=predicted,
        reserved_bytes=measured,
        phases=dict(step.phases),
        device_phases=phases or None,
    )


def measure_text(document: MeasureTrainingDocument, *, width: int, color: bool) -> str:
    """A row a truth, for both steps."""
    steps = [("first step", document.first), ("steady step", document.steady)]
    beside = []
    if document.predicted_context_bytes is not None and document.context_bytes is not None:
        beside = [
            _row("beside the allocator", document.predicted_context_bytes, document.context_bytes)
        ]
    body: list[RenderableType] = [
        Text(document.model, "bold"),
        *map(Text, (*first_lines(document), *document.notes)),
        "",
        *measured_table(steps, beside, obeyed=document.obeyed),
    ]
    return render(body, width=width, color=color)


def measured_table(
    steps: Sequence[tuple[str, MeasuredStep]], more: Sequence[tuple[str, ...]], *, obeyed: bool
) -> list[RenderableType]:
    """Prediction and truths of each step, and whether the prediction holds."""
    rows = []
    for name, step in steps:
        rows.append(_row(f"{name}, tensors", step.predicted_bytes, step.tensor_bytes))
        rows.append(
            _row(f"{name}, allocations", step.predicted_with_scratch_bytes, step.allocator_bytes)
        )
        if step.predicted_reserved_bytes is not None and step.reserved_bytes is not None:
            rows.append(
                _row(f"{name}, segments", step.predicted_reserved_bytes, step.reserved_bytes)
            )
        for phase, found in (step.device_phases or {}).items():
            rows.append(
                _row(
                    f"  {phase}, allocations",
                    found.predicted_allocated_bytes,
                    found.allocated_bytes,
                )
            )
            rows.append(
                _row(f"  {phase}, segments", found.predicted_reserved_bytes, found.reserved_bytes)
            )
    columns = [
        ("highest of", "left"),
        ("predicted", "right"),
        ("measured", "right"),
        ("off by", "right"),
    ]
    return [
        plain_table(columns, [*rows, *more]),
        "",
        Text(
            "the prediction holds" if obeyed else "the prediction is off",
            "green" if obeyed else "red",
        ),
    ]


def _row(what: str, predicted: int, measured: int) -> tuple[str, ...]:
    off = predicted / measured - 1 if measured else 0.0
    return what, format_bytes(predicted), format_bytes(measured), f"{off:+.3%}"
