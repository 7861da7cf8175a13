"""Choices: from a graph to a plan, and the judge that checks it."""

from peakfold.planning.decisions import Decisions, Timeline, simulate
from peakfold.planning.options import PlanOptions
from peakfold.planning.plan import Plan, decode_plan, encode_plan
from peakfold.planning.planner import PlanResult, make_plan
from peakfold.planning.summary import Summary

__all__ = [
    "Decisions",
    "Plan",
    "PlanOptions",
    "PlanResult",
    "Summary",
    "Timeline",
    "decode_plan",
    "encode_plan",
    "make_plan",
    "simulate",
]
