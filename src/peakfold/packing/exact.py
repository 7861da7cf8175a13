"""Exact decision, anytime: does a problem fit a capacity?

The search of `kernels.search` is heavy-tailed in the order of the buffers: one order finds a
packing in milliseconds, another not in minutes, and no fixed list of orders generalises. So
many orders run in turn with node budgets that grow, later ones with noise, and all share a
memo of failed states (those are facts that hold for any order). Node budgets, not seconds,
decide what is found; time is only an outer stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from peakfold.packing.kernels import cells
from peakfold.packing.kernels.branch import propagate
from peakfold.packing.kernels.search import (
    FITTING,
    FRAME,
    GROW,
    LOWEST,
    PAUSED,
    REFUTED,
    SOLVED,
    TIGHTEST,
    search,
    split,
)
from peakfold.packing.model import Model, preferences, ranks, rounds
from peakfold.packing.problem import FREE, Int64

PORTFOLIO = (
    (LOWEST, "steps"),
    (TIGHTEST, "size"),
    (TIGHTEST + FITTING, "sections"),
    (TIGHTEST, "area"),
    (LOWEST + FITTING, "size"),
    (LOWEST, "sections"),
    (TIGHTEST + FITTING, "peak"),
    (TIGHTEST + FITTING, "size"),
    (LOWEST + FITTING, "area"),
    (TIGHTEST, "conflicts"),
    (TIGHTEST, "sections"),
    (TIGHTEST, "steps"),
    (LOWEST, "area"),
    (LOWEST, "peak"),
    (LOWEST, "conflicts"),
)
"""What to branch on and whom to prefer among equals. The first ten are a greedy cover of
generated instances (perfect packings, and the same with 3 and 6 % of the buffers taken out);
the rest solved one more of 26 fresh ones."""

NOISE = (0.0, 0.3, 1.0, 0.1, 0.03)
FIRST_BUDGET, GROWTH = 500, 1.3
SLICE = 200_000
MEMO = 1 << 19
_EMPTY: Int64 = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What is known after a search.

    Attributes:
        fits: True with offsets, False if refuted, None if the budget or time ran out.
        low: (n,) offsets in units, empty unless `fits`.
        nodes: decisions taken.
    """

    fits: bool | None
    low: Int64
    nodes: int


@dataclass(slots=True, eq=False)
class Searcher:
    """One resumable search: a model at a capacity in one order. Its arrays are its state."""

    grid: Int64
    state: Int64
    buffers: int
    log: Int64
    frames: Int64
    pend: Int64
    open: bool = field(default=True)

    @classmethod
    def start(cls, model: Model, grid: Int64, capacity: int, rank: Int64) -> Searcher:
        """Set up and draw the first conclusions; `open` is False if they contradict."""
        n, k = model.buffers, model.count
        made = cls(
            grid=grid,
            state=_state(model, capacity, rank),
            buffers=n,
            log=np.zeros((8 * (2 * n + 5 * k) + 64, 2), dtype=np.int64),
            frames=np.zeros((4 * n + 64, FRAME), dtype=np.int64),
            pend=np.zeros((4 * k + 64, 4), dtype=np.int64),
        )
        made.open = bool(propagate(grid, made.state, made.log))
        if made.open:
            split(made.state, made.pend)
        return made

    def run(self, memo: Int64, rule: int, nodes: int) -> int:
        """Go on for `nodes` more decisions: SOLVED, REFUTED or PAUSED."""
        if not self.open:
            return REFUTED
        stop = self.nodes + nodes
        while True:
            left = stop - self.nodes
            status: int = search(
                self.grid, self.state, self.log, self.frames, self.pend, memo, rule, left
            )
            if status != GROW:
                return status
            self.log = _double(self.log)
            self.frames = _double(self.frames)
            self.pend = _double(self.pend)

    @property
    def nodes(self) -> int:
        """Decisions taken so far."""
        return int(self.state[cells.NODES])

    @property
    def low(self) -> Int64:
        """(n,) offsets in units; a packing only after SOLVED."""
        return self.state[cells.VARS : cells.VARS + self.buffers].copy()


def decide(
    model: Model,
    capacity: int,
    *,
    nodes: int,
    seed: int = 0,
    expired: Callable[[], bool] = lambda: False,
    portfolio: tuple[tuple[int, str], ...] = PORTFOLIO,
) -> Decision:
    """Whether `model` fits `capacity` bytes.

    Args:
        model: from `model.build`.
        capacity: bytes.
        nodes: budget over all orders.
        seed: of the noise in later rounds.
        expired: polled every ``SLICE / n`` nodes; True stops with ``fits=None``.
        portfolio: pairs of rule and preference.

    Example:
        >>> from peakfold.packing import Problem
        >>> from peakfold.packing.model import build
        >>> model = build(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))
        >>> decide(model, 72, nodes=100).fits, decide(model, 71, nodes=100).fits
        (True, False)
    """
    limit = capacity // model.unit
    grid = _grid(model, limit)
    memo = np.zeros(MEMO, dtype=np.int64)
    spent, slice_ = 0, SLICE // (model.buffers + 100)
    for rank, rule, budget in _jobs(model, seed, portfolio):
        run = Searcher.start(model, grid, limit, rank)
        status = PAUSED
        while status == PAUSED and run.nodes < budget:
            status = run.run(memo, rule, min(slice_, budget - run.nodes))
            if status == PAUSED and (spent + run.nodes >= nodes or expired()):
                return Decision(None, _EMPTY, spent + run.nodes)
        spent += run.nodes
        if status == SOLVED:
            return Decision(True, run.low, spent)
        if status == REFUTED:
            return Decision(False, _EMPTY, spent)
    raise AssertionError("the portfolio is endless")


