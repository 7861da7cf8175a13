from __future__ import annotations

from dataclasses import replace

import pytest
from rich.text import Text

from peakfold.reports.text.plan import (
    beside,
    headline,
    overlaps,
    peak_part,
    proof_line,
    savings,
    zero_copy,
)
from peakfold.reports.text.tables import render
from peakfold.units import format_bytes

from . import graphs
from .conftest import Planner


@pytest.mark.parametrize(
    ("packing", "order", "words"),
    [
        (True, True, "Proven minimal"),
        (True, False, "Another order might"),
        (False, False, "not proven minimal"),
        (False, True, "not proven minimal"),
    ],
)
def test_minimal_is_said_only_with_both_proofs(
    planned: Planner, packing: bool, order: bool, words: str
) -> None:
    result = planned(graphs.EX4)
    summary = replace(result.summary, optimal=packing, order_optimal=order)
    line = proof_line(replace(result, summary=summary)).plain
    assert words in line
    assert ("Proven minimal" in line) == (packing and order)


def test_modes_that_share_no_objects_claim_no_proof(planned: Planner) -> None:
    assert "nothing to prove" in proof_line(planned(graphs.EX4, mode="naive")).plain
    both = planned(graphs.EX4, mode="both")
    for proven, words in ((True, "Proven: no shared objects"), (False, "not proven")):
        layouts = {**both.layouts, "both": replace(both.layouts["both"], optimal=proven)}
        assert words in proof_line(replace(both, layouts=layouts)).plain


def test_the_table_shows_every_figure_and_marks_the_mode(planned: Planner) -> None:
    result = planned(graphs.branches(60), mode="both")
    text = render([savings(result)], width=100, color=False)
    s = result.summary
    figures = (
        s.naive_bytes,
        s.inplace_bytes,
        s.share_bytes,
        s.both_bytes,
        s.arena_bytes,
        s.lower_bound_bytes,
        s.objects_bound_bytes,
        s.any_order_bound_bytes,
    )
    lines = text.splitlines()[1:]
    assert len(lines) == len(figures)
    for line, figure in zip(lines, figures, strict=True):
        assert format_bytes(figure) in line
        assert f"{s.naive_bytes / figure:.2f}x" in line
    assert [line.split()[1] for line in lines if line.startswith(">")] == ["both"]
    assert format_bytes(s.plan_bytes) in headline(result).plain


def test_inputs_and_outputs_are_told_where_they_are(planned: Planner) -> None:
    outside = beside(planned(graphs.EX4, align=1)).plain
    assert outside == "Inside: activations, outputs 16 B. Beside it: parameters 0 B, inputs 16 B."
    other = beside(planned(graphs.EX4, align=1, inputs="reusable", outputs="external")).plain
    assert other == "Inside: activations, inputs 16 B. Beside it: parameters 0 B, outputs 16 B."


@pytest.mark.parametrize("text", [graphs.branches(60), graphs.HALVES])
def test_those_alive_at_the_peak_add_up_to_it(planned: Planner, text: str) -> None:
    result = planned(text, align=1)
    lines = render(peak_part(result, width=100), width=100, color=False).splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("Alive at the peak"))
    peak = result.layout.timeline.peak
    assert format_bytes(peak) in lines[head]
    assert str(result.summary.peak_op) in lines[head]
    sizes = [int(line.split()[0]) for line in lines[head + 2 :] if line.split()[1] == "B"]
    assert sum(sizes) == peak


def test_bytes_of_a_buffer_that_are_dead_at_the_peak_do_not_count(planned: Planner) -> None:
    # At the peak the first half of `a` is dead already: 32 of its 64 bytes are held.
    result = planned(graphs.HALVES, align=1)
    assert result.summary.peak_op in ("a", "p", "q")
    timeline = result.layout.timeline
    alive = sum(buffer.size for buffer in timeline.alive_at(timeline.peak_step))
    assert alive > timeline.peak


CONCAT = """\
peakfold-graph 1
input x: int8[1,64]
a: int8[1,64] = opaque(x) inplace=[] workspace=0
b: int8[1,64] = opaque(x) inplace=[] workspace=0
c: int8[2,64] = concat(a, b, axis=0)
output c
"""


def test_zero_copy_concatenation_is_reported_apart(planned: Planner) -> None:
    result = planned(CONCAT, align=1)
    assert (result.summary.arena_bytes, result.summary.zero_copy_concats) == (128, 1)
    (line,) = zero_copy(result)
    assert isinstance(line, Text)
    assert line.plain == (
        "1 concatenation built in place, without a copy; a runtime that copies needs 256 B."
    )
    assert zero_copy(planned(CONCAT, align=1, zero_copy=False)) == []
    assert zero_copy(planned(CONCAT, align=1, mode="both")) == []


OVERLAP = """peakfold-graph 1
input x: int8[100]
y: int8[60] = opaque(x) overlap=["0-10"]
output y
"""


def test_results_over_parts_of_operands_are_reported(planned: Planner) -> None:
    result = planned(OVERLAP, align=1, inputs="reusable")
    (line,) = overlaps(result)
    assert isinstance(line, Text)
    assert line.plain == (
        "1 result written over part of an operand; kept apart, the arena needs 160 B."
    )
    assert overlaps(planned(OVERLAP, align=1, inputs="reusable", overlap=False)) == []
    assert overlaps(planned(OVERLAP, align=1, inputs="reusable", mode="both")) == []
