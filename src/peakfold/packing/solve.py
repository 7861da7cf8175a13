"""`pack`: the one entry that turns a problem into a packing."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from peakfold.errors import DoesNotFit, UsageError
from peakfold.packing.bounds import lower_bound
from peakfold.packing.greedy import STRATEGIES
from peakfold.packing.problem import Int64, Packing, Problem

Progress = Callable[[int, int], None]
"""Called with (best height so far, lower bound) whenever either improves."""


def pack(
    problem: Problem,
    *,
    capacity: int | None = None,
    minimize: bool = True,
    strategy: str = "best",
    time_limit: float = 5.0,
    seed: int = 0,  # noqa: ARG001 - used by the randomised search
    progress: Progress | None = None,
) -> Packing:
    """Give every buffer an offset so that the height is small.

    Args:
        problem: the buffers.
        capacity: bytes that must be enough. Without `minimize`, search stops once it is met.
        minimize: go on below the capacity until the height is proven minimal or time is up.
        strategy: ``best``, or one name of `STRATEGIES` for that greedy alone.
        time_limit: seconds; an outer stop only, at least one packing is always returned.
        seed: of the randomised parts.
        progress: called with (height, lower bound) at every improvement.

    Raises:
        UsageError: an unknown strategy.
        DoesNotFit: the capacity is below a proven bound.

    Example:
        >>> found = pack(Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64]))
        >>> found.height, found.optimal
        (72, True)
    """
    bound = lower_bound(problem)
    if capacity is not None and bound > capacity:
        raise DoesNotFit(f"needs at least {bound} bytes, {bound - capacity} more than {capacity}")
    names = list(STRATEGIES) if strategy == "best" else [strategy]
    if not set(names) <= set(STRATEGIES):
        known = ", ".join(["best", *STRATEGIES])
        raise UsageError(f"unknown packing strategy {strategy!r}", hint=f"one of {known}")
    stop = bound if minimize or capacity is None else capacity
    deadline = monotonic() + time_limit
    best: tuple[int, str, Int64] | None = None
    for name in names:
        offsets = STRATEGIES[name](problem)
        height = problem.height(offsets)
        if best is None or height < best[0]:
            best = (height, name, offsets)
            if progress is not None:
                progress(height, bound)
        if best[0] <= stop or monotonic() > deadline:
            break
    assert best is not None  # noqa: S101 - names is never empty
    return Packing(best[2], best[0], bound, best[0] == bound, best[1])
