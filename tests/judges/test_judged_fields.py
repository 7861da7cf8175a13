"""No plan is its own witness: every field of a plan is derived, checked or called a claim."""

from __future__ import annotations

import random
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peakfold.analysis.graph.workspace_profile import Profile, ProfiledOp
from peakfold.errors import InvalidPlan
from peakfold.ir import parse_graph
from peakfold.judges.plan import Given, Verdict, judge_plan
from peakfold.judges.reprove import reproved
from peakfold.judges.verdict import LABELS
from peakfold.planning import Plan, PlanOptions, decode_plan, make_plan
from peakfold.planning import plan as records
from tests.fuzzing.attack import Base, known_wrong, plan_base, told
from tests.planning.test_examples import EX6

from .test_verify import GRAPH, find, with_buffer

replace = msgspec.structs.replace
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "judges.md"
STRUCTS = [
    kind
    for kind in vars(records).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_fields__
]

BRANCHES = parse_graph("""peakfold-graph 1
input x: uint8[64]
parameter w: uint8[64]
a: uint8[64] = relu(x)
b: uint8[64] = relu(x)
v: uint8[8,8] = reshape(a, shape=[8, 8])
c: uint8[64] = opaque(v, w) workspace=32
d: uint8[64] = add(b, c)
e: uint8[32] = slice(d, starts=[0], ends=[32])
output d, e, x
""")
PROFILE = Profile(
    schema="peakfold.profile/1",
    target="generic",
    runtime="a board",
    model="m",
    ops=[ProfiledOp(op="d", operator="ADD", scratch_bytes=128)],
)
PLANS = {
    "bodies": (GRAPH, PlanOptions(align=1)),
    "serial": (BRANCHES, PlanOptions(align=16)),
    "profile": (BRANCHES, PlanOptions(profile=PROFILE)),
    "objects": (BRANCHES, PlanOptions(mode="both", inputs="reusable")),
    "naive": (BRANCHES, PlanOptions(mode="naive", outputs="external")),
    "lanes": (BRANCHES, PlanOptions(lanes=2, added_edges=1)),
    "free": (BRANCHES, PlanOptions(lanes=0, inputs="pinned")),
}


def judge(name: str, plan: Plan) -> Verdict:
    graph, options = PLANS[name]
    return judge_plan(graph, plan, Given(profile=options.profile))


def test_the_page_has_a_row_for_every_field() -> None:
    named = set(re.findall(r"`(\w+\.\w+)`", PAGE.read_text("utf-8")))
    assert named >= {
        f"{kind.__name__}.{field}" for kind in STRUCTS for field in kind.__struct_fields__
    }


@pytest.mark.parametrize("name", PLANS)
def test_sound_plans_are_valid_and_claim_no_more_than_labels_and_searched_bounds(name: str) -> None:
    graph, options = PLANS[name]
    verdict = judge(name, make_plan(graph, options).plan)
    assert verdict.ok, verdict
    searched = {"bound.offsets", "proof.packing"} if options.lanes != 1 else set()
    assert {c.field for c in verdict.claims} <= {*LABELS, *searched}


Path_ = tuple[str | int, ...]


