"""Exact decision, anytime: does a problem fit a capacity?

The search of `kernels.search` is heavy-tailed in the order of the buffers: one order finds a
packing in milliseconds, another not in minutes, and no fixed list of orders generalises. So
many orders run in turn with node budgets that grow, later ones with noise, and share a memo of
failed states (those are facts that hold for any order). After the first round they run in
pairs on two threads, each thread with a memo of its own; of a pair the first order that comes
to an end counts, whoever is quicker. So node budgets, not seconds, decide what is found; time
is only an outer stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Event

import numpy as np

from peakfold.packing.exact.kernels import state_layout as cells
from peakfold.packing.exact.kernels.branch import propagate
from peakfold.packing.exact.kernels.search import (
    BACKWARD,
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
from peakfold.packing.exact.search_model import Model, preferences, ranks, rounds
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
FULL = 0.9
"""Share of sections without room to spare from which on their costly conclusions are drawn. On
generated instances they save more than they cost only where hardly any section has room."""
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
    def start(cls, model: Model, grid: Int64, capacity: int, rank: Int64, rule: int) -> Searcher:
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
        made.open = bool(propagate(grid, made.state, made.log, rule))
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


@dataclass(frozen=True, slots=True)
class _Job:
    """One try: buffers preferred by `key` with `noise`, a rule, a node budget."""

    key: str
    noise: float
    seed: tuple[int, ...]
    rule: int
    nodes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Lane:
    """What one thread needs for its tries; `memo` is its own."""

    model: Model
    limit: int
    grid: Int64
    weights: dict[str, Int64]
    memo: Int64

    def run(self, job: _Job, stop: Callable[[], bool]) -> Decision:
        """One try; it ends unknown after its nodes or when `stop`, polled in between, is true."""
        rank = ranks(self.weights[job.key], job.noise, job.seed)
        search = Searcher.start(self.model, self.grid, self.limit, rank, job.rule)
        slice_ = SLICE // (self.model.buffers + 100)
        status = PAUSED
        while status == PAUSED and search.nodes < job.nodes:
            status = search.run(self.memo, job.rule, min(slice_, job.nodes - search.nodes))
            if status == PAUSED and stop():
                break
        if status == SOLVED:
            return Decision(True, search.low, search.nodes)
        return Decision(None if status == PAUSED else False, _EMPTY, search.nodes)


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
        expired: polled every ``SLICE / n`` nodes, by two threads; True stops with ``fits=None``.
        portfolio: pairs of rule and preference.

    Example:
        >>> from peakfold.packing import Problem
        >>> from peakfold.packing.exact.search_model import build
        >>> model = build(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))
        >>> decide(model, 72, nodes=100).fits, decide(model, 71, nodes=100).fits
        (True, False)
    """
    limit = capacity // model.unit
    memo = np.zeros(MEMO, dtype=np.int64)
    lane = _Lane(model, limit, _grid(model, limit), preferences(model), memo)
    jobs = _within(nodes, _jobs(model, limit, seed, portfolio))
    spent = 0
    for job in islice(jobs, len(portfolio)):
        found = lane.run(job, expired)
        spent += found.nodes
        if found.fits is not None or expired():
            return replace(found, nodes=spent)
    other = replace(lane, memo=memo.copy())
    with ThreadPoolExecutor(1) as pool:
        while pair := list(islice(jobs, 2)):
            for found in _side_by_side(pool, (lane, other), pair, expired):
                spent += found.nodes
                if found.fits is not None or expired():
                    return replace(found, nodes=spent)
    return Decision(None, _EMPTY, spent)


def _side_by_side(
    pool: ThreadPoolExecutor,
    lanes: tuple[_Lane, _Lane],
    pair: list[_Job],
    expired: Callable[[], bool],
) -> Iterator[Decision]:
    """Results of one or two tries, in their order; the second ends when the first decides."""
    halt = Event()
    second = [
        pool.submit(lanes[1].run, job, lambda: halt.is_set() or expired()) for job in pair[1:]
    ]
    try:
        yield lanes[0].run(pair[0], expired)
        for future in second:
            yield future.result()
    finally:
        halt.set()


def _within(nodes: int, jobs: Iterator[_Job]) -> Iterator[_Job]:
    """The first jobs, the last one cut short, so that their budgets add up to `nodes`."""
    for job in jobs:
        if nodes <= 0:
            return
        yield replace(job, nodes=min(job.nodes, nodes))
        nodes -= job.nodes


def _jobs(
    model: Model, limit: int, seed: int, portfolio: tuple[tuple[int, str], ...]
) -> Iterator[_Job]:
    """Endless; every second round looks at time from its end."""
    full = (model.load == limit).mean() if model.count else 0.0
    extra = cells.STACKS if full >= FULL else 0
    for number, budget in rounds(max(FIRST_BUDGET, 2 * model.buffers), GROWTH):
        noise = NOISE[number % len(NOISE)] or (NOISE[1] if number else 0.0)
        turned = extra | (BACKWARD if number % 2 else 0)
        for place, (rule, key) in enumerate(portfolio):
            yield _Job(key, noise, (seed, number, place), rule | turned, budget)


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
