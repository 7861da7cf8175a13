"""Instances made from instances: without names to share, smaller to debug, moved to replan."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import numpy as np

from peakfold.errors import UsageError
from peakfold.packing.csv_format import Table
from peakfold.packing.heuristics.orders import STRATEGIES
from peakfold.packing.problem import Int64, Problem
from peakfold.packing.questions.capacity import judge_capacity
from peakfold.packing.questions.infeasible import subproblem


def anonymise(table: Table) -> Table:
    """The same packing problem with nothing that tells whose it is.

    Names become numbers, buffers are sorted by lifetime and size, times become ranks of events
    (which keeps every conflict); sizes, alignments and pins stay, since they are the problem.

    Example:
        >>> from io import StringIO
        >>> from peakfold.packing.csv_format import format_csv, parse_csv
        >>> text = "id,lower,upper,size\\nsecret,70,90,8\\nlayer,10,70,16\\n"
        >>> print(format_csv(anonymise(parse_csv(StringIO(text)))), end="")
        id,lower,upper,size
        0,0,1,16
        1,1,2,8
    """
    order = np.lexsort((table.problem.size, table.upper, table.lower))
    picked = select(table, order.astype(np.int64))
    p = picked.problem
    times = np.unique(np.concatenate([p.start, p.stop, picked.lower, picked.upper]))
    problem = Problem.of_pieces(
        size=p.size,
        align=p.align,
        fixed=p.fixed,
        first=p.first,
        lower=p.lower,
        upper=p.upper,
        start=np.searchsorted(times, p.start),
        stop=np.searchsorted(times, p.stop),
        names=tuple(str(b) for b in range(p.buffers)),
    )
    lower, upper = np.searchsorted(times, picked.lower), np.searchsorted(times, picked.upper)
    return Table(problem, lower.astype(np.int64), upper.astype(np.int64), picked.gaps)


def select(table: Table, buffers: Int64) -> Table:
    """The rows of these buffers."""
    return Table(
        subproblem(table.problem, buffers),
        table.lower[buffers],
        table.upper[buffers],
        tuple(table.gaps[b] for b in buffers),
    )


def reduce(
    table: Table, fails: Callable[[Problem], bool], *, expired: Callable[[], bool] = lambda: False
) -> Table:
    """A smaller table for which `fails` still holds (delta debugging, Zeller 1999).

    Chunks of buffers are left out, the chunk halved after each pass, and single buffers until a
    pass finds none that can go: the result is minimal in that sense.

    Args:
        table: an instance for which `fails` holds.
        fails: the property to keep.
        expired: polled between trials; True returns what there is.

    Raises:
        UsageError: `fails` does not hold for the whole table.
    """
    if not fails(table.problem):
        raise UsageError("the instance does not show the failure, so there is nothing to reduce")
    keep = np.arange(table.problem.buffers)
    chunk = max(len(keep) // 2, 1)
    while len(keep) and not expired():
        shrunk = False
        at = 0
        while at < len(keep) and not expired():
            rest = np.concatenate([keep[:at], keep[at + chunk :]])
            if fails(subproblem(table.problem, rest)):
                keep, shrunk = rest, True
            else:
                at += chunk
        if chunk == 1 and not shrunk:
            break
        chunk = max(chunk // 2, 1)
    return select(table, keep)


def reduce_verdict(table: Table, capacity: int, status: str, seconds: float) -> Table:
    """A smaller table with the same verdict on a capacity, within about 10 times `seconds`.

    ``solved`` is kept as: fits, but the readable ``by-size`` greedy alone does not find it.

    Raises:
        UsageError: there is nothing to reduce, since even the simplest planner fits.
    """
    stop = monotonic() + 10 * max(seconds, 0.1)

    def same(problem: Problem) -> bool:
        plain = problem.height(STRATEGIES["by-size"](problem)) <= capacity
        if plain:
            return False
        left = min(seconds, max(stop - monotonic(), 0.0))
        return judge_capacity(problem, capacity=capacity, time_limit=left).status == status

    return reduce(table, same, expired=lambda: monotonic() > stop)
