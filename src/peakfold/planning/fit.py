"""Does it fit, and what would make it fit: levers in the order of what they cost.

The first levers are free: they change where bytes lie, or when ops run. The next ones cost work
(bands of rows are computed twice where they meet). The last ones change the model and are
what-ifs: fewer pixels, smaller elements. Each is planned for real, on top of those before it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from peakfold.analysis.extra import extra, spent
from peakfold.device import Device
from peakfold.errors import PeakfoldError, UsageError
from peakfold.ir import DTYPES, Graph, Role
from peakfold.packing.deadline import Deadline
from peakfold.planning.layouts import Layout, make_layout
from peakfold.planning.options import PlanOptions
from peakfold.planning.patches import patch_choices
from peakfold.planning.planner import study_graph
from peakfold.target import load_target
from peakfold.transform.rescale import Rescale, of_one_size, with_batch

_TRIED_SPLITS: Final = 3
_MOST_BATCH: Final = 2**20
_OTHER: Final = "another network, with another cost"
_BATCH_CUT: Final = "search ended by the time limit: a larger batch may fit"
# Each family of tries (splits, image sizes, batches) may take so many limits of one search
# together, and so many seconds at least.
_LIMITS: Final = 3
_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class FitOption:
    """One lever, on top of the free ones before it.

    Attributes:
        what: the lever, in words.
        peak_bytes: the arena with it.
        need_bytes: the arena and what this plan needs beside it.
        extra_flops: operations it adds to a run; `None` = not known.
        extra_time_s: seconds that those take at least on the device; `None` = not known.
        why: why one of them is not known.
        applied: part of the plan that `options` of the result makes.
        changes_model: a what-if; results would be others.
        flag: what to give `peakfold plan` for it; empty for a what-if.
        complete: False where a limit ended the search for its arena.
    """

    what: str
    peak_bytes: int
    extra_flops: int | None = 0
    applied: bool = False
    changes_model: bool = False
    flag: str = ""
    need_bytes: int = 0
    extra_time_s: float | None = 0.0
    why: str = ""
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a runtime does by itself, and keeps beside the arena.

    Attributes:
        own: bytes of the arena it makes without a plan; `None` = not known.
        whole: bytes to set aside for an arena of some size under some options.
    """

    own: int | None = None
    whole: Callable[[int, PlanOptions], int] = field(default=lambda arena, _options: arena)


@dataclass(frozen=True, slots=True)
class FitResult:
    """The answer.

    Attributes:
        need_bytes: what the cheapest plan that fits needs, or else the smallest one found.
        have_bytes: the budget.
        fits: the plan of `options` meets the budget.
        levers: every lever tried, cheapest first; the first is what a plain runtime needs.
        options: of the plan that needs `need_bytes`.
        largest_batch: the largest batch that fits with the free levers, and no less than the
            graph's own when that fits; `None` where the network does not scale with its first
            dimension.
        batch_note: why there is no largest batch, or why a larger one may fit; else empty.
        bound_bytes: no order and no layout of the unchanged network needs less.
        complete: False where a limit ended a search: for splits, sizes, batches or an arena.
    """

    need_bytes: int
    have_bytes: int
    fits: bool
    levers: tuple[FitOption, ...]
    options: PlanOptions
    largest_batch: int | None
    batch_note: str
    bound_bytes: int
    complete: bool = True


