"""Time compression: the few moments at which conflicts can be seen.

A *section* is a stretch of time whose live set is not contained in a neighbour's: something
is born at its start and something dies at its end. Two pieces are alive together if and only
if they share a section (the overlap of two lifetimes begins with a birth and ends with a
death, so it contains a maximal stretch), and every bound on a live set is attained in one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peakfold.packing.problem import Int64, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Sections:
    """Lifetimes in units of sections.

    Attributes:
        count: number of sections.
        first, last: (m,) half-open range of sections of each piece; dead pieces are empty.
        time: (count,) a step inside each section.
    """

    count: int
    first: Int64
    last: Int64
    time: Int64


def sections(problem: Problem) -> Sections:
    """Compress the time axis of a problem; O(m log m).

    Example:
        >>> found = sections(Problem.of([0, 1, 5], [3, 2, 9], [1, 1, 1]))
        >>> found.count, found.first.tolist(), found.last.tolist()
        (2, [0, 0, 1], [1, 1, 2])
    """
    alive = problem.pieces_alive
    start, stop = problem.start[alive], problem.stop[alive]
    times = np.unique(np.concatenate([start, stop]))
    births = np.zeros(len(times) + 1, dtype=np.bool_)
    deaths = np.zeros(len(times) + 1, dtype=np.bool_)
    at_start, at_stop = np.searchsorted(times, start), np.searchsorted(times, stop)
    births[at_start] = True
    deaths[at_stop] = True
    maximal = births[:-1] & deaths[1:]
    before = np.concatenate([[0], np.cumsum(maximal)]).astype(np.int64)
    first = np.zeros(len(problem.start), dtype=np.int64)
    last = np.zeros(len(problem.start), dtype=np.int64)
    first[alive], last[alive] = before[at_start], before[at_stop]
    return Sections(int(before[-1]), first, last, times[maximal])


def section_loads(problem: Problem, found: Sections) -> Int64:
    """(count,) sum of the heights of the pieces alive in each section.

    Example:
        >>> p = Problem.of([0, 1, 5], [3, 2, 9], [4, 2, 1])
        >>> section_loads(p, sections(p)).tolist()
        [6, 1]
    """
    height = np.where(problem.pieces_alive, problem.upper - problem.lower, 0)
    change = np.zeros(found.count + 1, dtype=np.int64)
    np.add.at(change, found.first, height)
    np.subtract.at(change, found.last, height)
    return np.cumsum(change[:-1])
