"""Greedy planners by name: an order of the buffers, then `first_fit.place`.

No order is best everywhere, so `pack` tries several and keeps the lowest (peers that run one
are up to 40 % above the bound on hard inputs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from peakfold.packing.bounds import load_profile
from peakfold.packing.deadline import Check, endless
from peakfold.packing.heuristics.first_fit import place
from peakfold.packing.heuristics.sections import section_loads, sections
from peakfold.packing.heuristics.weight_classes import shelf_order, traits
from peakfold.packing.problem import Int64, Problem

Order = Callable[[Problem], Int64]


class Strategy(Protocol):
    """A greedy planner."""

    def __call__(self, problem: Problem, check: Check = ..., /) -> Int64:
        """Offsets (n,)."""


def born(problem: Problem) -> Int64:
    """(n,) first step at which a buffer is alive; 0 for those that never are."""
    return _per_buffer(problem, problem.start, np.minimum)


def dies(problem: Problem) -> Int64:
    """(n,) step from which a buffer is dead for good; 0 for those that never live."""
    return _per_buffer(problem, problem.stop, np.maximum)


def lifetime(problem: Problem) -> Int64:
    """(n,) steps between birth and death, holes included."""
    return dies(problem) - born(problem)


def _per_buffer(problem: Problem, values: Int64, pick: np.ufunc) -> Int64:
    alive = problem.pieces_alive
    far = np.iinfo(np.int64).max if pick is np.minimum else np.iinfo(np.int64).min
    found = np.full(problem.buffers, far, dtype=np.int64)
    pick.at(found, problem.owner[alive], values[alive])
    return np.where(found == far, 0, found)


def _descending(*keys: Int64) -> Int64:
    """Stable order by the first key descending, then the next; ties by index."""
    return np.lexsort([-key for key in reversed(keys)]).astype(np.int64)


def order_by_size(problem: Problem) -> Int64:
    """Largest first (TFLite; Pisarchyk and Lee 2020)."""
    return _descending(problem.size)


def order_by_length(problem: Problem) -> Int64:
    """Longest lifetime first, then largest (XLA's temporal heap)."""
    return _descending(lifetime(problem), problem.size)


def order_by_area(problem: Problem) -> Int64:
    """Largest size times lifetime first."""
    area = problem.size.astype(np.float64) * lifetime(problem)
    return np.argsort(-area, kind="stable").astype(np.int64)


def order_in_time(problem: Problem) -> Int64:
    """First born first, as an allocator at run time would."""
    return np.argsort(born(problem), kind="stable").astype(np.int64)


def order_by_death(problem: Problem) -> Int64:
    """Last to die first: `in-order` with time reversed."""
    return _descending(dies(problem))


def order_by_breadth(problem: Problem) -> Int64:
    """Steps by live bytes descending, inside a step by size descending (Pisarchyk and Lee)."""
    times, load = load_profile(problem)
    rank = np.empty(len(times), dtype=np.int64)
    rank[np.argsort(-load, kind="stable")] = np.arange(len(times))
    best = np.full(problem.buffers, len(times), dtype=np.int64)
    alive = problem.pieces_alive
    low = np.searchsorted(times, problem.start[alive])
    high = np.searchsorted(times, problem.stop[alive])
    np.minimum.at(best, problem.owner[alive], range_minimum(rank, low, high))
    return np.lexsort((-problem.size, best)).astype(np.int64)


def order_by_load(problem: Problem) -> Int64:
    """Buffers of the heaviest sections first, the longest lived among equals."""
    return _descending(peak_section(problem), lifetime(problem), problem.size)


def order_by_shelf(problem: Problem) -> Int64:
    """Buffers alike in size and crowding one after the other in time; see `weight_classes`."""
    return shelf_order(traits(problem))


def peak_section(problem: Problem) -> Int64:
    """(n,) load of the heaviest section each buffer lives in; 0 for those that never live."""
    found = sections(problem)
    load = section_loads(problem, found)
    heaviest = np.zeros(problem.buffers, dtype=np.int64)
    alive = problem.pieces_alive
    most = -range_minimum(-load, found.first[alive], found.last[alive])
    np.maximum.at(heaviest, problem.owner[alive], most)
    return heaviest


def range_minimum(values: Int64, low: Int64, high: Int64) -> Int64:
    """Minimum of ``values[low:high]`` for many non-empty ranges; a sparse table."""
    if not len(low):
        return np.zeros(0, dtype=np.int64)
    table = [values]
    while 2 ** len(table) <= len(values):
        half = 2 ** (len(table) - 1)
        table.append(np.minimum(table[-1][:-half], table[-1][half:]))
    level = np.frexp((high - low).astype(np.float64))[1] - 1
    result = np.empty(len(low), dtype=np.int64)
    for k, row in enumerate(table):
        at = level == k
        result[at] = np.minimum(row[low[at]], row[high[at] - 2**k])
    return result


def _strategy(order: Order, best_gap: bool = True) -> Strategy:
    def run(problem: Problem, check: Check = endless, /) -> Int64:
        return place(problem, order(problem).tolist(), best_gap=best_gap, check=check)

    run.__doc__ = order.__doc__
    return run


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "by-size": _strategy(order_by_size),
        "by-breadth": _strategy(order_by_breadth),
        "by-load": _strategy(order_by_load),
        "by-length": _strategy(order_by_length),
        "by-area": _strategy(order_by_area),
        "in-order": _strategy(order_in_time),
        "by-death": _strategy(order_by_death),
        "first-fit": _strategy(order_by_size, best_gap=False),
        "first-fit-length": _strategy(order_by_length, best_gap=False),
        "first-fit-in-order": _strategy(order_in_time, best_gap=False),
        "first-fit-shelf": _strategy(order_by_shelf, best_gap=False),
    }
)
"""Every named greedy: problem -> offsets (n,). Names are part of the command line."""