def fit(
    graph: Graph, budget: int, options: PlanOptions | None = None, runtime: Runtime | None = None,
    device: Device | None = None,
) -> FitResult:  # fmt: skip
    """Try the levers on a graph until the budget is met; report all of them.

    Args:
        graph: as loaded; every dimension a number.
        budget: bytes the arena, and what the runtime keeps beside it, may take.
        options: target, policies and time limit.
        runtime: what executes the plan; by default one that keeps nothing beside the arena.
        device: where it runs, to tell what work costs in time.

    Raises:
        UsageError: options that do not go together.
        ModelError: a size is not known.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\n"
        ...                 "y: int8[64] = sigmoid(x)\\nz: int8[64] = relu(y)\\noutput z")
        >>> answer = fit(g, 64)
        >>> answer.fits, [lever.peak_bytes for lever in answer.levers[:3]]
        (True, [128, 128, 64])
    """
    options = replace(options or PlanOptions(), budget=None, trace=False, split=None)
    runtime = runtime or Runtime()
    search = _Search(graph, budget, options, runtime, device)
    search.free()
    if not search.met and options.train is None:
        search.split()
    room = 2 * budget - runtime.whole(budget, options)
    levers = [
        *search.levers,
        *(replace(v, need_bytes=runtime.whole(v.peak_bytes, options))
          for v in _what_ifs(graph, room, search.free_options)),
    ]  # fmt: skip
    batch, why_not = _largest_batch(graph, room, search.free_options)
    if batch is not None and search.met:
        # Bands, or an order that the tries do without, may be what makes the given batch fit.
        batch = max(batch, _own_batch(graph))
    return FitResult(
        need_bytes=search.best, have_bytes=budget, fits=search.met,
        levers=tuple(levers), options=search.options, largest_batch=batch,
        batch_note=why_not, bound_bytes=search.bound,
        complete=search.complete and why_not != _BATCH_CUT and all(v.complete for v in levers),
    )  # fmt: skip


def _clock(options: PlanOptions) -> Deadline:
    return Deadline.after(max(_LIMITS * options.time_limit, _SECONDS))


def _arena(graph: Graph, options: PlanOptions) -> Layout:
    return make_layout(study_graph(graph, options), "arena", options.strategy)


def arena_of(graph: Graph, options: PlanOptions) -> int:
    """Bytes of the planned arena."""
    return _arena(graph, options).total


class _Search:
    def __init__(
        self, graph: Graph, budget: int, options: PlanOptions, runtime: Runtime,
        device: Device | None,
    ) -> None:  # fmt: skip
        self.graph, self.budget, self.base, self.runtime = graph, budget, options, runtime
        self.device = device
        self.levers: list[FitOption] = []
        self.best, self.options, self.free_options = 1 << 62, options, options
        self.bound = 0
        self.complete = True

    @property
    def met(self) -> bool:
        return self.best <= self.budget

    def free(self) -> None:
        """Levers that cost nothing, each on top of the last, in the order of their risk."""
        if self.runtime.own is not None:
            self._take(FitOption("the runtime's own plan", self.runtime.own), self.base)
        least = 1 << 62
        for what, flag, options in self._steps():
            study = study_graph(self.graph, options)
            layout = make_layout(study, "arena", options.strategy)
            total = layout.total
            self._take(FitOption(what, total, flag=flag, complete=layout.complete), options)
            self.bound = study.any_order  # of the last step, which may share the most
            if total < least:
                least, self.free_options = total, options

    def _steps(self) -> Iterator[tuple[str, str, PlanOptions]]:
        plain = replace(
            self.base, strategy="by-size", inplace=False, views=False, zero_copy=False,
            overlap=False, order="file",
        )  # fmt: skip
        overlaps = bool(load_target(self.base.target).overlap_kinds)
        apart = " --no-overlap" if overlaps else ""
        if self.runtime.own is None:
            yield "one buffer each, greedy by size", "", plain
        at = replace(plain, strategy="best")
        yield "offsets searched", "--no-inplace --no-views" + apart, at
        at = replace(at, inplace=True, views=True)
        yield "in place and views", "--no-zero-copy" + apart, at
        at = replace(at, zero_copy=True)
        yield "concatenations in place", apart.strip(), at
        if overlaps:
            at = replace(at, overlap=True)
            yield "results overlap inputs", "", at
        yield "order of operators", "--order best", replace(at, order="best")

    def split(self) -> None:
        """Bands of rows: less memory for more work."""
        whole = spent(study_graph(self.graph, self.base).graph, self.device)
        deadline = _clock(self.base)
        choices = patch_choices(self.graph, self.base, deadline.expired)
        self.complete = not deadline.expired()
        needs = [self.runtime.whole(c.live_bytes, replace(self.base, split=c.split))
                 for c in choices]  # fmt: skip
        # The cheapest that may fit, else those that come nearest.
        fitting = [c for c, need in zip(choices, needs, strict=True) if need <= self.budget]
        nearest = [choices[at] for at in sorted(range(len(needs)), key=lambda at: needs[at])]
        for choice in (fitting[::-1] or nearest)[:_TRIED_SPLITS]:
            options = replace(self.free_options, order="file", split=choice.split)
            study = study_graph(self.graph, options)
            added = extra(whole, spent(study.graph, self.device))
            split, layout = choice.split, make_layout(study, "arena", options.strategy)
            self._take(
                FitOption(
                    f"in {split.patches} bands of rows up to {split.upto!r}",
                    layout.total, added.flops, complete=layout.complete,
                    extra_time_s=added.time_s, why=added.why,
                    flag=f"--split {shlex.quote(f'{split.upto}={split.patches}')}",
                ),
                options,
            )  # fmt: skip
            if self.met:
                return

    def _take(self, lever: FitOption, options: PlanOptions) -> None:
        """Note a lever; it becomes part of the plan when it lowers the arena and that is needed."""
        need = self.runtime.whole(lever.peak_bytes, options)
        takes = need < self.best and not self.met
        if takes:
            self.best, self.options = need, options
        self.levers.append(replace(lever, applied=takes, need_bytes=need))


