from __future__ import annotations

import pytest

from peakfold.ir import parse_graph
from peakfold.reports.pictures.memory_png import png_map
from peakfold.reports.pictures.memory_svg import svg_map
from peakfold.reports.text.notices import notices
from peakfold.reports.text.verbs import plan_text

from . import graphs
from .conftest import Planner


def test_nothing_to_tell_is_nothing() -> None:
    assert notices(unsupported={}) == []


def test_everything_that_limits_trust_is_told(planned: Planner) -> None:
    text = " ".join(plan_text(planned(graphs.ROLES), width=100, color=False).split())
    assert "unsupported: warp (2)" in text
    assert "size unknown, outside every figure: 1 tensor (t)" in text
    assert "kernel scratch not counted, only the kernel knows it: warp (2)" in text


def test_copies_are_told(planned: Planner) -> None:
    text = "peakfold-graph 1\ninput x: int8[64]\ny: int8[64] = identity(x)\noutput y"
    result = planned(text)
    assert result.plan.copies
    report = plan_text(result, width=100, color=False)
    assert f"copies the runtime must make: {result.plan.copies[0]}" in report


def test_notes_are_told_and_cleaned() -> None:
    assert notices(unsupported={}, notes=["odd \x1b name"]) == ["odd \\x1b name"]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_escape_reaches_a_terminal(planned: Planner, width: int) -> None:
    result = planned(graphs.evil(), trace=True)
    text = plan_text(result, name=graphs.EVIL, width=width, color=False)
    assert all(line.isprintable() for line in text.splitlines())
    assert parse_graph(graphs.evil()).name.startswith(graphs.EVIL)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(planned: Planner, width: int) -> None:
    result = planned(graphs.branches(60), trace=True)
    text = plan_text(result, width=width, color=False)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    "body",
    [
        "",
        "input x: int8[0]\ny: int8[0] = relu(x)\noutput y",
        "input x: int8[4]\nparameter w: int8[4]\noutput x, w",
    ],
)
def test_graphs_of_next_to_nothing_have_reports_and_maps(planned: Planner, body: str) -> None:
    result = planned(f"peakfold-graph 1\n{body}\n", trace=True)
    assert "Final plan" in plan_text(result, width=80, color=False)
    assert svg_map(result).startswith("<svg")
    assert png_map(result).startswith(b"\x89PNG")
