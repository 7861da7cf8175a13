"""Judge 3: a model run as its plan says, in one real arena, against an ordinary run."""

from peakfold.runtimes.reference.lanes import Lanes
from peakfold.runtimes.reference.run import RunReport, check_run, run_plan

__all__ = ["Lanes", "RunReport", "check_run", "run_plan"]