def _what_ifs(graph: Graph, budget: int, options: PlanOptions) -> Iterator[FitOption]:
    """Levers that change the model."""
    options = replace(options, order="file", time_limit=min(options.time_limit, 1.0))
    smaller = _largest_image(graph, budget, options)
    if smaller is not None:
        yield smaller
    narrow = _narrow(graph)
    if narrow is not graph and options.train is None:  # integers have no gradients
        layout = _arena(narrow, options)
        yield FitOption("what if: activations of int8", layout.total, None, changes_model=True,
                        extra_time_s=None, why=_OTHER, complete=layout.complete)  # fmt: skip


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


def _largest_image(graph: Graph, budget: int, options: PlanOptions) -> FitOption | None:
    """The largest input resolution that fits, in steps of 8 pixels, when the whole does not."""
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

    deadline = _clock(options)
    found, complete = _largest(
        lambda n: (b := at(n)) is not None and b <= budget, 1, max(wide) // 8 - 1, deadline
    )
    peak = at(found) if found else None
    if peak is None:
        return None
    pixels = "x".join(str(max(size * 8 * found // max(wide) // 8 * 8, 8)) for size in wide)
    return FitOption(f"what if: input of {pixels}", peak, None, changes_model=True,
                     extra_time_s=None, why=_OTHER, complete=complete)  # fmt: skip


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


def _largest_batch(graph: Graph, budget: int, options: PlanOptions) -> tuple[int | None, str]:
    """The largest first dimension of the inputs that fits, and what to say of it.

    Each try is planned, none guessed.
    """
    options = replace(options, order="file", time_limit=min(options.time_limit, 0.2))

    def fits(batch: int) -> bool:
        return arena_of(with_batch(graph, batch)(graph), options) <= budget

    try:
        if arena_of(with_batch(graph, 2)(graph), options) <= arena_of(graph, options):
            return None, "memory does not grow with the first dimension of the inputs"
        if not fits(1):
            return 0, ""
        high, deadline = 2, _clock(options)
        while high < _MOST_BATCH and not deadline.expired() and fits(high):
            high *= 2
        found, complete = _largest(fits, high // 2, high - 1, deadline)
        return found, "" if complete else _BATCH_CUT
    except UsageError as error:
        return None, f"the network cannot be given another batch: {error}"


def _own_batch(graph: Graph) -> int:
    """The first dimension of the inputs, which agree on it; 0 where it is no number."""
    shape = graph[graph.inputs[0]].shape
    return shape[0] if shape and isinstance(shape[0], int) else 0
