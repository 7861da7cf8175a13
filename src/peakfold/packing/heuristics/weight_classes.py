"""Shelves: like buffers one after the other in time, so that they share rows of addresses.

First fit by decreasing size leaves many gaps where sizes and lifetimes are spread: each buffer
has its own, so nothing fits exactly behind another. Buffers of nearly equal size, placed in
order of birth, are packed as an optimal colouring of their intervals would (greedy in order of
birth needs no more rows than are alive at once), in rows as high as the highest of them. So a
shelf is a class of buffers with nearly equal weight; shelves are placed by decreasing weight.

The weight is ``size * length^a * load^b``. `load` says how full memory is while the buffer
lives, so that buffers of the crowded times come first and the others fill the rest. Its *mean*
over the lifetime serves better than its maximum where crowded stretches are long (measured on
generated lifetimes: within 1 to 2 % of the bound in one pass, 2.5 to 4 % with the maximum, 5 to
7 % by size), the maximum where one moment stands out.

First fit itself does not know the direction of time, so an order by death is the order by birth
of the reversed problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peakfold.packing.heuristics.sections import section_loads, sections
from peakfold.packing.problem import Int64, Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """What orders look at, per buffer, in sections of time.

    Attributes:
        size: (n,) bytes, at least 1.
        born, dies: (n,) half-open hull of the lifetime; 0 for those that never live.
        length: (n,) sections from birth to death, at least 1.
        peak, mean: (n,) largest and mean load during the hull, as a share of the peak load;
            0 for those that never live.
    """

    size: Floats
    born: Int64
    dies: Int64
    length: Floats
    peak: Floats
    mean: Floats


def traits(problem: Problem) -> Traits:
    """Measure the buffers of a problem; O(m log m).

    Example:
        >>> found = traits(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))
        >>> found.peak.round(2).tolist(), found.mean.round(2).tolist()
        ([0.33, 1.0, 1.0], [0.33, 0.67, 1.0])
    """
    found = sections(problem)
    load = section_loads(problem, found).astype(np.int64)
    top = max(int(load.max(initial=0)), 1)
    alive = problem.pieces_alive
    owner = problem.owner[alive]
    born = np.full(problem.buffers, found.count, dtype=np.int64)
    dies = np.zeros(problem.buffers, dtype=np.int64)
    np.minimum.at(born, owner, found.first[alive])
    np.maximum.at(dies, owner, found.last[alive])
    born = np.minimum(born, dies)
    length = np.maximum(dies - born, 1).astype(np.float64)
    total = np.concatenate([[0], np.cumsum(load)])  # whole numbers: exact from both ends
    return Traits(
        size=np.maximum(problem.size, 1).astype(np.float64),
        born=born,
        dies=dies,
        length=length,
        peak=range_maximum(load / top, born, dies),
        mean=(total[dies] - total[born]) / length / top,
    )


def range_maximum(values: NDArray[np.float64], low: Int64, high: Int64) -> Floats:
    """Maximum of ``values[low:high]`` for many ranges, 0 for empty ones; a sparse table.

    Example:
        >>> low, high = np.array([0, 2, 1]), np.array([1, 3, 1])
        >>> range_maximum(np.array([1.0, 3.0, 2.0]), low, high).tolist()
        [1.0, 2.0, 0.0]
    """
    result = np.zeros(len(low))
    level = np.frexp(np.maximum(high - low, 1).astype(np.float64))[1] - 1
    row, width = values, 1
    for k in range(int(level.max(initial=0)) + 1):
        at = (level == k) & (high > low)
        result[at] = np.maximum(row[low[at]], row[high[at] - width])
        row, width = np.maximum(row[:-width], row[width:]), 2 * width
    return result


def shelf_order(
    found: Traits,
    *,
    ratio: float = 1.5,
    length: float = 0.5,
    load: float = 8.0,
    by_mean: bool = True,
    reverse: bool = False,
) -> Int64:
    """Indices of buffers, shelf by shelf, ties by index.

    Args:
        found: of the problem.
        ratio: weights within a factor of this make a shelf.
        length: the exponent a.
        load: the exponent b.
        by_mean: mean load over the lifetime in place of the largest.
        reverse: last to die first within a shelf, not first born first.

    Example:
        >>> shelf_order(traits(Problem.of([2, 0, 1], [4, 2, 3], [64, 64, 500]))).tolist()
        [2, 1, 0]
    """
    crowd = np.maximum(found.mean if by_mean else found.peak, 1e-9)
    weight = np.log(found.size) + length * np.log(found.length) + load * np.log(crowd)
    return np.lexsort(
        (-found.dies if reverse else found.born, -np.floor(weight / np.log(ratio)))
    ).astype(np.int64)
