"""The curves of a plan result, for every picture of memory over time."""

from __future__ import annotations

import numpy as np

from peakfold.planning import PlanResult
from peakfold.planning.modes import Layout
from peakfold.reports.text.timeline import Curves


def curves_of(result: PlanResult) -> Curves:
    """What the plan holds per step, and what allocating without reuse would hold."""
    layout = result.layout
    return Curves(
        live=layout.timeline.live,
        naive=_grown(result.layouts["naive"]),
        bound=result.plan.bound.offsets if result.plan.mode == "arena" else layout.bound,
        total=layout.total,
        peak_step=layout.timeline.peak_step,
        peak_op=result.summary.peak_op or "no op",
    )


def _grown(naive: Layout) -> np.ndarray:
    """Bytes allocated up to each step when no buffer is ever given to a second tensor."""
    grown = np.zeros(naive.timeline.schedule.steps, dtype=np.int64)
    for buffer in naive.timeline.buffers:
        grown[min(piece.start for piece in buffer.pieces)] += buffer.size
    return np.cumsum(grown)
