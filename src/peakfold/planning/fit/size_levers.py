"""Levers of `fit` that change the model: other image sizes, narrower elements, other batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from peakfold.device import Device
from peakfold.errors import PeakfoldError, UsageError
from peakfold.ir import DTYPES, Graph, Role
from peakfold.packing.deadline import Deadline
from peakfold.planning.context import PlanningContext
from peakfold.planning.fit.needing import Runtime, need_of
from peakfold.planning.fit.total import Budgets, Need
from peakfold.planning.modes import Layout, make_layout
from peakfold.planning.options import PlanOptions
from peakfold.planning.planner import planning_context
from peakfold.transform.rescale import Rescale, of_one_size, with_batch

BATCH_CUT: Final = "search ended by the time limit: a larger batch may fit"
_MOST_BATCH: Final = 2**20
# Each family of tries (splits, image sizes, batches) may take so many limits of one search
# together, and so many seconds at least.
_LIMITS: Final = 3
_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What every plan of a `fit` is held against.

    Attributes:
        budgets: what there is.
        runtime: what executes the plans.
        device: where.
        rebatch: makes the graph at another batch, where that is more than new numbers in it.
    """

    budgets: Budgets
    runtime: Runtime
    device: Device | None
    rebatch: Callable[[int], Graph] | None = None

    def need(self, context: PlanningContext, arena: int) -> Need:
        """What a plan takes with an arena of so many bytes."""
        return need_of(context, arena, self.runtime, self.device)

    def planned(self, graph: Graph, options: PlanOptions) -> tuple[Need, Layout]:
        """A graph's need when it is planned, and its layout."""
        context = planning_context(graph, options)
        layout = make_layout(context, "arena", options.strategy)
        return self.need(context, layout.total), layout

    def met(self, need: Need) -> bool:
        """Whether the known part of a need is within the budgets of RAM."""
        return self.budgets.over(need) <= 0


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A changed model.

    Attributes:
        what: the change, in words.
        need: of its plan.
        complete: False where a limit ended a search for it.
    """

    what: str
    need: Need
    complete: bool


def clock(options: PlanOptions) -> Deadline:
    """The time that one family of tries has."""
    return Deadline.after(max(_LIMITS * options.time_limit, _SECONDS))


def what_ifs(graph: Graph, setting: Setting, options: PlanOptions) -> Iterator[WhatIf]:
    """Levers that change the model.

    Args:
        graph: as loaded.
        setting: what plans are held against.
        options: of the plan with every free lever.
    """
    options = replace(options, order="file", time_limit=min(options.time_limit, 1.0))
    smaller = _largest_image(graph, setting, options)
    if smaller is not None:
        yield smaller
    narrow = _narrow(graph)
    if narrow is not graph and options.train is None:  # integers have no gradients
        need, layout = setting.planned(narrow, options)
        yield WhatIf("what if: activations of int8", need, layout.complete)


def _narrow(graph: Graph) -> Graph:
    """The graph with activations and inputs of a byte an element, where it states no bytes."""
    if any(map(of_one_size, graph.ops)) or any(t.stated_bytes is not None for t in graph.tensors):
        return graph
    wide = {"float16", "bfloat16", "float32", "float64"}
    roles = {Role.ACTIVATION, Role.INPUT}
    tensors = tuple(
        replace(t, dtype=DTYPES["int8"]) if t.role in roles and t.dtype.name in wide else t
        for t in graph.tensors
    )
    return graph if tensors == graph.tensors else replace(graph, tensors=tensors)


def _largest_image(graph: Graph, setting: Setting, options: PlanOptions) -> WhatIf | None:
    """The largest input resolution that fits, in steps of 8 pixels, when the whole does not."""
    images = {n: s for n in graph.inputs if (s := _image(graph, n)) is not None}
    if len(images) != 1 or setting.met(setting.planned(graph, options)[0]):
        return None
    ((name, (shape, axes)),) = images.items()
    wide = [int(shape[a]) for a in axes]

    def at(eighths: int) -> Need | None:
        scaled = list(shape)
        for axis, size in zip(axes, wide, strict=True):
            scaled[axis] = max(size * 8 * eighths // max(wide) // 8 * 8, 8)
        try:
            return setting.planned(Rescale({name: tuple(scaled)})(graph), options)[0]
        except PeakfoldError:
            return None

    deadline = clock(options)
    found, complete = _largest(
        lambda n: (need := at(n)) is not None and setting.met(need),
        1,
        max(wide) // 8 - 1,
        deadline,
    )
    need = at(found) if found else None
    if need is None:
        return None
    pixels = "x".join(str(max(size * 8 * found // max(wide) // 8 * 8, 8)) for size in wide)
    return WhatIf(f"what if: input of {pixels}", need, complete)


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


def largest_batch(graph: Graph, setting: Setting, options: PlanOptions) -> tuple[int | None, str]:
    """The largest first dimension of the inputs that fits, and what to say of it.

    Each try is planned, none guessed.

    Args:
        graph: as loaded.
        setting: what plans are held against.
        options: of the plan with every free lever.
    """
    options = replace(options, order="file", time_limit=min(options.time_limit, 0.2))

    def need(batch: int) -> Need:
        if setting.rebatch is not None:
            return setting.planned(setting.rebatch(batch), options)[0]
        return setting.planned(with_batch(graph, batch)(graph), options)[0]

    def fits(batch: int) -> bool:
        return setting.met(need(batch))

    try:
        more = 2 * max(own_batch(graph), 1)
        if need(more).at_least <= setting.planned(graph, options)[0].at_least:
            return None, "memory does not grow with the first dimension of the inputs"
        if not fits(1):
            return 0, ""
        high, deadline = 2, clock(options)
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
