"""What a training step was taken to be: the first lines of its reports, and their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from peakfold.units import format_bytes

if TYPE_CHECKING:
    from peakfold.ir.run import Steps
    from peakfold.reports.records import (
        MeasureTrainingDocument,
        TrainingDocument,
        TrainingFitDocument,
    )
    from peakfold.transform import Train


class Taken(TypedDict):
    """Keys that the documents of a training step share."""

    loss: str
    optimizer: str
    result_kept: bool
    result_kept_bytes: int


def taken(steps: Steps, *, keep_result: bool) -> Taken:
    """What was taken for granted of a step."""
    return Taken(
        loss=steps.loss,
        optimizer=steps.optimizer,
        result_kept=keep_result,
        result_kept_bytes=steps.kept,
    )


def first_lines(
    document: TrainingDocument | TrainingFitDocument | MeasureTrainingDocument,
) -> list[str]:
    """Loss, optimizer, and whether the result is held: a line each."""
    more = format_bytes(document.result_kept_bytes)
    kept = "yes" if document.result_kept else f"no (+{more} in a loop that keeps it)"
    return [
        f"loss: {document.loss}",
        f"optimizer: {document.optimizer}",
        f"result kept: {kept}",
    ]


_LOSSES = {
    "external": "external (the gradient of each output is given, as an input)",
    "softmax-output": "softmax-output (the last softmax, with a label as an input)",
}


def told(train: Train | None) -> tuple[str | None, str | None]:
    """Loss and optimizer of a step that was made of a file's graph; `None` where none was."""
    if train is None:
        return None, None
    return _LOSSES[train.loss], train.optimizer or "none (gradients only, no update)"


def told_lines(loss: str | None, optimizer: str | None) -> list[str]:
    """The same as lines of a report; none of a forward pass."""
    return [] if loss is None else [f"loss: {loss}", f"optimizer: {optimizer}"]
