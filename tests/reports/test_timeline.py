from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.reports.pictures.curves import curves_of
from peakfold.reports.text.timeline import Curves, columns, picture

from . import graphs
from .conftest import Planner

LIVES = st.lists(st.integers(0, 10**9), min_size=1, max_size=300)


def drawn(live: list[int], bound: int, width: int = 80) -> list[str]:
    values = np.array(live, dtype=np.int64)
    peak = int(values.argmax())
    curves = Curves(values, np.cumsum(values), bound, int(values.max()), peak, "the_peak_op")
    return [line.plain for line in picture(curves, width=width)]


@given(LIVES, st.integers(1, 200))
def test_columns_never_lose_the_peak(live: list[int], width: int) -> None:
    values = np.array(live, dtype=np.int64)
    found = columns(values, width)
    assert len(found) == width
    assert found.max() == values.max() or width < 1
    # Every step is in exactly one bin, or every bin shows one step.
    assert set(found.tolist()) <= set(live)


@given(LIVES, st.integers(70, 140))
def test_no_line_is_wider_than_the_terminal(live: list[int], width: int) -> None:
    lines = [part for line in drawn(live, max(live), width) for part in line.split("\n")]
    assert max(map(len, lines)) <= width
    assert any("the_peak_op" in line for line in lines)
    assert any("▲" in line for line in lines)


def test_the_tallest_column_is_the_peak_and_reaches_its_total() -> None:
    lines = drawn([1, 2, 8, 2, 1], 8, 80)
    rows = [line for line in lines if line[12:13] in "│┤"]
    filled = [sum(row[13 + column] not in " ╌░" for row in rows) for column in range(66)]
    assert filled.index(max(filled)) == pytest.approx(66 * 2 / 5, abs=1)
    marker = next(line for line in lines if "▲" in line).index("▲") - 13
    assert filled[marker] == max(filled)


def test_the_bound_has_its_own_row_and_label() -> None:
    lines = drawn([10, 100, 10], 50)
    (row,) = [line for line in lines if "╌" in line and "┤" in line]
    assert row.strip().startswith("50 B")


def test_memory_that_is_not_reused_is_shaded_above_the_plan() -> None:
    assert any("░" in line for line in drawn([4, 4, 4, 4], 4)[:11])
    curves = Curves(np.array([4]), np.array([4]), 4, 4, 0, "op")
    assert not any("░" in line.plain for line in picture(curves, width=80)[:11])


def test_a_graph_without_memory_has_a_picture() -> None:
    curves = Curves(np.zeros(1, np.int64), np.zeros(1, np.int64), 0, 0, 0, "no op")
    assert len(picture(curves, width=40)) > 10


def test_curves_are_those_of_the_plan(planned: Planner) -> None:
    result = planned(graphs.branches(40), align=1)
    curves = curves_of(result)
    assert curves.naive[-1] == result.summary.naive_bytes
    assert (np.diff(curves.naive) >= 0).all()
    assert curves.live.max() == result.layout.timeline.peak
    assert curves.peak_op == result.summary.peak_op
    assert curves.bound == result.summary.lower_bound_bytes
