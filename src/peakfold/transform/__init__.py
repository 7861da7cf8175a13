"""Graph -> Graph: steps that rewrite a graph and are recorded in the plan's recipe."""

from peakfold.transform.backward import Train
from peakfold.transform.fold import Fold
from peakfold.transform.recipe import replay, split_step, train_step
from peakfold.transform.split import Split

__all__ = ["Fold", "Split", "Train", "replay", "split_step", "train_step"]
