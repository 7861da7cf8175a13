"""Does it fit, and what would make it fit: levers in the order of what they cost.

The first levers are free: they change where bytes lie, or when ops run. The next ones cost work
(bands of rows are computed twice where they meet). The last ones change the model and are
what-ifs: fewer pixels, smaller elements. Each is planned for real, on top of those before it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from peakfold.analysis.cost.cost_delta import extra, spent
from peakfold.device import Device
from peakfold.ir import Graph
from peakfold.ops.doubts import doubts
from peakfold.planning.context import PlanningContext
from peakfold.planning.fit.needing import Runtime, need_of
from peakfold.planning.fit.patch_search import PatchChoice, patch_choices
from peakfold.planning.fit.size_levers import (
    BATCH_CUT,
    Setting,
    clock,
    largest_batch,
    own_batch,
    what_ifs,
)
from peakfold.planning.fit.total import Budgets, Need
from peakfold.planning.modes import make_layout
from peakfold.planning.options import PlanOptions
from peakfold.planning.planner import planning_context
from peakfold.target import load_target

_TRIED_SPLITS: Final = 3
_SHARES: Final = 5
"""Searches that share the time limit: about as many levers keep the model."""
_OTHER: Final = "another network, with another cost"


@dataclass(frozen=True, slots=True)
class FitOption:
    """One lever, on top of the free ones before it.

    Attributes:
        what: the lever, in words.
        need: what the plan with it takes.
        extra_flops: operations it adds to a run; `None` = not known.
        extra_time_s: seconds that those take at least on the device; `None` = not known.
        why: why one of them is not known.
        applied: part of the plan that `options` of the result makes.
        changes_model: a what-if; results would be others.
        flag: what to give `peakfold plan` for it; empty for a what-if.
        complete: False where a limit ended the search for its arena.
    """

    what: str
    need: Need
    extra_flops: int | None = 0
    applied: bool = False
    changes_model: bool = False
    flag: str = ""
    extra_time_s: float | None = 0.0
    why: str = ""
    complete: bool = True


@dataclass(frozen=True, slots=True)
class FitResult:
    """The answer.

    Attributes:
        need: what the model takes as it is: of plans that add no work, the first that fits, or
            else the smallest one found.
        planned: the same of all plans, bands of rows included.
        budgets: what there is.
        levers: every lever tried, cheapest first; the first is what a plain runtime needs.
        options: of the plan that takes `planned`.
        largest_batch: the largest batch that fits with the free levers, and no less than the
            graph's own when that fits; `None` where the network does not scale with its first
            dimension, or where what its plan takes is not known.
        batch_note: why there is no largest batch, or why a larger one may fit; else empty.
        bound_bytes: no order and no layout of the unchanged network has a smaller arena; `None`
            where its shapes or ops are doubtful, so that nothing is proven.
        doubts: what of the graph stands in the way of a proof, a line each.
        complete: False where a limit ended a search: for splits, sizes, batches or an arena.
    """

    need: Need
    planned: Need
    budgets: Budgets
    levers: tuple[FitOption, ...]
    options: PlanOptions
    largest_batch: int | None
    batch_note: str
    bound_bytes: int | None
    doubts: tuple[str, ...] = ()
    complete: bool = True

    @property
    def fits(self) -> bool | None:
        """Whether the model meets the budgets as it is; `None` = not known."""
        return self.budgets.verdict(self.need)

    @property
    def plan_fits(self) -> bool | None:
        """Whether the plan of `options` does; `None` = not known."""
        return self.budgets.verdict(self.planned)


def fit(
    graph: Graph,
    budgets: Budgets,
    options: PlanOptions | None = None,
    runtime: Runtime | None = None,
    device: Device | None = None,
    rebatch: Callable[[int], Graph] | None = None,
) -> FitResult:
    """Try the levers on a graph until the budgets are met; report all of them.

    Args:
        graph: as loaded; every dimension a number.
        budgets: what there is; no lever changes what lies in flash.
        options: target, policies and time limit, of which each search has a fifth.
        runtime: what executes the plan, where that is modelled.
        device: where it runs, to tell what work costs in time.
        rebatch: makes the graph at another batch; by default numbers in it are replaced.

    Raises:
        UsageError: options that do not go together.
        ModelError: a size is not known.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\n"
        ...                 "y: int8[64] = sigmoid(x)\\nz: int8[64] = relu(y)\\noutput z")
        >>> answer = fit(g, Budgets(total=128))
        >>> answer.fits, [lever.need.arena for lever in answer.levers[:3]], answer.need.nbytes
        (True, [128, 128, 64], 128)
    """
    options = replace(
        options or PlanOptions(),
        budget=None,
        arena_budget=None,
        flash=None,
        trace=False,
        split=None,
    )
    limit = options.time_limit
    options = replace(options, time_limit=limit / _SHARES)
    setting = Setting(budgets, runtime or Runtime(), device, rebatch)
    search = _Search(graph, options, setting)
    search.free()
    need = search.need
    batch, why_not = search.batch()
    if not search.met and options.train is None:
        search.split()
    levers = [*search.levers, *(
        FitOption(found.what, found.need, None, changes_model=True, extra_time_s=None, why=_OTHER,
                  complete=found.complete)
        for found in what_ifs(graph, setting, search.free_options)
    )]  # fmt: skip
    return FitResult(
        need=need,
        planned=search.need,
        budgets=budgets,
        levers=tuple(levers),
        options=replace(search.options, time_limit=limit),
        largest_batch=batch,
        batch_note=why_not,
        bound_bytes=search.bound,
        doubts=doubts(graph) if search.bound is None else (),
        complete=search.complete and why_not != BATCH_CUT and all(v.complete for v in levers),
    )


class _Search:
    def __init__(self, graph: Graph, options: PlanOptions, setting: Setting) -> None:
        self.graph, self.base, self.setting = graph, options, setting
        self.levers: list[FitOption] = []
        self.best: Need | None = None
        self.options, self.free_options = options, options
        self.bound: int | None = 0
        self.complete = True

    @property
    def need(self) -> Need:
        """Of the best plan; there is one from the first lever on."""
        if self.best is None:
            raise RuntimeError("no lever was tried")
        return self.best

    @property
    def met(self) -> bool:
        return self.best is not None and self.setting.met(self.best)

    def free(self) -> None:
        """Levers that cost nothing, each on top of the last, in the order of their risk."""
        runtime, least = self.setting.runtime, 1 << 62
        for at, (what, flag, options) in enumerate(self._steps()):
            context = planning_context(self.graph, options)
            if at == 0 and runtime.own is not None:
                own = need_of(context, runtime.own, runtime.untouched(), self.setting.device)
                self._take(FitOption("the runtime's own plan", own), self.base)
            layout = make_layout(context, "arena", options.strategy)
            need = self.setting.need(context, layout.total)
            self._take(FitOption(what, need, flag=flag, complete=layout.complete), options)
            self.bound = (
                None if context.doubtful else context.any_order
            )  # of the last step, which may share the most
            if layout.total < least:
                least, self.free_options = layout.total, options

    def _steps(self) -> Iterator[tuple[str, str, PlanOptions]]:
        plain = replace(
            self.base,
            strategy="by-size",
            inplace=False,
            views=False,
            zero_copy=False,
            overlap=False,
            order="file",
        )
        overlaps = bool(load_target(self.base.target).overlap_kinds)
        apart = " --no-overlap" if overlaps else ""
        if self.setting.runtime.own is None:
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
        base, device = planning_context(self.graph, self.base), self.setting.device
        whole = spent(base.graph, device)
        for choice in self._choices(base):
            options = replace(self.free_options, order="file", split=choice.split)
            context = planning_context(self.graph, options)
            added = extra(whole, spent(context.graph, device))
            split, layout = choice.split, make_layout(context, "arena", options.strategy)
            self._take(
                FitOption(
                    f"in {split.patches} bands of rows up to {split.upto!r}",
                    self.setting.need(context, layout.total),
                    added.flops,
                    complete=layout.complete,
                    extra_time_s=added.time_s,
                    why=added.why,
                    flag=f"--split {shlex.quote(f'{split.upto}={split.patches}')}",
                ),
                options,
            )
            if self.met:
                return

    def _choices(self, base: PlanningContext) -> list[PatchChoice]:
        """The splits to try: the cheapest that may fit, else those that come nearest."""
        deadline = clock(self.base)
        choices = patch_choices(self.graph, self.base, deadline.expired)
        self.complete = not deadline.expired()
        budgets, over = self.setting.budgets, list[tuple[int, int]]()
        for at, choice in enumerate(choices):
            context = replace(base, options=replace(self.base, split=choice.split))
            if self.setting.runtime.obeys(context.options):
                over.append((budgets.over(self.setting.need(context, choice.live_bytes)), at))
        fitting = [choices[at] for misses, at in over if misses <= 0]
        return (fitting[::-1] or [choices[at] for _, at in sorted(over)])[:_TRIED_SPLITS]

    def _take(self, lever: FitOption, options: PlanOptions) -> None:
        """Note a lever; it becomes part of the plan when it lowers the need and that is needed."""
        over = self.setting.budgets.over
        takes = self.best is None or (not self.met and over(lever.need) < over(self.best))
        if takes:
            self.best, self.options = lever.need, options
        self.levers.append(replace(lever, applied=takes))

    def batch(self) -> tuple[int | None, str]:
        """The largest batch, or why there is none."""
        unknown = self.setting.budgets.doubts(self.need)
        if unknown:
            return None, f"it hangs on {', '.join(unknown)}"
        batch, why_not = largest_batch(self.graph, self.setting, self.free_options)
        if batch is not None and self.met:
            # An order that the tries do without may be what makes the given batch fit.
            batch = max(batch, own_batch(self.graph))
        return batch, why_not
