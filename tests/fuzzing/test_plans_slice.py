"""Today's tenth of the attack on the judges, and what makes the attack worth its time."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from peakfold.ir import parse_graph
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.plan import decode_plan
from peakfold.transform import replay
from tests.fuzzing.attack import Base, Outcome, base_plan, mutate
from tests.fuzzing.campaign import BAD, ROOT, SLICES, plans, slice_number
from tests.fuzzing.claims import Witness, claims
from tests.fuzzing.oracle import faults
from tests.fuzzing.plan_mutations import MUTATIONS
from tests.fuzzing.server import Server

BASES = 1500
"""Base plans of the fixed whole that CI walks through a tenth at a time."""


def test_todays_slice_of_wrong_plans(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []

    def tell(_: Base, found: Outcome) -> None:
        why = [f"{f.kind} {f.text}" for f in found.faults[:2]] or [found.said]
        told.append(f"{found.verdict}: mutant {found.number} of {found.base}: {why}")

    tenth = slice_number()
    with Server() as server:
        tally = plans(0, range(tenth, BASES, SLICES), ROOT, tell, server)
    with capsys.disabled():
        print(f"\nwrong plans, slice {tenth} of {SLICES}: {dict(tally.total)}")
    assert not told, "\n".join(told)
    assert tally.sound > BASES // SLICES * 0.9
    assert tally.total["rejected, wrong"] > tally.total.total() / 2
    assert not any(tally.total[kind] for kind in BAD)


def test_every_field_of_every_record_is_changed() -> None:
    """A field that is added to `Plan` is attacked, or this fails."""
    found = [base_plan(0, number, None) for number in range(40)]
    for name in MUTATIONS:
        assert any(
            MUTATIONS[name](
                msgspec.to_builtins(base.plan),
                random.Random(base.number),
                replay(base.graph, base.plan.recipe),
            )
            for base in found
        ), name


def test_a_number_is_one_mutant() -> None:
    one, two = (mutate(base_plan(5, 7, None), 5, 90) for _ in range(2))
    assert one == two
    assert json.dumps(one) != json.dumps(mutate(base_plan(5, 7, None), 5, 91))


GRAPH = """peakfold-graph 1
input x: int8[64]
a: int8[64] = foo(x)
b: int8[64] = foo(a)
c: int8[64] = foo(b)
output c
"""


def test_the_oracle_sees_what_is_wrong() -> None:
    graph = parse_graph(GRAPH)
    plan = make_plan(graph, PlanOptions(align=1)).plan
    assert not faults(graph, plan, {})
    tree = msgspec.to_builtins(plan)
    places = [b["tensors"][0] for b in tree["buffers"]]
    assert [p["tensor"] for p in places] == ["a", "b", "c"]
    offsets = [b["offset"] for b in tree["buffers"]]
    assert offsets[0] == offsets[2] != offsets[1]
    tree["buffers"][1]["offset"] = offsets[0]  # b over a, which it is made from
    assert {f.kind for f in faults(graph, _plan(tree), {})} == {"memory"}
    tree["external"].append({"tensors": tree["buffers"].pop(1)["tensors"]})
    assert {f.kind for f in faults(graph, _plan(tree), {})} == {"external"}


def test_claims_are_beaten() -> None:
    graph = parse_graph(GRAPH)
    plan = make_plan(graph, PlanOptions(align=1)).plan
    tree = msgspec.to_builtins(plan)
    for at, buffer in enumerate(tree["buffers"]):
        buffer["offset"] = 64 * at
    tree["arena_bytes"] = 192
    tree["bound"] = dict.fromkeys(tree["bound"], 192)
    wasteful = _plan(tree)
    assert not faults(graph, wasteful, {})
    assert len(claims(graph, wasteful, [Witness(plan)])) == 5
    assert not claims(graph, plan, [Witness(plan)])


def _plan(tree: object):
    return decode_plan(json.dumps(tree).encode())
