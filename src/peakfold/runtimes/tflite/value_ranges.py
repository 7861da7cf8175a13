"""Which value each byte of an arena holds, for the judge of a file's own layout."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from peakfold.interval import Interval

Where = tuple[int, int]
"""A subgraph and a tensor in it."""
_Claim = tuple[Where, int]
"""A value and the address of its first byte."""


class Values:
    """Which values each byte holds: disjoint ranges, each with everything that is true of it.

    A kernel that copies bytes onto themselves makes them a byte of its result, too, and they
    stay what they were.
    """

    def __init__(self) -> None:
        self.held: list[tuple[int, int, frozenset[_Claim]]] = []

    def write(
        self, where: Interval, value: Where | None, unchanged: Sequence[Interval] = ()
    ) -> None:
        """From now on these bytes are this value's (`None` = nobody's).

        Args:
            where: all of them.
            value: what they hold.
            unchanged: which of them already held these very bits.
        """
        mine: frozenset[_Claim] = (
            frozenset() if value is None else frozenset({(value, where.start)})
        )
        cuts = {where.start, where.stop}
        for place in unchanged:
            cuts.update((max(place.start, where.start), min(place.stop, where.stop)))
        after = []
        for start, stop, claims in self.held:
            for low, high in _pieces(start, stop, cuts):
                inside = where.start <= low < where.stop
                if not inside:
                    after.append((low, high, claims))
                elif any(place.start <= low < place.stop for place in unchanged):
                    after.append((low, high, claims | mine))
        covered = sorted((low, high) for low, high, _ in after if where.start <= low < where.stop)
        at = where.start
        for low, high in [*covered, (where.stop, where.stop)]:
            if at < low:
                after.append((at, low, mine))
            at = max(at, high)
        self.held = after

    def lost(self, where: Interval, value: Where) -> Where | bool | None:
        """Who holds a byte that should be this value's; false when all is well."""
        found = 0
        for start, stop, claims in self.held:
            common = min(stop, where.stop) - max(start, where.start)
            if common <= 0:
                continue
            if (value, where.start) not in claims:
                return min(claims)[0] if claims else None
            found += common
        return False if found == where.stop - where.start else None


def _pieces(start: int, stop: int, cuts: set[int]) -> Iterable[tuple[int, int]]:
    edges = [start, *sorted(cut for cut in cuts if start < cut < stop), stop]
    return itertools.pairwise(edges)
