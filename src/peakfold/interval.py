"""The one interval type and the one overlap test of the project.

Intervals are half-open: ``[start, stop)`` holds `start` and not `stop`, so a buffer that
ends at step 3 and one that starts at step 3 may share an address. Steps and addresses use
the same type.
"""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """A half-open range ``[start, stop)`` of integers (steps or byte addresses).

    Example:
        >>> Interval(0, 3).overlaps(Interval(3, 5)), Interval(0, 3).overlaps(Interval(2, 5))
        (False, True)
    """

    start: int
    stop: int

    def overlaps(self, other: Interval) -> bool:
        """Whether both hold a common integer; empty intervals overlap nothing."""
        return max(self.start, other.start) < min(self.stop, other.stop)

    def contains(self, other: Interval) -> bool:
        """Whether `other` lies wholly inside."""
        return self.start <= other.start and other.stop <= self.stop

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.start, other.start), max(self.stop, other.stop))

    def shift(self, by: int) -> Interval:
        """The same interval moved by `by`."""
        return Interval(self.start + by, self.stop + by)

    @property
    def length(self) -> int:
        """Number of integers held."""
        return self.stop - self.start


def union(intervals: list[Interval]) -> list[Interval]:
    """Merge touching or overlapping intervals into a sorted, disjoint list.

    Example:
        >>> union([Interval(4, 6), Interval(0, 2), Interval(2, 3)])
        [Interval(start=0, stop=3), Interval(start=4, stop=6)]
    """
    merged: list[Interval] = []
    for item in sorted(intervals):
        if merged and item.start <= merged[-1].stop:
            merged[-1] = merged[-1].hull(item)
        else:
            merged.append(item)
    return merged
