from __future__ import annotations

import re

import pytest

from peakfold.reports.text.refcount_trace import placement_part, trace_part
from peakfold.reports.text.tables import render
from peakfold.reports.text.verbs import plan_text

from . import graphs
from .conftest import Planner

# The published steps: op, counters of B C F E G, buffer given, box afterwards.
EX4_STEPS = [
    ("-", "2 1 1 1 1", "-", "empty"),
    ("B", "2 1 1 1 1", "B: #0 new", "empty"),
    ("C", "1 1 1 1 1", "C: #1 new", "empty"),
    ("F", "0 1 1 1 1", "F: #2 new", "#0"),
    ("E", "0 0 1 1 1", "E: #0 from the box", "#1"),
    ("G", "0 0 0 0 1", "G: #0 in place", "#1 #2"),
]


@pytest.mark.req("R29", "R30", "R31", "R32", "R33")
def test_the_step_table_of_ex4(planned: Planner) -> None:
    result = planned(graphs.EX4, align=1, mode="both", strategy="counter", trace=True)
    text = render(trace_part(result), width=120, color=False)
    rows = [line for line in text.splitlines() if re.match(r"\s+\d", line)]
    cells = [re.split(r"\s{2,}", row.strip()) for row in rows]
    found = [(c[1], " ".join(re.findall(r"=(\d)", c[2])), c[3], c[5]) for c in cells]
    assert found == EX4_STEPS


def test_without_a_trace_there_is_no_table(planned: Planner) -> None:
    result = planned(graphs.EX4)
    assert trace_part(result) == []
    assert "Step trace" not in plan_text(result, width=80, color=False)


def test_beyond_sixteen_tensors_only_changes_are_shown(planned: Planner) -> None:
    result = planned(graphs.branches(30), mode="both", strategy="counter", trace=True)
    text = render(trace_part(result), width=140, color=False)
    assert "30 tensors" in text
    last = next(line for line in text.splitlines() if re.match(r"\s+30 ", line))
    assert len(re.findall(r"t\d+=\d", last)) <= 3


@pytest.mark.req("R34")
@pytest.mark.parametrize("mode", ["naive", "share", "both", "arena"])
def test_the_final_plan_names_every_tensor_once(planned: Planner, mode: str) -> None:
    result = planned(graphs.branches(12, scratch=False), align=1, mode=mode, trace=True)
    text = render(placement_part(result), width=140, color=False)
    words = re.findall(r"\bt\d+\b", text)
    assert sorted(words) == sorted(f"t{n}" for n in range(13))


@pytest.mark.req("R34")
def test_the_final_plan_of_ex4_tells_reused_buffers_from_others(planned: Planner) -> None:
    result = planned(graphs.EX4, align=1, mode="both", strategy="counter", trace=True)
    text = render(placement_part(result), width=100, color=False)
    rows = [re.split(r"\s{2,}", line) for line in text.splitlines() if line.startswith("#")]
    assert [(row[0], row[2], row[3], row[4]) for row in rows] == [
        ("#0", "16 B", "reused", "B, E, G"),
        ("#1", "16 B", "not reused", "C"),
        ("#2", "16 B", "not reused", "F"),
    ]


def test_reuse_in_an_arena_is_what_brute_force_says(planned: Planner) -> None:
    result = planned(graphs.branches(12, seed=3), align=1, trace=True)
    buffers = result.plan.buffers
    text = render(placement_part(result), width=140, color=False)
    for line in text.splitlines():
        if not line.startswith("#"):
            continue
        number, offset, _, told, _ = re.split(r"\s{2,}", line)
        this = buffers[int(number[1:])]
        assert this.offset == int(offset)
        shared = len(this.tensors) > 1 or any(
            max(this.offset, other.offset) < min(this.offset + this.size, other.offset + other.size)
            for other in buffers
            if other is not this
        )
        assert told == ("reused" if shared else "not reused")
