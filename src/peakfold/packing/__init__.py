"""Packing: offsets for buffers with lifetimes, near minimal and proven so. Knows no graph."""

from peakfold.packing.bounds import load_profile, lower_bound, peak_load
from peakfold.packing.heuristics.orders import STRATEGIES
from peakfold.packing.problem import FREE, Packing, Problem
from peakfold.packing.questions.core_bound import Core, core_bound
from peakfold.packing.solve import pack
from peakfold.packing.verify import Violation, require_valid, violations, violations_naive

__all__ = [
    "FREE",
    "STRATEGIES",
    "Core",
    "Packing",
    "Problem",
    "Violation",
    "core_bound",
    "load_profile",
    "lower_bound",
    "pack",
    "peak_load",
    "require_valid",
    "violations",
    "violations_naive",
]
