"""Views that are copied after all: never worse, and the plan still runs right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.ir import Graph, parse_graph
from peakfold.packing import pack
from peakfold.planning import PlanOptions
from peakfold.planning.aliasing.records import Aliasing
from peakfold.planning.context import Study
from peakfold.planning.modes import Layout
from peakfold.planning.order import best_order, choose_copies, sharing_of
from peakfold.planning.order.live_bytes import peak_of
from peakfold.planning.order.strip_model import build_model
from peakfold.planning.planner import plan_layout
from tests.planning.test_properties import passes, runs_right
from tests.strategies import graphs

from .tools import OPTIONS, study_of


def hull_peak(study: Study, aliasing: Aliasing) -> int:
    """Bytes of whole storages alive together, step by step."""
    played = study.play(aliasing)
    lives = [
        (min(p.start for p in b.pieces), max(p.stop for p in b.pieces), b.size)
        for b in played.blocks
        if b.pieces
    ]
    return max(
        (
            sum(size for start, stop, size in lives if start <= step < stop)
            for step in range(played.schedule.steps)
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
    study = study_of(small_slice_of_a_large_base())
    full = sharing_of(study)
    found = choose_copies(study, full, "objects")
    assert [study.index.name(t) for t in found.copied] == ["part"]
    mib = 1 << 20
    assert hull_peak(study, full) == 16 * mib
    assert hull_peak(study, found) == 8 * mib + (2 << 10)
    # With offsets the bytes of the base are free anyway, so nothing is copied.
    assert choose_copies(study, full, "arena") == full


def test_a_slice_that_forbids_an_op_to_run_in_place_is_copied() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: uint8[8,64]\na: uint8[8,64] = opaque(x)\n"
        "b: uint8[1,64] = slice(a, starts=[0], ends=[1], axes=[0])\n"
        "c: uint8[8,64] = add(a, b)\noutput c"
    )
    study = study_of(graph)
    full = sharing_of(study)
    found = choose_copies(study, full)
    assert (study.play(full).peak, study.play(found).peak) == (16 * 64, 9 * 64)
    under = best_order(study, time_limit=1.0, seed=0, aliasing=found)
    assert (under.peak, under.optimal) == (9 * 64, True)


@pytest.mark.parametrize("family", ["arena", "objects"])
@given(graph=graphs(), options=OPTIONS)
def test_copies_are_never_worse_and_run_right(
    family: str, graph: Graph, options: PlanOptions
) -> None:
    study = study_of(graph, options)
    full = sharing_of(study)
    found = choose_copies(study, full, family)
    peaks = [
        study.play(a).peak if family == "arena" else hull_peak(study, a) for a in (found, full)
    ]
    assert peaks[0] <= peaks[1]
    played = study.play(found)
    packing = pack(played.problem(study.policies.align))
    offsets = tuple(packing.offsets.tolist())
    layout = Layout("arena", "by hand", played, packing.height, offsets, None, 0, False)
    plan = plan_layout(study, layout)
    assert passes(graph, plan)
    assert runs_right(graph, plan)


@given(graphs(), OPTIONS, st.data())
def test_the_model_follows_any_choice_of_copies(
    graph: Graph, options: PlanOptions, data: st.DataObject
) -> None:
    study = study_of(graph, options)
    views = [a.output for a in study.play(sharing_of(study)).storages.aliases if a.how == "view"]
    copied = data.draw(st.sets(st.sampled_from(views))) if views else set()
    aliasing = Aliasing(inplace=options.inplace, views=options.views, copied=frozenset(copied))
    model = build_model(study, aliasing)
    if model.exact:
        assert peak_of(model, study.order) == study.play(aliasing).peak