def leaves(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Paths to everything in a plan's tree, containers too."""
    if path:
        yield path
    keys = range(len(value)) if isinstance(value, list) else value
    for key in keys if isinstance(value, dict | list) else ():
        yield from leaves(value[key], (*path, key))


def others(value: Any) -> list[Any]:
    """Values of the same type that are not this one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value + 64, max(value - 1, 0), 0, 2**61]
    if isinstance(value, str):
        return [f"{value}x", "", "generic", "arena", "share", "view", "inplace", "external"]
    if isinstance(value, list):
        return [[], value[1:], value[:-1], value + value[:1], value[::-1]]
    if isinstance(value, dict):
        return [{}, {**value, "more": 1}]
    return [0, "x", []]


def changed(tree: Any, path: Path_, value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


def refuted(name: str, plan: Plan, claims: set[str]) -> list[str]:
    """What the independent oracle of the fuzzers finds wrong, short of what is only claimed."""
    found = known_wrong(base_of(name), plan)
    return [fault.text for fault in found if not told(fault, sorted(claims))]


@cache
def base_of(name: str) -> Base:
    graph, options = PLANS[name]
    return plan_base(name, graph, options)


@pytest.mark.parametrize("name", PLANS)
def test_a_field_changed_alone_is_refused_claimed_or_without_harm(name: str) -> None:
    tree = msgspec.to_builtins(make_plan(*PLANS[name]).plan)
    for path in leaves(tree):
        value = tree
        for key in path:
            value = value[key]
        for other in others(value):
            if other != value:
                assert_not_believed(name, changed(tree, path, other))


def assert_not_believed(name: str, tree: Any) -> None:
    """A mutant is refused, or the oracle finds nothing false in it that is not called a claim."""
    try:
        plan = decode_plan(msgspec.json.encode(tree))
        verdict = judge(name, plan)
    except InvalidPlan:
        return
    claims = {claim.field for claim in verdict.claims}
    assert not verdict.ok or not refuted(name, plan, claims), tree


@pytest.mark.parametrize("name", PLANS)
def test_fields_changed_in_pairs_are_not_believed(name: str) -> None:
    rng = random.Random(name)
    tree = msgspec.to_builtins(make_plan(*PLANS[name]).plan)
    paths = list(leaves(tree))
    for one, two in rng.sample(list(combinations(paths, 2)), 250):
        mutant = tree
        for path in (one, two):
            try:
                value = mutant
                for key in path:
                    value = value[key]
            except (KeyError, IndexError, TypeError):
                continue  # the first change took it away
            mutant = changed(mutant, path, rng.choice(others(value)))
        assert_not_believed(name, mutant)


def test_the_kinds_of_the_fields_are_walked() -> None:
    def kinds(hint: Any) -> Iterator[type]:
        for part in typing.get_args(hint):
            yield from kinds(part)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield hint

    seen, stack = set(), [Plan]
    while stack:
        kind = stack.pop()
        if kind not in seen:
            seen.add(kind)
            hints = typing.get_type_hints(kind, vars(records) | vars(types))
            stack += [found for hint in hints.values() for found in kinds(hint)]
    assert seen == set(STRUCTS)


# Witnesses of what earlier judges believed.


def wasteful() -> Plan:
    """Nothing shared, and everything called proven."""
    plan = make_plan(BRANCHES, PlanOptions(align=1)).plan
    at, buffers = 0, []
    for buffer in plan.buffers:
        buffers.append(replace(buffer, offset=at))
        at += buffer.size
    bound = records.Bound(offsets=at, objects=at, any_order=at)
    proof = records.Proof(packing=True, order=True)
    return replace(plan, buffers=buffers, arena_bytes=at, bound=bound, proof=proof)


def test_a_wasteful_plan_that_calls_itself_proven_is_not_believed() -> None:
    verdict = judge_plan(BRANCHES, wasteful())
    assert {"bound.offsets", "bound.any_order", "proof.packing", "proof.order"} <= {
        claim.field for claim in verdict.claims
    }
    (bounds,) = [check for check in verdict.checks if check.name == "bounds"]
    assert "proof" not in bounds.detail
    fields = [claim.field for claim in verdict.claims]
    assert reproved(BRANCHES, wasteful(), fields, seconds=1) == ()


def test_a_life_may_not_be_stretched_to_raise_the_bound() -> None:
    plan = wasteful()
    steps = len(plan.order) + 1
    buffers = [
        replace(b, live=[replace(p, start=0, stop=steps) for p in b.live]) for b in plan.buffers
    ]
    failed = [c for c in judge_plan(BRANCHES, replace(plan, buffers=buffers)).checks if not c.ok]
    assert [check.name for check in failed] == ["lifetimes"]


@pytest.mark.parametrize("tensor", ["a", "b", "c"])
def test_no_result_moves_out_of_the_arena(tensor: str) -> None:
    plan = make_plan(BRANCHES, PlanOptions(align=1, inplace=False, views=False)).plan
    at = find(plan, tensor)
    gone = records.ExternalBuffer(tensors=plan.buffers[at].tensors)
    buffers = [b for number, b in enumerate(plan.buffers) if number != at]
    top = max(b.offset + b.size for b in buffers)
    moved = replace(
        plan,
        buffers=buffers,
        external=[*plan.external, gone],
        arena_bytes=top,
        bound=replace(plan.bound, offsets=0, any_order=0),
        proof=records.Proof(packing=False, order=False),
    )
    (failed,) = [c for c in judge_plan(BRANCHES, moved).checks if not c.ok]
    assert failed.name == "places"
    assert "nobody keeps" in failed.detail


def test_two_inputs_are_not_one_memory() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: uint8[8]\ninput y: uint8[8]\nz: uint8[8] = add(x, y)\noutput z"
    )
    plan = make_plan(graph).plan
    both = [place for external in plan.external for place in external.tensors]
    merged = replace(plan, external=[records.ExternalBuffer(tensors=both)])
    (failed,) = [c for c in judge_plan(graph, merged).checks if not c.ok]
    assert failed.name == "places"


def test_lanes_are_judged_by_bytes_and_not_by_what_the_plan_says_of_them() -> None:
    """Two branches in the bytes of one buffer, with no alias between them."""
    plan = make_plan(BRANCHES, PlanOptions(align=1, lanes=0, inplace=False, views=False)).plan
    one, two = find(plan, "a"), find(plan, "b")
    place = plan.buffers[two].tensors[0]
    joined = with_buffer(plan, one, tensors=[*plan.buffers[one].tensors, place])
    joined = replace(joined, buffers=[b for n, b in enumerate(joined.buffers) if n != two])
    (failed,) = [c for c in judge_plan(BRANCHES, joined).checks if not c.ok]
    assert failed.name in ("values", "lanes")


def test_a_profile_is_an_input_of_the_check() -> None:
    plan = make_plan(BRANCHES, PlanOptions(profile=PROFILE)).plan
    assert plan.profile_digest == PROFILE.digest
    assert judge_plan(BRANCHES, plan, Given(profile=PROFILE)).ok
    other = msgspec.structs.replace(PROFILE, ops=[])
    assert not judge_plan(BRANCHES, plan, Given(profile=other)).ok
    unknown = judge_plan(BRANCHES, plan)
    assert unknown.ok
    assert {"profile", "profile_digest"} <= {claim.field for claim in unknown.claims}
    low = make_plan(BRANCHES, PlanOptions(profile=_scratch_of("c", 0))).plan
    (failed,) = [c for c in judge_plan(BRANCHES, low).checks if not c.ok]
    assert "--profile" in failed.detail  # the graph states 32 bytes


def _scratch_of(op: str, nbytes: int) -> Profile:
    ops = [ProfiledOp(op=op, operator=op, scratch_bytes=nbytes)]
    return Profile(schema="peakfold.profile/1", target="generic", runtime="", model="", ops=ops)


def test_a_body_is_planned_for_its_own_target_once() -> None:
    plan = make_plan(GRAPH, PlanOptions(align=1)).plan
    body = plan.bodies[0]
    for bad in (
        [replace(body, plan=replace(body.plan, target="mxnet")), *plan.bodies[1:]],
        [*plan.bodies, body],
    ):
        (failed,) = [c for c in judge_plan(GRAPH, replace(plan, bodies=bad)).checks if not c.ok]
        assert failed.name == "bodies"


@pytest.mark.parametrize(
    "recipe",
    [
        ["split 9 zzz"],
        ["split 99999999999999999999 y"],
        ["fold"] * 99,
        ["train optimizer=["],
        ["split ² y"],
    ],
)
def test_a_recipe_that_cannot_be_replayed_is_the_plans_fault(recipe: list[str]) -> None:
    with pytest.raises(InvalidPlan):
        judge_plan(GRAPH, replace(make_plan(GRAPH).plan, recipe=recipe))


def test_searched_bounds_are_derived_again_on_request() -> None:
    plan = make_plan(EX6, PlanOptions(lanes=0)).plan
    claims = [claim.field for claim in judge_plan(EX6, plan).claims]
    assert "bound.offsets" in claims
    assert "bound.offsets" in reproved(EX6, plan, claims, seconds=2)


CHAIN = parse_graph(
    "peakfold-graph 1\ninput x: int8[64]\na: int8[64] = foo(x)\n"
    "b: int8[64] = foo(a)\nc: int8[64] = foo(b)\noutput c"
)


@pytest.mark.parametrize("mode", ["arena", "naive", "share", "both"])
@pytest.mark.parametrize("in_time", [False, True])
def test_what_nothing_joins_is_not_one_buffer(mode: str, in_time: bool) -> None:
    """Side by side, or after each other in the same bytes: no bound and no mode may count it so."""
    plan = make_plan(CHAIN, PlanOptions(align=1)).plan
    places, live, at = [], [], 0
    for buffer in plan.buffers:
        start = buffer.offset if in_time else at
        places += [replace(place, offset=start) for place in buffer.tensors]
        live += [replace(p, lower=start, upper=start + buffer.size) for p in buffer.live]
        at += buffer.size
    size = plan.arena_bytes if in_time else at
    obj = None if mode == "arena" else 0
    one = records.PlannedBuffer(
        what="tensor", offset=0, size=size, live=live, tensors=places, object=obj
    )
    bound = replace(plan.bound, objects=size)
    merged = replace(
        plan,
        mode=mode,
        buffers=[one],
        arena_bytes=size,
        bound=bound,
        proof=records.Proof(packing=mode != "arena", order=False),
    )
    failed = [c.name for c in judge_plan(CHAIN, merged).checks if not c.ok]
    assert failed == ["statements"]


def test_a_result_outside_the_arena_reaches_out_of_nothing() -> None:
    graph = parse_graph(
        'peakfold-graph 1\ninput x: uint8[12]\ny: uint8[12] = opaque(x) overlap=["0-5"]\noutput y'
    )
    options = PlanOptions(align=1, inputs="reusable", outputs="external")
    plan = make_plan(graph, options).plan
    wasteful = replace(
        plan,
        buffers=[replace(plan.buffers[0], offset=5)],
        arena_bytes=17,
        bound=replace(plan.bound, any_order=17),
        proof=records.Proof(packing=False, order=True),
    )
    assert "proof.order" in {claim.field for claim in judge_plan(graph, wasteful).claims}


def test_a_recipe_makes_no_more_than_can_be_judged() -> None:
    graph = parse_graph(
        "peakfold-graph 1\ninput x: int8[1,2,1000000,8]\n"
        "parameter w: int8[2,2,3,3]\n"
        "y: int8[1,2,1000000,8] = conv(x, w, pads=[1,1,1,1])\n"
        "output y"
    )
    plan = replace(make_plan(graph).plan, recipe=["split 1000000 y"])
    with pytest.raises(InvalidPlan, match="more than"):
        judge_plan(graph, plan)
