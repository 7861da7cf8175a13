"""The search for the order of a graph with the lowest peak, and for the proof of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from peakfold.analysis import op_bound
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.context import PlanningContext
from peakfold.planning.order.beam import WIDTHS, search_beam
from peakfold.planning.order.bounds import fragment_bound, neighbour_bound, spot_bound
from peakfold.planning.order.budget import Effort
from peakfold.planning.order.cuts import forced_cuts
from peakfold.planning.order.fragment import Fragment
from peakfold.planning.order.ideals import search_ideals
from peakfold.planning.order.list_schedules import start_orders
from peakfold.planning.order.live_bytes import step_costs
from peakfold.planning.order.order_state import OrderState
from peakfold.planning.order.strip_model import Model, build_model
from peakfold.planning.order.windows import improve_windows

Progress = Callable[[int, int], None]
"""Called with the peak and the bound, in bytes, whenever one of them moves."""

# Segments of more ops are not held as bit sets whole: windows and list orders serve them.
_WHOLE = 3_000
# Segments of more ops are bounded at the peak and so many other ops only.
_BOUND, _SPOTS = 10_000, 16
# Parts of the effort left: a first exact try at a segment, a beam, and windows over it.
_FIRST, _BEAM, _WINDOWS = 0.35, 0.25, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    """The best order found, and what is known about all others.

    Attributes:
        order: op ids in the order they run.
        peak: bytes alive at its worst step, as `simulate` counts them.
        bound: no order of the graph has a lower peak, under the same aliasing; arenas have a
            bound of their own besides, `PlanningContext.any_order`.
        optimal: `peak` is the lowest of all orders; it equals `bound`.
        method: what found the order of the segment where the peak is.
        nodes: steps of search spent.
        file_peak: bytes alive at the worst step of the file's order.
        late: the clock ended the search, so another run may find another order.
    """

    order: tuple[int, ...]
    peak: int
    bound: int
    optimal: bool
    method: str
    nodes: int
    file_peak: int
    late: bool


def best_order(
    context: PlanningContext,
    *,
    time_limit: float,
    seed: int,
    progress: Progress | None = None,
    aliasing: Aliasing | None = None,
) -> OrderResult:
    """Find the order of a graph's ops whose peak of live bytes is lowest.

    The graph is cut where every order passes through the same state, and the segments are
    ordered alone: list orders first, then the exact search over sets of done ops, beams of
    growing width, windows around the peak. Segments that cannot be the peak stay as they are.
    The result is judged by `simulate`; it is never worse than the file's order.

    Effort is counted in steps, `time_limit` seconds buying a fixed number of them, so that a
    result is the same in every run unless the clock ends it earlier (`OrderResult.late`).

    Args:
        context: the prepared graph; its options say which sharing there is.
        time_limit: seconds; 0 takes the best list order.
        seed: of random moves.
        progress: told of every step forward.
        aliasing: the sharing to search under; what the context's options allow by default.

    Raises:
        ModelError: the graph's own order breaks an edge.
        UsageError: the time limit is negative or not finite.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.planner import planning_context
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\na: int8[40] = tile(x)\\n"
        ...     "b: int8[40] = tile(x)\\nc: int8[1] = opaque(a)\\nd: int8[1] = opaque(b)\\n"
        ...     "e: int8[2] = concat(c, d)\\noutput e")
        >>> found = best_order(planning_context(g, PlanOptions(align=1)), time_limit=1.0, seed=0)
        >>> found.file_peak, found.peak, found.order, found.optimal
        (81, 42, (0, 2, 1, 3, 4), True)
    """
    aliasing = context.full_aliasing if aliasing is None else aliasing
    effort = Effort(time_limit)
    model = build_model(context, aliasing)
    search = OrderSearch(model, effort, seed, progress)
    search.run()
    order, method = tuple(search.state.order), search.method
    file_peak = context.timeline(aliasing).peak
    peak = replace(context, order=order).timeline(aliasing).peak
    if peak >= file_peak:
        order, peak, method = context.order, file_peak, "file"
    # Unpadded, since a slice inside its base is alive without padding.
    unpadded = op_bound(context.index, replace(context.policies, align=1), context.facts)
    bound = max(unpadded, search.bound if model.sound else 0)
    return OrderResult(
        order=order,
        peak=peak,
        bound=bound,
        optimal=peak == bound,
        method=method,
        nodes=effort.used,
        file_peak=file_peak,
        late=effort.late,
    )


@dataclass(slots=True, eq=False)
class _Segment:
    """Positions ``[begin, end)``, which every order fills with the same ops."""

    begin: int
    end: int
    bound: int
    method: str


class OrderSearch:
    """One search: an order cut into segments, each improved and bounded until it is proven."""

    def __init__(self, model: Model, effort: Effort, seed: int, progress: Progress | None) -> None:
        self.model = model
        self.effort = effort
        self.seed = seed
        self.progress = progress
        starts = start_orders(model)
        cuts = forced_cuts(model)
        self.state, methods = _best_start(model, starts, cuts)
        floor = neighbour_bound(model)
        self.segments = [
            # A segment of one op has one order; for more, what surrounds each op is a start.
            _Segment(
                begin,
                end,
                self.state.cost[begin] if end - begin == 1 else max(floor[begin:end]),
                method,
            )
            for (begin, end), method in zip(pairwise(cuts), methods, strict=True)
        ]

    @property
    def bound(self) -> int:
        """Bytes that no order goes below."""
        return max([self.model.final, *(segment.bound for segment in self.segments)])

    @property
    def method(self) -> str:
        """What found the order of the segment with the peak."""
        worst = max(self.segments, key=self._peak, default=None)
        return "file" if worst is None else worst.method

    def _peak(self, segment: _Segment) -> int:
        return self.state.peak(segment.begin, segment.end)

    def _open(self) -> list[_Segment]:
        """Segments whose peak may be the graph's and may come down, the worst first."""
        bound = self.bound
        wanted = [p for p in self.segments if self._peak(p) > max(bound, p.bound)]
        return sorted(wanted, key=lambda p: (-self._peak(p), p.begin))

    def run(self) -> None:
        """Work on the worst segment that is not proven, with ever stronger means."""
        for segment in self._open():
            self._bound_segment(segment)
        self._each(partial(self._exact, share=_FIRST))
        for width in WIDTHS:
            self._each(partial(self._beam, width=width, share=_BEAM))
        self._each(partial(self._windows, share=_WINDOWS))
        self._each(partial(self._exact, share=1.0))

    def _each(self, work: Callable[[_Segment], None]) -> None:
        """Do some work on every open segment, the worst first; a segment may close others."""
        seen: set[int] = set()
        while True:
            segment = next((p for p in self._open() if p.begin not in seen), None)
            if segment is None or not self.effort.left:
                return
            seen.add(segment.begin)
            before = max(self.state.peak(0, self.model.ops), self.model.final), self.bound
            work(segment)
            after = max(self.state.peak(0, self.model.ops), self.model.final), self.bound
            if self.progress is not None and after != before:
                self.progress(*after)

    def _bound_segment(self, segment: _Segment) -> None:
        if segment.end - segment.begin <= _BOUND:
            fragment = self.state.fragment(segment.begin, segment.end)
            segment.bound = max(segment.bound, fragment_bound(fragment))
            self.effort.spend(len(fragment.ops))
            return
        width = segment.end - segment.begin
        spots = [segment.begin + width * n // _SPOTS for n in range(1, _SPOTS)]
        for at in (self.state.peak_at(segment.begin, segment.end), *spots):
            if self.effort.spend(self.model.ops):
                segment.bound = max(segment.bound, spot_bound(self.model, self.state.order[at]))

    def _exact(self, segment: _Segment, share: float) -> None:
        if segment.end - segment.begin > _WHOLE:
            return
        fragment = self.state.fragment(segment.begin, segment.end)
        with self.effort.share(share):
            found = search_ideals(fragment, self.bound, self._peak(segment), self.effort)
        # Peaks up to the graph's bound are not told apart, so this is a bound of the graph.
        segment.bound = max(segment.bound, found.bound)
        self._take(segment, fragment, found.order, "exact")

    def _beam(self, segment: _Segment, width: int, share: float) -> None:
        if segment.end - segment.begin > _WHOLE:
            return
        fragment = self.state.fragment(segment.begin, segment.end)
        with self.effort.share(share):
            order = search_beam(fragment, self.bound, self._peak(segment), width, self.effort)
        self._take(segment, fragment, order, f"beam {width}")

    def _windows(self, segment: _Segment, share: float) -> None:
        before = self._peak(segment)
        with self.effort.share(share):
            improve_windows(
                self.state, segment.begin, segment.end, self.bound, self.effort, self.seed
            )
        if self._peak(segment) < before:
            segment.method = "windows"

    def _take(
        self, segment: _Segment, fragment: Fragment, order: Sequence[int] | None, method: str
    ) -> None:
        if order is not None:
            self.state.rewrite(segment.begin, fragment, order)
            segment.method = method


def _best_start(
    model: Model, starts: Sequence[tuple[str, tuple[int, ...]]], cuts: Sequence[int]
) -> tuple[OrderState, list[str]]:
    """Per segment the best of some orders, the first of equals; all together, and their names."""
    costs = [step_costs(model, order) for _, order in starts]
    best: list[int] = []
    names: list[str] = []
    for begin, end in pairwise(cuts):
        peaks = [max(cost[begin:end]) for cost in costs]
        chosen = peaks.index(min(peaks))
        best += starts[chosen][1][begin:end]
        names.append(starts[chosen][0])
    return OrderState(model, best), names
