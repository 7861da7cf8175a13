"""Graph -> Graph: steps that rewrite a graph and are recorded in the plan's recipe."""

from peakfold.transform.backward import Train
from peakfold.transform.fold import Fold
from peakfold.transform.recipe import replay, train_step

__all__ = ["Fold", "Train", "replay", "train_step"]
