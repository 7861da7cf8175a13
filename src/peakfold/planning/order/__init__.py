"""Orders of ops: the search for the lowest peak, and the proof that none is lower."""

from peakfold.planning.order.copies import choose_copies
from peakfold.planning.order.search import OrderResult, Progress, best_order
from peakfold.planning.order.zero_copy_bound import bound_without_copies

__all__ = [
    "OrderResult",
    "Progress",
    "best_order",
    "bound_without_copies",
    "choose_copies",
]
