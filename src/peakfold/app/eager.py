"""Inference as eager PyTorch runs it: `plan --eager`, and `measure --runtime torch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from peakfold.app.measure_training import close, measured_record, measured_table
from peakfold.app.train import peak_tables, step_record
from peakfold.errors import UsageError
from peakfold.ir.run import Run
from peakfold.reports.records import EagerDocument, MeasureForwardDocument, schema_name, to_json
from peakfold.reports.text.tables import render
from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.frontends.torch.training.options import StepOptions


@dataclass(frozen=True, slots=True, eq=False)
class EagerReport:
    """What a forward pass needs.

    Attributes:
        document: everything, as ``--json`` prints it.
        run: the pass as it ran.
    """

    document: EagerDocument
    run: Run

    def to_json(self) -> str:
        """The document."""
        return to_json(self.document)

    def to_text(self, *, width: int = 80, color: bool = False) -> str:
        """The report for a terminal."""
        found = self.document.forward
        says = (
            f"a forward pass needs {format_bytes(found.peak_bytes)}: "
            f"{format_bytes(found.static_bytes)} static, "
            f"{format_bytes(found.dynamic_bytes)} dynamic at the peak"
        )
        body = [*_head(self.document), Text(says), *peak_tables(found)]
        return render(body, width=width, color=color)


def eager_report(spec: str, options: StepOptions, dims: Mapping[str, int]) -> EagerReport:
    """Follow a forward pass without gradients, on tensors without memory or really (route run).

    Args:
        spec: ``package.module:callable``.
        options: whose kernels run, and autocast.
        dims: numbers for named dimensions.

    Raises:
        UsageError: a name the example does not have, or numbers for one that is really run.
        ModelError: the pass failed.
    """
    from peakfold.frontends.torch.load import load_example
    from peakfold.runtimes.torch.fit import forward_of

    example = load_example(spec)
    run = forward_of(example, options, dims)
    kernels = f"one forward pass without gradients, its result held; kernels of {options.device}"
    document = EagerDocument(
        schema=schema_name("eager"),
        model=spec,
        notes=[kernels, *run.notes],
        forward=step_record(run),
    )
    return EagerReport(document, run)


def measure_forward_document(spec: str, device: str | None = None) -> MeasureForwardDocument:
    """Predict a forward pass and run it, on the CPU.

    Args:
        spec: ``package.module:callable``; built with its values.
        device: ``cpu``, or left out.

    Raises:
        UsageError: another device.
        ModelError: the module cannot be built or run.
    """
    if device not in (None, "cpu"):
        raise UsageError("a forward pass is measured on the CPU", hint="leave --device out")
    from peakfold.frontends.torch.load import load_example
    from peakfold.runtimes.torch.measure import measure_forward

    example = load_example(spec, real=True)
    found = measure_forward(example.module, example.args, example.kwargs, route=example.route)
    return MeasureForwardDocument(
        schema=schema_name("measure-forward"),
        runtime="torch",
        model=spec,
        notes=["one forward pass without gradients, its result held", *found.notes],
        before_bytes=None,
        planned_bytes=found.predicted_scratch,
        after_bytes=found.allocator,
        obeyed=close(found, example.route),
        outputs_equal=None,
        device="cpu",
        forward=measured_record(found),
    )


def measure_forward_text(
    document: MeasureForwardDocument, *, width: int = 80, color: bool = False
) -> str:
    """A row a truth."""
    body = measured_table([("forward pass", document.forward)], [], obeyed=document.obeyed)
    return render([*_head(document), *body], width=width, color=color)


def _head(document: EagerDocument | MeasureForwardDocument) -> list[RenderableType]:
    return [Text(document.model, "bold"), *map(Text, document.notes), ""]
