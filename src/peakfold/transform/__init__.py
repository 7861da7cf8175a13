"""Graph -> Graph: steps that rewrite a graph and are recorded in the plan's recipe."""

from peakfold.transform.fold import Fold

__all__ = ["Fold"]