def _jobs(
    model: Model, seed: int, portfolio: tuple[tuple[int, str], ...]
) -> Iterator[tuple[Int64, int, int]]:
    """Endless (rank, rule, node budget)."""
    weights = preferences(model)
    for number, budget in rounds(max(FIRST_BUDGET, 2 * model.buffers), GROWTH):
        noise = NOISE[number % len(NOISE)] or (NOISE[1] if number else 0.0)
        for place, (rule, name) in enumerate(portfolio):
            yield ranks(weights[name], noise, (seed, number, place)), rule, budget


def _double(array: Int64) -> Int64:
    return np.concatenate([array, np.zeros_like(array)])


def _grid(model: Model, limit: int) -> Int64:
    """The read-only vector of `kernels.branch`."""
    free = (limit - model.size) // model.align * model.align
    columns = [
        model.size, model.align, np.where(model.fixed == FREE, free, model.fixed),
        model.left, model.right, model.at, model.section, model.near, model.neighbour,
        model.before, model.after, model.base,
        *_borders(model.left, model.count), *_borders(model.right, model.count),
    ]  # fmt: skip
    head = np.zeros(cells.G_HEADER, dtype=np.int64)
    head[cells.N], head[cells.K] = model.buffers, model.count
    starts = cells.G_HEADER + np.cumsum([0, *map(len, columns)])[:-1]
    head[cells.SIZE : cells.STOPPING + 1] = starts
    if (model.right - model.left != np.diff(model.at)).any():
        head[cells.STARTS] = 0  # a lifetime with gaps or a relation: sections have no order
    return np.concatenate([head, *columns])


def _borders(border: Int64, count: int) -> tuple[Int64, Int64]:
    """CSR of buffers by section border."""
    at = np.searchsorted(np.sort(border), np.arange(count + 2)).astype(np.int64)
    return at, np.argsort(border, kind="stable").astype(np.int64)


def _state(model: Model, limit: int, rank: Int64) -> Int64:
    """The mutable vector of `kernels.branch`, at the root."""
    n, k = model.buffers, model.count
    crossing = np.zeros(k + 2, dtype=np.int64)
    np.add.at(crossing, model.left + 1, 1)
    np.subtract.at(crossing, model.right, 1)
    # Sparse sets start in the order of `member`; slot maps a buffer-major incidence there.
    owner = np.repeat(np.arange(n), np.diff(model.at))
    entry = np.lexsort((owner, model.section)).astype(np.int64)
    slot = np.empty_like(entry)
    slot[entry] = np.arange(len(entry))
    unset, zeros = np.full(n, -1), np.zeros(n, dtype=np.int64)
    idle = np.zeros(k, dtype=np.int64)
    columns = {
        cells.VARS: np.maximum(model.fixed, 0), cells.KIND: zeros, cells.REST: model.load,
        cells.COUNT: np.diff(model.base), cells.FLOOR: np.full(k, -1),
        cells.CROSS: np.cumsum(crossing)[:k], cells.ENDS: np.full(k, -1),
        cells.STAMP: np.zeros(cells.VARS + 2 * n + 5 * k, dtype=np.int64),
        cells.QUEUE: np.arange(k),
        cells.WAITING: idle + 1, cells.MEMBER: model.member, cells.ENTRY: entry,
        cells.SLOT: slot, cells.WATCH: unset, cells.COST: zeros, cells.PENDING: zeros,
        cells.LOOSE: zeros, cells.KEY: rank,
        cells.SUMS: np.zeros(cells.WORDS, dtype=np.int64), cells.TIGHT: idle, cells.DOUBT: idle,
    }  # fmt: skip
    head = np.zeros(cells.VARS, dtype=np.int64)
    at = cells.VARS
    for name, column in columns.items():
        if name != cells.VARS:
            head[name] = at
        at += len(column)
    head[cells.HI], head[cells.PEND], head[cells.HOT] = k, -1, -1
    head[cells.NODE], head[cells.FRESH] = 1, 2
    head[cells.QUEUED], head[cells.CAPACITY] = k, limit
    return np.concatenate([head, *columns.values()]).astype(np.int64)
