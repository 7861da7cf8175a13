"""Views that are copied after all: never worse, and the plan still runs right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.ir import Graph, parse_graph
from peakfold.packing import pack
from peakfold.planning import PlanOptions
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.context import PlanningContext
from peakfold.planning.modes import Layout
from peakfold.planning.order import best_order, choose_copies
from peakfold.planning.order.live_bytes import peak_of
from peakfold.planning.order.strip_model import build_model
from peakfold.planning.planner import plan_layout
from tests.planning.test_properties import passes, runs_right
from tests.strategies import graphs

from .tools import OPTIONS, context_of


def hull_peak(context: PlanningContext, aliasing: Aliasing) -> int:
    """Bytes of whole storages alive together, step by step."""
    timeline = context.timeline(aliasing)
    lives = [
        (min(p.start for p in b.pieces), max(p.stop for p in b.pieces), b.size)
        for b in timeline.buffers
        if b.pieces
    ]
    return max(
        (
            sum(size for start, stop, size in lives if start <= step < stop)
            for step in range(timeline.schedule.steps)
        ),
        default=0,
    )


def small_slice_of_a_large_base(between: int = 100) -> Graph:
    lines = [
        "peakfold-graph 1",
        "input x: uint8[8192,1024]",
        "base: uint8[8192,1024] = opaque(x)",
        "part: uint8[1,1024] = slice(base, starts=[0], ends=[1], axes=[0])",
        "t0: uint8[1,1024] = opaque(base)",
    ]
    lines += [f"t{n + 1}: uint8[4096,1024] = opaque(t{n})" for n in range(between)]
    lines += [f"end: uint8[1,1024] = opaque(t{between}, part)", "output end"]
    return parse_graph("\n".join(lines))


def test_a_small_slice_does_not_keep_a_large_object_alive() -> None:
    context = context_of(small_slice_of_a_large_base())
    full = context.full_aliasing
    found = choose_copies(context, full, "objects")
    assert [context.index.name(t) for t in found.copied] == ["part"]
    mib = 1 << 20
    assert hull_peak(context, full) == 16 * mib
    assert hull_peak(context, found) == 8 * mib + (2 << 10)
    # With offsets the bytes of the base are free anyway, so nothing is copied.
    assert choose_copies(context, full, "arena") == full


def test_a_slice_that_forbids_an_op_to_run_in_place_is_copied() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: uint8[8,64]\na: uint8[8,64] = opaque(x)\n"
        "b: uint8[1,64] = slice(a, starts=[0], ends=[1], axes=[0])\n"
        "c: uint8[8,64] = add(a, b)\noutput c"
    )
    context = context_of(graph)
    full = context.full_aliasing
    found = choose_copies(context, full)
    assert (context.timeline(full).peak, context.timeline(found).peak) == (16 * 64, 9 * 64)
    under = best_order(context, time_limit=1.0, seed=0, aliasing=found)
    assert (under.peak, under.optimal) == (9 * 64, True)


@pytest.mark.parametrize("family", ["arena", "objects"])
@given(graph=graphs(), options=OPTIONS)
def test_copies_are_never_worse_and_run_right(
    family: str, graph: Graph, options: PlanOptions
) -> None:
    context = context_of(graph, options)
    full = context.full_aliasing
    found = choose_copies(context, full, family)
    peaks = [
        context.timeline(a).peak if family == "arena" else hull_peak(context, a)
        for a in (found, full)
    ]
    assert peaks[0] <= peaks[1]
    timeline = context.timeline(found)
    packing = pack(timeline.problem(context.policies.align))
    offsets = tuple(packing.offsets.tolist())
    layout = Layout("arena", "by hand", timeline, packing.height, offsets, None, 0, False)
    plan = plan_layout(context, layout)
    assert passes(graph, plan)
    assert runs_right(graph, plan)


@given(graphs(), OPTIONS, st.data())
def test_the_model_follows_any_choice_of_copies(
    graph: Graph, options: PlanOptions, data: st.DataObject
) -> None:
    context = context_of(graph, options)
    views = [
        a.output
        for a in context.timeline(context.full_aliasing).storages.aliases
        if a.how == "view"
    ]
    copied = data.draw(st.sets(st.sampled_from(views))) if views else set()
    aliasing = Aliasing(inplace=options.inplace, views=options.views, copied=frozenset(copied))
    model = build_model(context, aliasing)
    if model.exact:
        assert peak_of(model, context.order) == context.timeline(aliasing).peak
