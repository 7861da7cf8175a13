"""Orders of ops: the search for the lowest peak, and the proof that none is lower."""

from peakfold.planning.order.copies import choose_copies, sharing_of
from peakfold.planning.order.relax import bound_without_copies
from peakfold.planning.order.search import OrderResult, Progress, best_order

__all__ = [
    "OrderResult",
    "Progress",
    "best_order",
    "bound_without_copies",
    "choose_copies",
    "sharing_of",
]
