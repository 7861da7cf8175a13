"""From a `Problem` to what the exact search reads: compressed, scaled, flat vectors.

Normalisation, all exact: buffers that never live are left out; sizes, alignments and pins are
divided by their common divisor (in a packing pushed down every offset is a sum of those); time
is cut into sections; buffers with the same sections, size and alignment form a class that is
kept in index order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from peakfold.packing.conflicts import clique_cover
from peakfold.packing.deadline import Check, endless
from peakfold.packing.heuristics.sections import sections
from peakfold.packing.problem import FREE, Int64, Problem

MAX_BUFFERS = 6_000
MAX_PAIRS = 6_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """The live buffers of a problem, scaled; n buffers, k sections, e incidences.

    Attributes:
        buffer: (n,) index in the problem.
        unit: bytes per unit of size.
        size, align, fixed: (n,) in units; `fixed` may be `FREE`.
        steps: (n,) steps alive, for orders only.
        left, right: (n,) hull of the lifetime in sections.
        at, section: CSR of sections by buffer, (n + 1,) and (e,).
        base, member: CSR of buffers by section, (k + 1,) and (e,).
        near, neighbour: CSR of conflicting buffers.
        before, after: (n,) neighbours in the class of equal buffers, or -1.
        load: (k,) units alive in each section.
    """

    buffer: Int64
    unit: int
    size: Int64
    align: Int64
    fixed: Int64
    steps: Int64
    left: Int64
    right: Int64
    at: Int64
    section: Int64
    base: Int64
    member: Int64
    near: Int64
    neighbour: Int64
    before: Int64
    after: Int64
    load: Int64

    @property
    def buffers(self) -> int:
        """Number of live buffers."""
        return len(self.size)

    @property
    def count(self) -> int:
        """Number of sections."""
        return len(self.load)

    def offsets(self, problem: Problem, low: Int64) -> Int64:
        """(problem.buffers,) byte offsets from offsets in units of the live ones."""
        found = np.maximum(problem.fixed, 0)
        found[self.buffer] = low * self.unit
        return found


def can_model(problem: Problem) -> bool:
    """Whether the exact search applies: whole-height pieces, and not too many conflicts."""
    alive = problem.pieces_alive
    whole = (problem.lower[alive] == 0) & (
        problem.upper[alive] == problem.size[problem.owner[alive]]
    )
    return problem.buffers <= MAX_BUFFERS and bool(whole.all())


def build(problem: Problem, check: Check = endless) -> Model | None:
    """The model of a problem, or None if it is too large or has pieces of partial height.

    Args:
        problem: the buffers.
        check: polled all along; ends the work by raising.

    Example:
        >>> model = build(Problem.of([0, 1, 2], [2, 3, 4], [64, 96, 32]))
        >>> model.unit, model.size.tolist(), model.count
        (32, [2, 3, 1], 2)
    """
    if not can_model(problem):
        return None
    buffer = np.flatnonzero(problem.alive).astype(np.int64)
    n = len(buffer)
    owner, section, count = _incidences(problem, buffer, check)
    at, section = _csr(owner, section, n)
    owner = np.repeat(np.arange(n), np.diff(at))
    base, member = _csr(section, owner, count)
    pairs = _pairs(at, section, base, member, check)
    if pairs is None:
        return None
    near, neighbour = _csr(*pairs, n)
    size, align, fixed = problem.size[buffer], problem.align[buffer], problem.fixed[buffer]
    parts = np.concatenate([size, align[align > 1], fixed[fixed > 0]])
    unit = int(np.gcd.reduce(parts)) if n else 1
    size = size // unit
    align = np.maximum(align // unit, 1)
    fixed = np.where(fixed == FREE, FREE, fixed // unit)
    before, after = _classes(at, section, size, align, fixed)
    steps = np.zeros(problem.buffers, dtype=np.int64)
    np.add.at(steps, problem.owner, problem.stop - problem.start)
    return Model(
        buffer=buffer,
        unit=unit,
        size=size,
        align=align,
        fixed=fixed,
        steps=steps[buffer],
        left=section[at[:-1]],
        right=section[at[1:] - 1] + 1,
        at=at,
        section=section,
        base=base,
        member=member,
        near=near,
        neighbour=neighbour,
        before=before,
        after=after,
        load=np.bincount(section, weights=size[owner], minlength=count).astype(np.int64),
    )


def _incidences(problem: Problem, buffer: Int64, check: Check) -> tuple[Int64, Int64, int]:
    """(owner, section) without duplicates, owners numbered by position in `buffer`.

    For an explicit conflict relation the "sections" are cliques that cover it.
    """
    if problem.conflicts is not None:
        cliques = clique_cover(problem, check)
        place = np.repeat(np.arange(len(cliques)), [len(clique) for clique in cliques])
        inside = np.array([b for clique in cliques for b in clique], dtype=np.int64)
        return np.searchsorted(buffer, inside), place, len(cliques)
    found = sections(problem)
    length = found.last - found.first
    number = np.full(problem.buffers, -1, dtype=np.int64)
    number[buffer] = np.arange(len(buffer))
    owner = np.repeat(number[problem.owner], length)
    section = np.repeat(found.last - np.cumsum(length), length) + np.arange(int(length.sum()))
    both = np.unique(owner * max(found.count, 1) + section)
    return both // max(found.count, 1), both % max(found.count, 1), found.count


def _csr(rows: Int64, columns: Int64, n: int) -> tuple[Int64, Int64]:
    """Row starts (n + 1,) and the columns sorted within rows."""
    order = np.lexsort((columns, rows))
    at = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
    return at, columns[order].astype(np.int64)


def _pairs(
    at: Int64, section: Int64, base: Int64, member: Int64, check: Check
) -> tuple[Int64, Int64] | None:
    """Ordered pairs of buffers that share a section; None if there are too many."""
    rows: list[Int64] = []
    columns: list[Int64] = []
    total = 0
    for b in range(len(at) - 1):
        check()
        parts = [member[base[t] : base[t + 1]] for t in section[at[b] : at[b + 1]]]
        others = np.unique(np.concatenate(parts))
        others = others[others != b]
        total += len(others)
        if total > MAX_PAIRS:
            return None
        rows.append(np.full(len(others), b, dtype=np.int64))
        columns.append(others)
    empty = np.zeros(0, dtype=np.int64)
    return np.concatenate([empty, *rows]), np.concatenate([empty, *columns])


def _classes(
    at: Int64, section: Int64, size: Int64, align: Int64, fixed: Int64
) -> tuple[Int64, Int64]:
    """Previous and next free buffer with the same sections, size and alignment."""
    before = np.full(len(size), -1, dtype=np.int64)
    after = before.copy()
    latest: dict[tuple[bytes, int, int], int] = {}
    for b in range(len(size)):
        if fixed[b] != FREE:
            continue
        key = (section[at[b] : at[b + 1]].tobytes(), int(size[b]), int(align[b]))
        if key in latest:
            before[b] = latest[key]
            after[latest[key]] = b
        latest[key] = b
    return before, after


def preferences(model: Model) -> dict[str, Int64]:
    """Named weights (n,); the search prefers heavier buffers among equals."""
    peak = np.zeros(model.buffers, dtype=np.int64)
    if model.buffers:
        peak = np.maximum.reduceat(model.load[model.section], model.at[:-1])
    return {
        "peak": peak * (model.steps.max(initial=0) + 1) + model.steps,
        "conflicts": np.diff(model.near),
        "steps": model.steps,
        "sections": np.diff(model.at),
        "size": model.size,
        "area": model.size * model.steps,
    }


def ranks(weight: Int64, noise: float, seed: tuple[int, ...]) -> Int64:
    """(n,) rank of each buffer by weight descending, each weight first moved by `noise`.

    Example:
        >>> ranks(np.array([3, 9, 9]), 0.0, (0,)).tolist()
        [2, 0, 1]
    """
    moved = weight.astype(np.float64)
    if noise:
        moved *= 1 + noise * np.random.default_rng(seed).standard_normal(len(weight))
    rank = np.empty(len(weight), dtype=np.int64)
    rank[np.argsort(-moved, kind="stable")] = np.arange(len(weight))
    return rank


def rounds(first: int, growth: float) -> Iterator[tuple[int, int]]:
    """Endless (round, node budget)."""
    number, budget = 0, float(first)
    while True:
        yield number, int(budget)
        number, budget = number + 1, budget * growth
