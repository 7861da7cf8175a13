"""The judges reject: every rule has a plan that breaks it and nothing else before it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from peakfold.errors import InvalidPlan
from peakfold.ir import parse_graph
from peakfold.judges.plan import verify_plan
from peakfold.judges.value_memory import Memory, Part
from peakfold.planning import Plan, PlanOptions, decode_plan, encode_plan, make_plan

replace = msgspec.structs.replace

GRAPH = parse_graph("""peakfold-graph 1
input x: uint8[8]
state v: uint8[8]
a: uint8[8] = opaque(x) writes=[v]
b: uint8[2,4] = reshape(a, shape=[2, 4])
c: uint8[8] = opaque(a) workspace=16 reads=[v]
d: uint8[8] = relu(c)
e: uint8[8] = opaque(d, b)
k: bool[] = opaque(e)
y: uint8[8] = if(k) begin
  region "then" captures=[e]
    input e: uint8[8]
    p: uint8[8] = opaque(e)
    t: uint8[8] = opaque(p)
    output t
  end
  region "else" captures=[e]
    input e: uint8[8]
    q: uint8[8] = opaque(e)
    output q
  end
end
output y
""")
PLAN = make_plan(GRAPH, PlanOptions(align=1)).plan


def find(plan: Plan, tensor: str) -> int:
    return next(n for n, b in enumerate(plan.buffers) if any(p.tensor == tensor for p in b.tensors))


def with_buffer(plan: Plan, at: int, **changes: object) -> Plan:
    buffers = list(plan.buffers)
    buffers[at] = replace(buffers[at], **changes)
    return replace(plan, buffers=buffers)


def swap(plan: Plan, one: int, two: int) -> Plan:
    order = list(plan.order)
    order[one], order[two] = order[two], order[one]
    return replace(plan, order=order)


def shorter(plan: Plan, tensor: str) -> Plan:
    at = find(plan, tensor)
    live = plan.buffers[at].live[0]
    return with_buffer(plan, at, live=[replace(live, stop=live.stop - 1)])


def without_alias(plan: Plan, output: str) -> Plan:
    return replace(plan, aliases=[a for a in plan.aliases if a.output != output])


def moved(plan: Plan, tensor: str, by: int) -> Plan:
    at = find(plan, tensor)
    return with_buffer(plan, at, offset=plan.buffers[at].offset + by)


def other_size(plan: Plan, tensor: str) -> Plan:
    at = find(plan, tensor)
    places = [replace(p, nbytes=p.nbytes - 1) for p in plan.buffers[at].tensors]
    return with_buffer(plan, at, tensors=places)


def body_moved(plan: Plan) -> Plan:
    body = plan.bodies[0]
    at = find(body.plan, "p")
    bad = with_buffer(body.plan, at, tensors=[])
    return replace(plan, bodies=[replace(body, plan=bad), *plan.bodies[1:]])


BROKEN: dict[str, tuple[str, Callable[[Plan], Plan]]] = {
    "an op twice": ("order", lambda p: replace(p, order=[0, *p.order[:-1]])),
    "data edge": ("order", lambda p: swap(p, 3, 4)),
    "effect edge": ("order", lambda p: replace(p, order=[2, 0, 1, *p.order[3:]])),
    "tensor without a place": ("places", lambda p: with_buffer(p, find(p, "e"), tensors=[])),
    "tensor too small": ("places", lambda p: other_size(p, "e")),
    "input in the arena": (
        "places",
        lambda p: replace(p, policies=replace(p.policies, inputs="reusable")),
    ),
    "arena too small": ("packing", lambda p: replace(p, arena_bytes=p.arena_bytes - 1)),
    "overlap": (
        "packing",
        lambda p: moved(p, "e", p.buffers[find(p, "c")].offset - p.buffers[find(p, "e")].offset),
    ),
    "stated life too short": ("lifetimes", lambda p: shorter(p, "a")),
    "in place unannounced": ("values", lambda p: without_alias(p, "d")),
    "view unannounced": ("values", lambda p: without_alias(p, "b")),
    "no workspace": (
        "workspace",
        lambda p: replace(p, buffers=[b for b in p.buffers if b.op != 2]),
    ),
    "no plan for a body": ("workspace", lambda p: replace(p, bodies=p.bodies[1:])),
    "body does not fit": ("bodies", body_moved),
    "bound above the arena": (
        "bounds",
        lambda p: replace(p, bound=replace(p.bound, any_order=p.arena_bytes + 1)),
    ),
    "more arena than buffers": ("packing", lambda p: replace(p, arena_bytes=p.arena_bytes + 1)),
    "scratch said to be known": ("statements", lambda p: replace(p, workspace_known=True)),
    "unsupported kinds invented": ("statements", lambda p: replace(p, unsupported={"warp": 3})),
    "a copy of no output": ("statements", lambda p: replace(p, copies=["zzz"])),
    "another mode": ("statements", lambda p: replace(p, mode="naive")),
    "workspace of no op": ("places", lambda p: with_buffer(p, 0, op=99)),
    "a body of no op": (
        "bodies",
        lambda p: replace(p, bodies=[*p.bodies, replace(p.bodies[0], op=99)]),
    ),
    "false proof": (
        "bounds",
        lambda p: replace(
            p, bound=replace(p.bound, offsets=1), proof=replace(p.proof, packing=True)
        ),
    ),
}


def test_the_plan_itself_passes_every_rule() -> None:
    checks = verify_plan(GRAPH, PLAN)
    assert all(check.ok for check in checks)
    assert {check.name for check in checks} >= {name for name, _ in BROKEN.values()}


@pytest.mark.req("R2", "R10", "R34")
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_plan_fails_the_rule_it_breaks(what: str) -> None:
    rule, mutate = BROKEN[what]
    failed = [check for check in verify_plan(GRAPH, mutate(PLAN)) if not check.ok]
    assert [check.name for check in failed] == [rule], failed


def test_another_models_plan_is_refused() -> None:
    other = parse_graph("peakfold-graph 1\ninput x: uint8[9]\ny: uint8[9] = relu(x)\noutput y")
    with pytest.raises(InvalidPlan, match="another model"):
        verify_plan(other, PLAN)


def test_plan_files_are_read_strictly() -> None:
    data = encode_plan(PLAN)
    assert decode_plan(data) == PLAN
    for broken, words in (
        (b"{", "not a plan"),
        (b"[]", "schema"),
        (data.replace(b"peakfold.plan/1", b"peakfold.plan/9"), "reads 'peakfold.plan/1'"),
        (data.replace(b'"arena_bytes":', b'"arena_bites":'), "arena_bites"),
        (data.replace(b'"order":[', b'"order":["x",'), r"\$.order"),
        (data.replace(b'"align":1', b'"align":0'), r"\$.policies.align"),
        (data.replace(b'"lane":[]', b'"lane":[-1]'), r"lane\[0\]"),
    ):
        with pytest.raises(InvalidPlan, match=words):
            decode_plan(broken)


def test_memory_remembers_what_each_byte_holds() -> None:
    memory = Memory()
    memory.write(0, 10, "a")
    memory.write(4, 3, "b")
    assert memory.wrong(0, Part("a", 0, 4)) is None
    assert memory.wrong(7, Part("a", 7, 3)) is None
    assert memory.wrong(0, Part("a", 0, 10)) == "b"
    assert memory.wrong(8, Part("a", 8, 4)) == "nothing"
    assert memory.wrong(7, Part("a", 6, 3)) == "a"  # the right value, one byte off
    memory.write(0, 10, "c")
    assert memory.wrong(0, Part("c", 0, 10)) is None
