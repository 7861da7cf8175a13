"""What levers of `fit` have in common: what they add, and why something is not told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from peakfold.reports.records import FitDocument, LeverRecord, TrainingFitDocument, TrainingLever
from peakfold.reports.text.timing import seconds
from peakfold.units import format_count

Lever = LeverRecord | TrainingLever
_LEAST: Final = 1e-9  # seconds below which a difference of sums is none


def batch_line(what: str, document: FitDocument | TrainingFitDocument) -> str:
    """The largest batch, or why none is told."""
    if document.largest_batch is None:
        return f"{what}: not known; {document.batch_note}"
    more = f"; {document.batch_note}" if document.batch_note else ""
    return f"{what}: {document.largest_batch}{more}"


def work_cell(lever: Lever) -> str:
    """What a lever adds: time where it is known, or else operations."""
    flops, time = lever.extra_flops, lever.extra_time_s
    if flops is None and time is None:
        return "unknown"
    if flops == 0 and not time:
        return "none"
    if time is not None:
        return "none" if abs(time) < _LEAST else f"{'+' if time > 0 else '-'}{seconds(abs(time))}"
    more = flops or 0
    return f"{'+' if more > 0 else '-'}{format_count(abs(more), 'FLOPs')}"


def reasons(levers: Sequence[Lever]) -> list[Text]:
    """Why figures are not told, each reason once."""
    parts = [part for lever in levers for part in lever.why_unknown.split("; ") if part]
    return [Text(f"Not told: {part}.") for part in dict.fromkeys(parts)]
