"""Graph -> Graph: steps that rewrite a graph and are recorded in the plan's recipe."""

from peakfold.transform.fold import Fold
from peakfold.transform.recipe import replay

__all__ = ["Fold", "replay"]
