"""Why a capacity is not enough: an irreducible set of buffers that cannot fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from peakfold.packing.bounds import lower_bound
from peakfold.packing.heuristics.sections import section_loads, sections
from peakfold.packing.problem import FREE, Int64, Problem

NODES = 20_000


@dataclass(frozen=True, slots=True)
class Culprits:
    """Buffers that cannot fit the capacity together.

    Attributes:
        buffers: their indices.
        bound: bytes these buffers need at least, proven.
        irreducible: without any one of them, the others are known to fit; False means that
            some could not be decided within the node budget and were kept.
        reason: ``load`` (too many bytes alive at one time) or ``search`` (no arrangement).
        time: a step at which they are alive together, for ``load``.
    """

    buffers: tuple[int, ...]
    bound: int
    irreducible: bool
    reason: str
    time: int | None


def subproblem(problem: Problem, buffers: Int64) -> Problem:
    """The same problem with only these buffers, in the given order.

    Example:
        >>> subproblem(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]), np.array([2, 0])).size
        array([64, 16])
    """
    count = np.diff(problem.first)[buffers]
    first = np.concatenate([[0], np.cumsum(count)])
    pieces = np.repeat(problem.first[buffers] - first[:-1], count) + np.arange(int(first[-1]))
    conflicts = problem.conflicts
    if conflicts is not None:
        number = np.full(problem.buffers, -1, dtype=np.int64)
        number[buffers] = np.arange(len(buffers))
        renamed = number[conflicts]
        conflicts = renamed[(renamed >= 0).all(axis=1)]
    return Problem.of_pieces(
        size=problem.size[buffers],
        align=problem.align[buffers],
        fixed=problem.fixed[buffers],
        first=first,
        start=problem.start[pieces],
        stop=problem.stop[pieces],
        lower=problem.lower[pieces],
        upper=problem.upper[pieces],
        names=tuple(problem.name(int(b)) for b in buffers),
        conflicts=conflicts,
    )


def explain(
    problem: Problem,
    capacity: int,
    *,
    nodes: int = NODES,
    expired: Callable[[], bool] = lambda: False,
    before_search: Callable[[], None] = lambda: None,
) -> Culprits | None:
    """A set of buffers that refutes `capacity`, or None if there is no proof that it fails.

    If the load of one section is above the capacity, its largest buffers are enough. Else
    buffers are taken out one by one (deletion filter), each for good if the rest is still
    refuted by bounds or by exact search, so the set is irreducible where all could be decided.

    Args:
        problem: the buffers.
        capacity: bytes.
        nodes: search budget for each refutation.
        expired: polled during refutations; True keeps the rest as it is.
        before_search: called once, if the exact search may be needed.

    Example:
        >>> p = Problem.of([0, 1, 2], [4, 3, 4], [16, 8, 64])
        >>> found = explain(p, 70)
        >>> found.buffers, found.bound, found.reason
        ((0, 2), 80, 'load')
    """
    from peakfold.packing.exact.search_model import can_model

    loaded = _by_load(problem, capacity)
    keep = np.flatnonzero(problem.alive)
    if loaded is not None:
        keep = np.array(loaded.buffers)
        if (problem.fixed[keep] == FREE).all() and (problem.align[keep] == 1).all():
            return loaded
    if can_model(problem):
        before_search()
    if loaded is None and refuted(problem, capacity, nodes, expired) is not True:
        return None
    irreducible = True
    for buffer in keep[np.argsort(problem.size[keep], kind="stable")]:
        if expired():
            irreducible = False
            break
        rest = keep[keep != buffer]
        verdict = refuted(subproblem(problem, rest), capacity, nodes, expired)
        if verdict:
            keep = rest
        irreducible &= verdict is not None
    culprits = tuple(int(b) for b in keep)
    bound = max(lower_bound(subproblem(problem, keep)), capacity + 1)
    return Culprits(culprits, bound, irreducible, "search", None)


def refuted(
    problem: Problem, capacity: int, nodes: int, expired: Callable[[], bool] = lambda: False
) -> bool | None:
    """Whether nothing fits: True is a proof, False comes with a packing, None is unknown."""
    if lower_bound(problem) > capacity:
        return True
    from peakfold.packing.exact.search_model import build

    model = build(problem)
    if model is None:
        return None
    from peakfold.packing.exact.search import decide

    fits = decide(model, capacity, nodes=nodes, expired=expired).fits
    return None if fits is None else not fits


def _by_load(problem: Problem, capacity: int) -> Culprits | None:
    """The largest buffers of the heaviest section, none to spare.

    Alive together, they stack
    to their sum, so without pins and alignments any one fewer fits.
    """
    if not problem.plain or problem.conflicts is not None or not problem.alive.any():
        return None
    found = sections(problem)
    load = section_loads(problem, found)
    section = int(np.argmax(load))
    if load[section] <= capacity:
        return None
    here = np.flatnonzero((found.first <= section) & (section < found.last))
    here = here[np.argsort(-problem.size[here], kind="stable")]
    total = np.cumsum(problem.size[here])
    here = here[: int(np.searchsorted(total, capacity, side="right")) + 1]
    spare = int(problem.size[here].sum()) - capacity
    kept = []
    for buffer in here[::-1]:  # smallest first: whatever is not needed to exceed goes
        if problem.size[buffer] < spare:
            spare -= int(problem.size[buffer])
        else:
            kept.append(int(buffer))
    bound = int(problem.size[kept].sum())
    return Culprits(tuple(sorted(kept)), bound, True, "load", int(found.time[section]))
