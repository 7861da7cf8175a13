"""The command line. Importing this loads click and the error tree, nothing else."""

from peakfold.cli.group import PeakfoldGroup

main = PeakfoldGroup()

__all__ = ["main"]
