"""Choices: from a graph to a plan, and the judge that checks it.

Names are loaded when they are first used: the records of a plan need no search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peakfold.planning.options import PlanOptions as PlanOptions
    from peakfold.planning.plan import Plan as Plan
    from peakfold.planning.plan import decode_plan as decode_plan
    from peakfold.planning.plan import encode_plan as encode_plan
    from peakfold.planning.planner import PlanResult as PlanResult
    from peakfold.planning.planner import make_plan as make_plan
    from peakfold.planning.summary import Summary as Summary
    from peakfold.planning.timeline import Decisions as Decisions
    from peakfold.planning.timeline import Timeline as Timeline
    from peakfold.planning.timeline import simulate as simulate

_HOME = {
    "Decisions": "timeline",
    "Timeline": "timeline",
    "simulate": "timeline",
    "PlanOptions": "options",
    "Plan": "plan",
    "decode_plan": "plan",
    "encode_plan": "plan",
    "PlanResult": "planner",
    "make_plan": "planner",
    "Summary": "summary",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> object:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"peakfold.planning.{_HOME[name]}"), name)
    raise AttributeError(f"module 'peakfold.planning' has no attribute {name!r}")
