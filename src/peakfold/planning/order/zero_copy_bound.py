"""The model behind a bound for plans that may build concatenations in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from peakfold.analysis import Facts
from peakfold.planning.aliasing.overlaps import with_all_overlaps
from peakfold.planning.context import PlanningContext
from peakfold.planning.order.budget import Effort
from peakfold.planning.order.search import OrderSearch
from peakfold.planning.order.strip_model import Model, build_model


def without_copies(model: Model, facts: Sequence[Facts]) -> Model:
    """The model in which a concatenation that might be built in place never copies.

    Built in place, the parts of a concatenation lie in its result, so the two count once in
    its step, and a part that is read later is still there. Here the parts count nothing beside
    the result in that step, and nothing at all after it. Whichever concatenations a plan takes
    in, and in whatever order, it has at least this model's live bytes in every step: copying
    adds to them, and so does keeping a part longer than its result. A part of two
    concatenations counts only in the step that makes it, since either may take it in, and an
    input of the graph that is such a part counts nothing.

    Args:
        model: the strips of the graph.
        facts: per op, what registry and target allow.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.order.strip_model import build_model
        >>> from peakfold.planning.planner import planning_context
        >>> from peakfold.planning.aliasing.records import Aliasing
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[1,4]\\na: int8[1,4] = opaque(x)\\n"
        ...     "b: int8[1,4] = opaque(x)\\nc: int8[2,4] = concat(a, b, axis=0)\\noutput c")
        >>> context = planning_context(g, PlanOptions(align=1))
        >>> model = build_model(context, Aliasing())
        >>> model.fresh, without_copies(model, context.facts).fresh
        ([4, 4, 8], [4, 4, 0])
    """
    fresh = list(model.fresh)
    taken: dict[int, list[int]] = {}
    for op, fact in enumerate(facts):
        parts = model.reads[op]
        if not fact.parts:
            continue
        for strip in parts:
            taken.setdefault(strip, []).append(op)
        fresh[op] = max(0, fresh[op] - sum(model.weight[strip] for strip in parts))
    readers, kept = list(model.readers), list(model.kept)
    for strip, ops in taken.items():
        # What must survive may do so inside a result, by a view that is made later.
        kept[strip] = False
        readers[strip] = tuple(ops) if len(ops) == 1 else ()
    reads: list[list[int]] = [[] for _ in range(model.ops)]
    for strip, those in enumerate(readers):
        for op in those:
            reads[op].append(strip)
    made = {strip for strips in model.makes for strip in strips}
    # An input that two concatenations may take in is freed by neither: it counts nothing.
    gone = sum(model.weight[s] for s in taken if s not in made and not readers[s])
    return replace(
        model,
        readers=readers,
        kept=kept,
        fresh=fresh,
        reads=[tuple(r) for r in reads],
        start=model.start - gone,
    )


def bound_without_copies(context: PlanningContext, *, time_limit: float, seed: int) -> int:
    """Bytes that no order goes below, whichever concatenations are built in place.

    Args:
        context: the prepared graph; its options say which sharing there is.
        time_limit: seconds, which buy a fixed number of search steps.
        seed: of random moves.
    """
    sharing = with_all_overlaps(context, context.full_aliasing)
    model = build_model(context, sharing)
    search = OrderSearch(without_copies(model, context.facts), Effort(time_limit), seed, None)
    search.run()
    return search.bound if model.sound else 0
