"""What `measure` says of a comparison."""

from __future__ import annotations

import pytest

from peakfold.app.measure import MeasureReport
from peakfold.reports.records import MeasureDocument, schema_name


@pytest.mark.parametrize(
    ("runs", "said"), [(1, "Outputs of 1 run on"), (3, "Outputs of 3 runs on")]
)
def test_runs_are_counted_as_people_do(runs, said):
    document = MeasureDocument(
        schema=schema_name("measure"),
        runtime="litert",
        before_bytes=8,
        planned_bytes=None,
        after_bytes=8,
        obeyed=None,
        outputs_equal=True,
        outputs_vary=True,
        runs=runs,
        tensors=1,
        tensors_equal=None,
        before_arena_bytes=None,
        after_arena_bytes=None,
        tail_bytes=None,
        predicted_arena_bytes=None,
        predicted_at_least_bytes=None,
        arena_unknown=[],
        arena_too_low=False,
        controls=[],
    )
    assert said in MeasureReport(document).to_text()
