"""`fit`: sizes of the input that fit, each try planned, none guessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from peakfold.errors import PeakfoldError, UsageError
from peakfold.ir import Graph
from peakfold.packing.deadline import Deadline
from peakfold.planning.layouts import Layout, make_layout
from peakfold.planning.options import PlanOptions
from peakfold.planning.planner import study_graph
from peakfold.transform.rescale import Rescale, with_batch

BATCH_CUT: Final = "search ended by the time limit: a larger batch may fit"
_MOST_BATCH: Final = 2**20
# Each family of tries may take so many limits of one search together, and so many seconds at
# least.
_LIMITS: Final = 3
_SECONDS: Final = 4.0


def fit_clock(options: PlanOptions) -> Deadline:
    """When one family of tries has to end: splits, image sizes, batches."""
    return Deadline.after(max(_LIMITS * options.time_limit, _SECONDS))


def arena_layout(graph: Graph, options: PlanOptions) -> Layout:
    """The planned arena."""
    return make_layout(study_graph(graph, options), "arena", options.strategy)


def arena_of(graph: Graph, options: PlanOptions) -> int:
    """Bytes of the planned arena."""
    return arena_layout(graph, options).total


def largest_image(graph: Graph, budget: int, options: PlanOptions) -> tuple[str, int, bool] | None:
    """The largest input resolution that fits, in steps of 8 pixels, when the whole does not.

    Args:
        graph: as loaded.
        budget: bytes.
        options: of the plans.

    Returns:
        The resolution in words, its arena's bytes, and whether there was time to find it.
    """
    images = {n: s for n in graph.inputs if (s := _image(graph, n)) is not None}
    if len(images) != 1 or arena_of(graph, options) <= budget:
        return None
    ((name, (shape, axes)),) = images.items()
    wide = [int(shape[a]) for a in axes]

    def at(eighths: int) -> int | None:
        scaled = list(shape)
        for axis, size in zip(axes, wide, strict=True):
            scaled[axis] = max(size * 8 * eighths // max(wide) // 8 * 8, 8)
        try:
            return arena_of(Rescale({name: tuple(scaled)})(graph), options)
        except PeakfoldError:
            return None

    deadline = fit_clock(options)
    found, complete = _largest(
        lambda n: (b := at(n)) is not None and b <= budget, 1, max(wide) // 8 - 1, deadline
    )
    peak = at(found) if found else None
    if peak is None:
        return None
    pixels = "x".join(str(max(size * 8 * found // max(wide) // 8 * 8, 8)) for size in wide)
    return pixels, peak, complete


def _image(graph: Graph, name: str) -> tuple[tuple[int | str, ...], tuple[int, int]] | None:
    """An input's shape and its axes of rows and columns, when it looks like an image."""
    shape = graph[name].shape
    if shape is None or len(shape) != 4 or any(isinstance(d, str) for d in shape):
        return None
    sizes = [int(d) for d in shape]
    axes = (1, 2) if sizes[3] <= min(sizes[1], sizes[2]) else (2, 3)
    return (shape, axes) if min(sizes[a] for a in axes) > 8 else None


def _largest(
    fits: Callable[[int], bool], low: int, high: int, deadline: Deadline
) -> tuple[int, bool]:
    """The largest n in [low, high] that fits, by bisection; 0 when `low` does not.

    The second is whether there was time for it: the first is the largest seen to fit then.
    """
    if high < low or not fits(low):
        return 0, True
    while low < high:
        if deadline.expired():
            return low, False
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low, True


def largest_batch(graph: Graph, budget: int, options: PlanOptions) -> tuple[int | None, str]:
    """The largest first dimension of the inputs that fits, and what to say of it.

    Each try is planned, none guessed.

    Args:
        graph: as loaded.
        budget: bytes.
        options: of the plans.
    """
    options = replace(options, order="file", time_limit=min(options.time_limit, 0.2))

    def fits(batch: int) -> bool:
        return arena_of(with_batch(graph, batch)(graph), options) <= budget

    try:
        if arena_of(with_batch(graph, 2)(graph), options) <= arena_of(graph, options):
            return None, "memory does not grow with the first dimension of the inputs"
        if not fits(1):
            return 0, ""
        high, deadline = 2, fit_clock(options)
        while high < _MOST_BATCH and not deadline.expired() and fits(high):
            high *= 2
        found, complete = _largest(fits, high // 2, high - 1, deadline)
        return found, "" if complete else BATCH_CUT
    except UsageError as error:
        return None, f"the network cannot be given another batch: {error}"


def own_batch(graph: Graph) -> int:
    """The first dimension of the inputs, which agree on it; 0 where it is no number."""
    shape = graph[graph.inputs[0]].shape
    return shape[0] if shape and isinstance(shape[0], int) else 0
