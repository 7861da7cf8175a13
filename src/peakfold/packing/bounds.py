"""Lower bounds: how low no packing can get, each with its argument."""

from __future__ import annotations

import numpy as np

from peakfold.packing.antichain import heaviest_antichain
from peakfold.packing.conflicts import covered_bytes, heaviest_clique
from peakfold.packing.problem import FREE, Int64, Problem


def load_profile(problem: Problem) -> tuple[Int64, Int64]:
    """Live bytes over time: ``(times, load)``, load[i] holds on ``[times[i], times[i + 1])``.

    Both are (k,) with ``load[-1] == 0``. Bytes that several pieces of one buffer cover at the
    same time count once. O(m log m), and p^2 log p for each buffer of p pieces.

    Example:
        >>> [a.tolist() for a in load_profile(Problem.of([0, 1], [2, 3], [16, 8]))]
        [[0, 1, 2, 3], [16, 24, 8, 0]]
    """
    start, stop, height = _disjoint_pieces(problem)
    times, where = np.unique(np.concatenate([start, stop]), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, where, np.concatenate([height, -height]))
    return times.astype(np.int64), np.cumsum(change)


def peak_load(problem: Problem) -> int:
    """The largest sum of live piece heights at any time, in bytes.

    With an explicit conflict relation: of the heaviest set that conflicts pairwise, see
    `heaviest_antichain`; where that finds none, of the heaviest found by greedy growth.
    A bound because pieces alive together cover disjoint addresses in ``[0, height)``.

    Example:
        >>> peak_load(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))
        72
    """
    if problem.conflicts is not None:
        found = heaviest_antichain(problem)
        if found is None:
            return heaviest_clique(problem)
        return int(covered_bytes(problem)[list(found)].sum())
    return int(load_profile(problem)[1].max(initial=0))


def lower_bound(problem: Problem) -> int:
    """The best bound that needs no search: peak load, alignment, pins, the tallest buffer.

    * Peak load, see `peak_load`.
    * Alignment: where every buffer is plain and all k alive ones at a time are aligned to at
      least g, all of them but the topmost occupy a multiple of g; the load of that time with
      sizes rounded up to g, less the largest such rounding, is a bound.
    * A pinned buffer ends at ``fixed + size``; any buffer ends at its size or later.

    Example:
        >>> lower_bound(Problem.of([0, 0], [1, 1], [5, 5], align=4))
        13
    """
    alive = problem.alive
    tallest = int(problem.size[alive].max(initial=0))
    pinned = alive & (problem.fixed != FREE)
    pins = int((problem.fixed + problem.size)[pinned].max(initial=0))
    return max(peak_load(problem), tallest, pins, _aligned_load(problem))


def _aligned_load(problem: Problem) -> int:
    """Load when every offset is a multiple of the common alignment (see `lower_bound`)."""
    alive = problem.alive
    if not problem.plain or problem.conflicts is not None or not alive.any():
        return 0
    step = int(np.gcd.reduce(problem.align[alive]))
    if step == 1:
        return 0
    start, stop = problem.start[alive], problem.stop[alive]
    size = problem.size[alive]
    padded = -(-size // step) * step
    # The topmost buffer needs no padding: subtract the most that its padding can be.
    rounded = Problem.of(start, stop, padded)
    return peak_load(rounded) - int((padded - size).max(initial=0))


def _disjoint_pieces(problem: Problem) -> tuple[Int64, Int64, Int64]:
    """Start, stop, height of live pieces, cut so that those of one buffer never overlap."""
    alive = problem.pieces_alive
    height = problem.upper - problem.lower
    counts = np.bincount(problem.owner[alive], minlength=problem.buffers)
    single = alive & (counts[problem.owner] <= 1) if len(alive) else alive
    rows: list[tuple[int, int, int]] = []
    for buffer in np.flatnonzero(counts > 1):
        rows += _slabs(problem, int(buffer))
    extra = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return (
        np.concatenate([problem.start[single], extra[:, 0]]),
        np.concatenate([problem.stop[single], extra[:, 1]]),
        np.concatenate([height[single], extra[:, 2]]),
    )


def _slabs(problem: Problem, buffer: int) -> list[tuple[int, int, int]]:
    """(start, stop, bytes covered) between any two consecutive events of one buffer.

    Events are played in order of time; how many pieces cover each strip of addresses is kept,
    and a piece looks at the strips inside it only.
    """
    own = slice(int(problem.first[buffer]), int(problem.first[buffer + 1]))
    lower, upper = problem.lower[own], problem.upper[own]
    live = np.flatnonzero(problem.start[own] < problem.stop[own])
    edges = np.unique(np.concatenate([lower[live], upper[live]]))
    width, depth = np.diff(edges), np.zeros(len(edges) - 1, dtype=np.int64)
    low, high = np.searchsorted(edges, lower).tolist(), np.searchsorted(edges, upper).tolist()
    events = sorted(
        [(t, 1, p) for p, t in zip(live.tolist(), problem.start[own][live].tolist(), strict=True)]
        + [(t, -1, p) for p, t in zip(live.tolist(), problem.stop[own][live].tolist(), strict=True)]
    )
    covered, rows = 0, []
    for at, (time, change, piece) in enumerate(events):
        inside = slice(low[piece], high[piece])
        depth[inside] += change
        # Bytes that are covered from now on, or no longer.
        covered += change * int(width[inside][depth[inside] == max(change, 0)].sum())
        if at + 1 < len(events) and events[at + 1][0] > time:
            rows.append((time, events[at + 1][0], covered))
    return rows
