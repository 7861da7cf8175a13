"""Records of a forward pass as eager PyTorch runs it: ``plan --eager``, ``measure`` in torch."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.reports.records.training import MeasuredStep, TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerDocument:
    """Output of ``plan --eager --json``.

    Attributes:
        forward: one forward pass without gradients, its result held to the end.
    """

    schema: str
    model: str
    notes: list[str]
    forward: TrainingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureForwardDocument:
    """Output of ``measure --runtime torch --json`` without ``--train``.

    Attributes:
        before_bytes: `null`, torch always reuses.
        planned_bytes: as predicted, scratch of kernels included.
        after_bytes: highest allocations as measured.
        obeyed: storages within 0.2 %, allocations within 1 % of the prediction.
        outputs_equal: `null`: no plan changes what is computed.
        forward: one forward pass without gradients, its result held to the end.
    """

    schema: str
    runtime: str
    model: str
    notes: list[str]
    before_bytes: int | None
    planned_bytes: int
    after_bytes: int
    obeyed: bool
    outputs_equal: bool | None
    device: str
    forward: MeasuredStep
