"""The core bound: what a part of the buffers needs is needed by all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from peakfold.packing.bounds import lower_bound
from peakfold.packing.exact.search_model import Model, build
from peakfold.packing.heuristics.orders import STRATEGIES
from peakfold.packing.problem import Int64, Problem
from peakfold.packing.questions.infeasible import explain, refuted, subproblem

NODES = 20_000


@dataclass(frozen=True, slots=True)
class Core:
    """A proven bound and who is to blame.

    Attributes:
        bound: bytes that any packing needs at least; never below `lower_bound`.
        buffers: they alone need that much; empty where search added nothing to `lower_bound`.
        irreducible: without any one of them the others are known to need less.
    """

    bound: int
    buffers: tuple[int, ...]
    irreducible: bool


def core_bound(
    problem: Problem, *, nodes: int = NODES, expired: Callable[[], bool] = lambda: False
) -> Core:
    """The best bound from exact searches on the buffers of the heaviest sections.

    A packing of all buffers holds one of every part of them, so the least height of a part is a
    bound. The parts are the buffers alive in the 1, 2, 4, ... heaviest sections (of time, or
    cliques of an explicit relation): few buffers, so that a search ends, and a high load, so
    that it matters. For each, heights between the bound so far and what greedy reaches are
    halved; every height that the search refutes raises the bound. Buffers that the refutation
    does not need are then left out.

    Args:
        problem: the buffers; without a search model (partial heights, too many buffers) the
            result is `lower_bound`.
        nodes: search budget of each refutation.
        expired: polled during refutations; True returns what is proven by then.

    Example:
        A pin keeps the free buffers from lying side by side; only two of the three matter.

        >>> p = Problem.of([0, 0, 1], [3, 3, 3], [30, 40, 5], fixed=[20, -1, -1])
        >>> lower_bound(p), core_bound(p)
        (75, Core(bound=90, buffers=(0, 1), irreducible=True))
    """
    bound, blamed = lower_bound(problem), None
    model = build(problem)
    if model is not None:
        for part in _parts(model):
            if expired():
                break
            proven = _raised(subproblem(problem, part), bound, nodes, expired)
            if proven > bound:
                bound, blamed = proven, part
    if blamed is None:
        return Core(bound, (), irreducible=False)
    found = explain(subproblem(problem, blamed), bound - 1, nodes=nodes, expired=expired)
    if found is None:
        return Core(bound, tuple(blamed.tolist()), irreducible=False)
    return Core(bound, tuple(blamed[list(found.buffers)].tolist()), found.irreducible)


def _parts(model: Model) -> Iterator[Int64]:
    """Buffers of the heaviest 1, 2, 4, ... sections, as long as that adds any."""
    heavy = np.argsort(-model.load, kind="stable")
    count, before = 1, 0
    while True:
        rows = [model.member[model.base[s] : model.base[s + 1]] for s in heavy[:count]]
        part = np.unique(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)
        if len(part) > before:
            yield model.buffer[part]
            before = len(part)
        if count >= model.count:
            return
        count *= 2


def _raised(part: Problem, bound: int, nodes: int, expired: Callable[[], bool]) -> int:
    """The best height below which this part is proven not to fit, `bound` at least."""
    model = build(part)
    if model is None:
        return bound
    # Heights are multiples of the unit: to refute one is to refute all up to the next.
    unit = model.unit
    low, top = bound // unit, part.height(STRATEGIES["by-size"](part)) // unit
    target = low
    while low < top and not expired():
        if refuted(part, target * unit, nodes, expired):
            low = target + 1
            bound = max(bound, low * unit)
        elif target == low:
            break  # it fits there, or nobody knows: this part raises nothing
        else:
            top = target
        target = (low + top) // 2
    return bound
