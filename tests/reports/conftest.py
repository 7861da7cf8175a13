"""Planned graphs, once for all tests of reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peakfold.ir import parse_graph
from peakfold.planning import PlanOptions, PlanResult, make_plan

Planner = Callable[..., PlanResult]


@pytest.fixture(scope="session")
def planned() -> Planner:
    def run(text: str, **options: object) -> PlanResult:
        return make_plan(parse_graph(text), PlanOptions(time_limit=0.2, **options))

    return run
