"""`pack`: the one entry that turns a problem into a packing.

In this order, each only while the height is above the bound (or the capacity):

1. greedy planners in plain Python; small problems mostly end here and never import numba;
2. compiled first fit in many orders, then ruin and recreate, from hundreds of buffers on;
3. the exact search: at the capacity, at the bound, then between the bound and the best;
4. for pieces of partial height, which it does not take, a walk through orders of first fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from peakfold.arguments import flag, real, whole, word
from peakfold.errors import DoesNotFit, TimeLimit
from peakfold.packing.bounds import lower_bound
from peakfold.packing.deadline import Deadline
from peakfold.packing.heuristics.first_fit import stack
from peakfold.packing.heuristics.orders import STRATEGIES
from peakfold.packing.problem import Int64, Packing, Problem, Search, need_problem
from peakfold.packing.verify import require_valid

Progress = Callable[[int, int], None]
"""Called with (best height so far, lower bound) whenever either improves."""

PLAIN_LIMIT = 2_000
"""Above this many buffers the compiled first fit takes over from the Python strategies."""
JUDGED = 100_000
"""Up to this many buffers `pack` runs the judge on its own result before returning it."""
FAST_SHARE = 0.25
LADDER = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
FIRST_NODES = 20_000
GRACE = 5.0
"""Seconds that the first greedy pass may take, whatever the limit: a plan comes out of it."""


class CapacityTooSmall(DoesNotFit):
    """Proven: no packing fits the capacity.

    Attributes:
        bound: bytes that any packing needs at least.
        capacity: bytes given.
    """

    def __init__(self, bound: int, capacity: int) -> None:
        self.bound, self.capacity = bound, capacity
        missing = bound - capacity
        super().__init__(f"needs at least {bound} bytes, {missing} more than {capacity}")


@dataclass(slots=True, eq=False)
class _Search:
    """The state of one call: best packing, bound and when to stop."""

    problem: Problem
    capacity: int | None
    minimize: bool
    deadline: Deadline
    seed: int
    progress: Progress | None
    bound: int
    node_limit: int | None = None
    height: int = 1 << 62
    offsets: Int64 | None = None
    strategy: str = ""
    ended: Search = "complete"

    def offer(self, offsets: Int64, strategy: str) -> None:
        """Keep a packing if it is lower."""
        height = self.problem.height(offsets)
        if height < self.height:
            self.height, self.offsets, self.strategy = height, offsets, strategy
            self.tell()

    def raise_bound(self, bound: int) -> None:
        """Record a proof that nothing is lower than `bound`."""
        if bound > self.bound:
            self.bound = min(bound, self.height)
            self.tell()
        if self.capacity is not None and self.bound > self.capacity:
            raise CapacityTooSmall(self.bound, self.capacity)

    def tell(self) -> None:
        if self.progress is not None and self.offsets is not None:
            self.progress(self.height, self.bound)

    @property
    def done(self) -> bool:
        """Whether nothing better is asked for or possible."""
        if self.capacity is not None and not self.minimize and self.height <= self.capacity:
            return True
        return self.height <= self.bound

    def over(self, limit: Deadline | None = None) -> bool:
        """Whether to stop: nothing better is asked for, or the time is up, which is noted."""
        if self.done:
            return True
        if (limit or self.deadline).expired():
            self.ended = "time limit"
            return True
        return False


def pack(
    problem: Problem,
    *,
    capacity: int | None = None,
    minimize: bool = True,
    strategy: str = "best",
    time_limit: float = 5.0,
    seed: int = 0,
    progress: Progress | None = None,
    on_compile: Callable[[], None] | None = None,
    node_limit: int | None = None,
) -> Packing:
    """Give every buffer an offset so that the height is small.

    An interrupt (Ctrl-C) during the search returns the best packing so far.

    Args:
        problem: the buffers.
        capacity: bytes that must be enough. Without `minimize`, search stops once it is met.
        minimize: go on below the capacity until the height is proven minimal or time is up.
        strategy: ``best``, or one name of `STRATEGIES` for that greedy alone.
        time_limit: seconds; an outer stop only, at least one packing is always returned. What
            loading and compiling kernels takes is not counted.
        seed: of the randomised parts.
        progress: called with (height, lower bound) at every improvement.
        on_compile: called before a wait of seconds, when kernels are compiled for the first
            time on this machine (later runs load them from numba's cache).
        node_limit: nodes of the exact search; unlike a time limit it ends the search at the
            same place on every machine.

    Raises:
        UsageError: an unknown strategy, a negative capacity or time limit.
        CapacityTooSmall: proven (a `DoesNotFit`), with the bound.

    Example:
        >>> found = pack(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))
        >>> found.height, found.optimal
        (72, True)
    """
    need_problem(problem)
    word(strategy, ("best", *STRATEGIES), "packing strategy")
    flag(minimize, "minimize")
    capacity = None if capacity is None else whole(capacity, "capacity")
    time_limit, seed = real(time_limit, "time_limit", endless=True), whole(seed, "seed")
    state = _Search(
        problem,
        capacity,
        minimize,
        Deadline.after(time_limit, on_compile),
        seed,
        progress,
        lower_bound(problem),
        node_limit,
    )
    state.raise_bound(state.bound)
    if strategy != "best" or _small(problem):
        _first(state, "by-size" if strategy == "best" else strategy)
    if strategy != "best":
        return _result(state)
    try:
        for stage in (_greedy, _fast, _exact, _partial):
            if state.offsets is None or not state.over():
                stage(state)
    except TimeLimit:
        state.ended = "time limit"
    except KeyboardInterrupt:
        if state.offsets is None:
            raise
        state.ended = "time limit"
    return _result(state)


def _first(state: _Search, strategy: str) -> None:
    """One greedy packing, for which there is more time than the limit, or else rows for all."""
    grace = Deadline(max(state.deadline.stop, Deadline.after(GRACE).stop))
    try:
        state.offer(STRATEGIES[strategy](state.problem, grace.check), strategy)
    except TimeLimit:
        state.ended = "time limit"
        state.offer(stack(state.problem), "stacked")


def _small(problem: Problem) -> bool:
    related = problem.conflicts is not None
    return problem.buffers <= PLAIN_LIMIT or not problem.plain or related


def _result(state: _Search) -> Packing:
    offsets = state.offsets
    if offsets is None:
        raise TimeLimit("no packing was found in time")
    if state.problem.buffers <= JUDGED:
        require_valid(state.problem, offsets)
    return Packing(
        offsets,
        state.height,
        min(state.bound, state.height),
        state.height <= state.bound,
        state.strategy,
        "complete" if state.done else state.ended,
    )


def _greedy(state: _Search) -> None:
    """Every plain strategy while the problem is small."""
    if not _small(state.problem):
        return
    for name, run in STRATEGIES.items():
        state.offer(run(state.problem, state.deadline.check), name)
        if state.over():
            return


def _fast(state: _Search) -> None:
    """Compiled first fit in many orders, then ruin and recreate."""
    problem = state.problem
    related = problem.conflicts is not None
    if not problem.plain or related or problem.buffers <= PLAIN_LIMIT // 4:
        return
    state.deadline.load_fit()
    from peakfold.packing.exact.search_model import can_model
    from peakfold.packing.large.ruin_recreate import improve

    stop = state.deadline.share(FAST_SHARE if can_model(problem) else 1.0)
    improve(problem, state.seed, state.height, state.bound, state.offer, lambda: state.over(stop))


def _exact(state: _Search) -> None:
    """Decide at the capacity, at the bound, then on a ladder between bound and best."""
    from peakfold.packing.exact.search_model import build

    model = build(state.problem, state.deadline.check)
    if model is None:
        return
    state.deadline.load_search()
    from peakfold.packing.exact.search import decide

    left = 1 << 62 if state.node_limit is None else state.node_limit
    for target, nodes, again in _targets(state, model.unit):
        if left <= 0:
            state.ended = "node limit"
            return
        nodes, seed = min(nodes, left), state.seed + again
        left -= nodes
        found = decide(model, target, nodes=nodes, seed=seed, expired=state.deadline.expired)
        if found.fits:
            state.offer(model.offsets(state.problem, found.low), "exact")
        elif found.fits is False:
            # Every height is a multiple of the unit, so the next possible one is a bound.
            state.raise_bound((target // model.unit + 1) * model.unit)
        if state.over():
            return


def _partial(state: _Search) -> None:
    """A walk through orders, where pieces do not cover the height of their buffers."""
    problem = state.problem
    if problem.plain or problem.conflicts is not None:
        return
    from peakfold.packing.exact.search_model import can_model
    from peakfold.packing.heuristics.order_walk import wander

    if not can_model(problem):
        wander(problem, state.bound, state.offer, state.over, state.seed, state.deadline.check)


def _targets(state: _Search, unit: int) -> Iterator[tuple[int, int, int]]:
    """Heights to try, with node budgets and how often each was tried before.

    Reads the state as it improves. The height that matters (the capacity until it is met, then
    the bound) gets most of the effort, a ladder between it and the best height the rest. A
    height is not tried again before there is more effort for it.
    """
    nodes = FIRST_NODES + 20 * state.problem.buffers
    spent: dict[int, list[int]] = {}
    while True:
        for fraction in LADDER:
            met = state.capacity is None or state.height <= state.capacity
            base = state.bound if met or state.capacity is None else state.capacity // unit * unit
            steps = (state.height - base) // unit
            step = max(min(int(np.ceil(fraction * steps)), steps - 1), 0)
            before, target = state.height, base + step * unit
            effort = nodes if met or step else 10 * nodes
            earlier = spent.setdefault(target, [])
            if max(earlier, default=0) >= effort:
                continue
            earlier.append(effort)
            yield target, effort, len(earlier) - 1
            if state.height < before:
                break
        else:
            nodes *= 2
