"""How many large buffers live at once: the bound of the shared-object family.

Buffers are taken from the largest size down. A tree over the steps at which lifetimes begin or
end keeps, per node, the sum of the changes below it and the largest sum of a prefix of them; at
the root that is the greatest number of buffers alive at once. O(n log n), where sorting the live
set of every step is quadratic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def positional_maxima(start: Sequence[int], stop: Sequence[int], size: Sequence[int]) -> list[int]:
    """Largest, second largest, ... live size over all steps (Pisarchyk and Lee, section 4.2).

    The k-th is the largest size s for which k buffers of s or more bytes live at one step.

    Args:
        start: (n,) first step of each lifetime ``[start, stop)``.
        stop: (n,) step after the last.
        size: (n,) bytes.

    Returns:
        As many sizes as buffers ever live at once, descending.

    Example:
        >>> positional_maxima([0, 1, 2], [2, 3, 4], [16, 8, 64])
        [64, 8]
    """
    live = [at for at in range(len(size)) if start[at] < stop[at]]
    times = np.unique([t for at in live for t in (start[at], stop[at])])
    born = np.searchsorted(times, [start[at] for at in live]).tolist()
    dies = np.searchsorted(times, [stop[at] for at in live]).tolist()
    most = _Most(len(times))
    maxima: list[int] = []
    for at in sorted(range(len(live)), key=lambda at: -size[live[at]]):
        most.add(dies[at], -1)
        most.add(born[at], 1)
        if most.value > len(maxima):
            maxima.append(size[live[at]])
    return maxima


class _Most:
    """Changes at points of time, and the largest sum of all changes up to some point."""

    def __init__(self, points: int) -> None:
        self._leaves = 1 << max(points - 1, 0).bit_length()
        self._sum = [0] * (2 * self._leaves)
        self._most = [0] * (2 * self._leaves)

    @property
    def value(self) -> int:
        """The largest sum; 0 before the first change."""
        return self._most[1]

    def add(self, point: int, change: int) -> None:
        """Change the sums from a point on."""
        total, most = self._sum, self._most
        node = point + self._leaves
        total[node] += change
        most[node] = max(total[node], 0)
        node >>= 1
        while node:
            left = 2 * node
            total[node] += change
            most[node] = max(most[left], total[left] + most[left + 1])
            node >>= 1
