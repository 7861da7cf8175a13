"""Packing under an explicit conflict relation: buffers of parallel lanes, where time is no line.

A conflict is a pair of buffers that some run may need at once. There is no sweep over steps
here; a buffer is placed in the lowest gap between its placed neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from peakfold.packing.problem import Packing
from peakfold.units import round_up


def neighbours(buffers: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Per buffer, the buffers it conflicts with, ascending.

    Example:
        >>> neighbours(3, [(0, 1), (1, 2)])
        [[1], [0, 2], [1]]
    """
    near: list[list[int]] = [[] for _ in range(buffers)]
    for one, two in pairs:
        near[one].append(two)
        near[two].append(one)
    return [sorted(set(others)) for others in near]


def pack_related(size: Sequence[int], pairs: Iterable[tuple[int, int]], *, align: int) -> Packing:
    """Offsets such that no two conflicting buffers overlap; best of several orders.

    Args:
        size: (n,) bytes.
        pairs: conflicts, each pair of buffer numbers in any order.
        align: offsets are multiples of this.

    Returns:
        A packing whose lower bound is the heaviest clique of conflicts found: members of a
        clique conflict pairwise, so they need different bytes all.

    Example:
        >>> found = pack_related([8, 4, 8], [(0, 1), (1, 2)], align=1)
        >>> found.offsets.tolist(), found.height, found.optimal
        ([0, 8, 0], 12, True)
    """
    near = neighbours(len(size), pairs)
    bound = clique_bound(size, near)
    best: tuple[int, list[int], str] | None = None
    for name, order in _orders(size, near):
        offsets = _first_fit(size, near, order, align)
        height = max((o + s for o, s in zip(offsets, size, strict=True)), default=0)
        if best is None or height < best[0]:
            best = (height, offsets, name)
        if height <= bound:
            break
    height, offsets, name = best or (0, [], "by-size")
    return Packing(np.array(offsets, dtype=np.int64), height, bound, height == bound, name)


def assign_related(size: Sequence[int], pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Shared objects under a conflict relation: largest first, into the best object that is free.

    Args:
        size: (n,) bytes.
        pairs: conflicts.

    Returns:
        (n,) object of each buffer; an object is as large as its largest tenant.

    Example:
        >>> assign_related([8, 4, 8], [(0, 1), (1, 2)])
        [0, 1, 0]
    """
    near = neighbours(len(size), pairs)
    ids = [-1] * len(size)
    objects = 0
    for buffer in sorted(range(len(size)), key=lambda b: (-size[b], b)):
        taken = {ids[other] for other in near[buffer]}
        # Objects are opened largest first, so the last one free is the tightest that fits.
        free = [obj for obj in range(objects) if obj not in taken]
        ids[buffer] = free[-1] if free else objects
        objects += not free
    return ids


def _orders(size: Sequence[int], near: list[list[int]]) -> list[tuple[str, list[int]]]:
    n = range(len(size))
    crowd = [size[b] + sum(size[other] for other in near[b]) for b in n]
    return [
        ("by-size", sorted(n, key=lambda b: (-size[b], b))),
        ("by-crowd", sorted(n, key=lambda b: (-crowd[b], -size[b], b))),
        ("by-degree", sorted(n, key=lambda b: (-len(near[b]), -size[b], b))),
        ("in-order", list(n)),
        ("by-need", sorted(n, key=lambda b: (-size[b] * (len(near[b]) + 1), b))),
    ]


def _first_fit(
    size: Sequence[int], near: list[list[int]], order: Sequence[int], align: int
) -> list[int]:
    offsets = [-1] * len(size)
    for buffer in order:
        taken = sorted(
            (offsets[o], offsets[o] + size[o]) for o in near[buffer] if offsets[o] >= 0 and size[o]
        )
        at = 0
        for low, high in taken:
            if low >= at + size[buffer]:
                break
            at = max(at, round_up(high, align))
        offsets[buffer] = at
    return offsets


def clique_bound(size: Sequence[int], near: list[list[int]]) -> int:
    """The heaviest clique that greedy growth finds, from every buffer as a start.

    Example:
        >>> clique_bound([3, 4, 5], [[1], [0, 2], [1]])
        9
    """
    sets = [set(others) for others in near]
    best = 0
    for start in range(len(size)):
        weight, common = size[start], sets[start]
        while common:
            # The member that keeps the most weight in play; ties to the lower number.
            pick = max(common, key=lambda b: (size[b], len(sets[b] & common), -b))
            weight += size[pick]
            common = common & sets[pick]
        best = max(best, weight)
        if len(size) > _GREEDY_STARTS and start >= _GREEDY_STARTS:
            break
    return best


_GREEDY_STARTS = 2000
