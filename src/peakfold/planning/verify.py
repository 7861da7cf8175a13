"""Judge 2: a plan against its graph, by playing the schedule through a model of memory.

Nothing here is shared with the planner: lifetimes are derived anew, and every byte a step
reads must hold the very value the graph means. Registry facts (which results may be views,
which operands may be overwritten) are taken from the rows, which tests prove one by one.
Judge 1 (`peakfold.packing.violations`) checks the geometry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from peakfold.analysis.facts import Facts, op_facts, unsupported
from peakfold.analysis.index import is_opaque
from peakfold.analysis.profile import profiled
from peakfold.analysis.regions import slot_bytes
from peakfold.errors import InvalidPlan, UsageError
from peakfold.interval import Interval, union
from peakfold.ir import Graph, effect_edges
from peakfold.packing.problem import Problem
from peakfold.packing.verify import violations
from peakfold.planning.interpret import Interpreter
from peakfold.planning.places import Places
from peakfold.planning.plan import SCHEMA, Plan
from peakfold.planning.verify_lanes import LanesJudge
from peakfold.target import load_target
from peakfold.transform import replay
from peakfold.units import round_up


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict on one rule: `detail` says what was checked, or what is wrong and where."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A plan and the graph it is judged against, with what several rules look up."""

    graph: Graph
    plan: Plan
    facts: tuple[Facts, ...]
    places: Places


def verify_plan(graph: Graph, plan: Plan) -> tuple[Check, ...]:
    """Judge a plan against the graph it claims to be for.

    Args:
        graph: as loaded with the plan's own bindings.
        plan: the plan.

    Returns:
        One check per rule, in the order they were made; a broken one ends the list, since
        later rules would judge nonsense.

    Raises:
        InvalidPlan: the plan is for another model, or needs a step this version lacks.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import make_plan
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\n"
        ...                 "y: int8[64] = relu(x)\\noutput y")
        >>> all(check.ok for check in verify_plan(g, make_plan(g).plan))
        True
    """
    if plan.schema != SCHEMA:
        raise InvalidPlan(f"its schema is {plan.schema!r}, not {SCHEMA!r}")
    if plan.graph.source != graph.digest:
        raise InvalidPlan(
            f"the plan is for another model ({plan.graph.name!r}) or other shapes",
            hint="plan this model again",
        )
    work = replay(graph, plan.recipe)
    if work.digest != plan.graph.digest:
        raise InvalidPlan("the recipe leads to another graph than the plan is for")
    try:
        target = load_target(plan.target)
    except UsageError as error:
        raise InvalidPlan(str(error)) from None
    facts = tuple(profiled(op_facts(work, op, target), op, plan.profile) for op in work.ops)
    case = Case(work, plan, facts, Places.of_plan(plan))
    done: list[Check] = []
    for name, rule in _RULES:
        problem = rule(case)
        done.append(Check(name, problem is None, problem or _PASSED[name]))
        if problem is not None:
            break
    return tuple(done)


def _order(case: Case) -> str | None:
    graph, plan = case.graph, case.plan
    if sorted(plan.order) != list(range(len(graph.ops))):
        return f"the order is no permutation of the {len(graph.ops)} ops"
    step = {op: at for at, op in enumerate(plan.order)}
    for at, op in enumerate(graph.ops):
        for name in op.operands:
            maker = graph.producer.get(name)
            if maker is not None and step[maker] >= step[at]:
                return f"op {op.name!r} runs before {name!r}, which it reads, is made"
    for before, after in effect_edges(graph):
        if step[before] > step[after]:
            return f"op {graph.ops[after].name!r} overtakes {graph.ops[before].name!r}"
    return None


def _places(case: Case) -> str | None:
    return case.places.problem(case.graph, case.plan)


def _packing(case: Case) -> str | None:
    plan = case.plan
    problem = _geometry(plan)
    found = violations(problem, [buffer.offset for buffer in plan.buffers])
    if found:
        return found[0].message
    top = max((b.offset + b.size for b in plan.buffers), default=0)
    if top != plan.arena_bytes:
        return f"the last buffer ends at {top}, the arena at {plan.arena_bytes} bytes"
    return None


def _geometry(plan: Plan) -> Problem:
    live = [piece for buffer in plan.buffers for piece in buffer.live]
    return Problem.of_pieces(
        size=[buffer.size for buffer in plan.buffers],
        first=np.cumsum([0, *(len(buffer.live) for buffer in plan.buffers)]),
        start=[piece.start for piece in live],
        stop=[piece.stop for piece in live],
        lower=[piece.lower for piece in live],
        upper=[piece.upper for piece in live],
        align=plan.policies.align,
    )


def _values(case: Case) -> str | None:
    return Interpreter(case.graph, case.plan, case.facts, case.places).run()


def _lifetimes(case: Case) -> str | None:
    """Every use of a tensor lies in the bytes and steps its buffer says are live."""
    plan = case.plan
    needed = _needed(case)
    for buffer in plan.buffers:
        if buffer.what != "tensor":
            continue
        for place in buffer.tensors:
            life = needed[place.tensor]
            window = Interval(place.offset, place.offset + place.nbytes)
            cuts = {window.start, window.stop}
            cuts |= {e for p in buffer.live for e in (p.lower, p.upper)
                     if window.start < e < window.stop}  # fmt: skip
            edges = sorted(cuts)
            for low in edges[:-1]:
                spans = [Interval(p.start, p.stop) for p in buffer.live if p.lower <= low < p.upper]
                if not any(span.contains(life) for span in union(spans)):
                    return f"tensor {place.tensor!r} is used outside its buffer's stated life"
    return None


def _needed(case: Case) -> dict[str, Interval]:
    """Steps during which each tensor must exist."""
    graph, plan = case.graph, case.plan
    copies = any(buffer.what == "copy" for buffer in plan.buffers)
    steps = max(len(plan.order) + copies, 1)
    born = dict.fromkeys(graph.inputs, 0)
    last = dict.fromkeys(graph.inputs, 0)
    for step, at in enumerate(plan.order):
        for name in graph.ops[at].results:
            born[name] = last[name] = step
        for name in graph.ops[at].operands:
            last[name] = step
    kept = set(graph.outputs) | (set(graph.inputs) if plan.policies.inputs == "pinned" else set())
    return {
        name: Interval(start, steps if name in kept else last[name] + 1)
        for name, start in born.items()
    }


def _workspace(case: Case) -> str | None:
    """Known scratch has a buffer, for the step of its op, large enough for bodies too."""
    graph, plan = case.graph, case.plan
    align = plan.policies.align
    given = {buffer.op: buffer for buffer in plan.buffers if buffer.what == "workspace"}
    bodies = {(body.op, body.region): body.plan for body in plan.bodies}
    for step, at in enumerate(plan.order):
        op = graph.ops[at]
        need = case.facts[at].workspace or 0
        for number, region in enumerate(op.regions):
            body = bodies.get((at, number))
            if body is None:
                return f"op {op.name!r} has a body {region.label!r} without a plan"
            inside = round_up(body.arena_bytes, align) + slot_bytes(op, region, align)
            need = max(need, inside)
        have = given.get(at)
        if need and (have is None or have.size < need):
            return f"op {op.name!r} needs {need} bytes of workspace"
        if have is not None and not any(
            p.start <= step < p.stop and p.lower == 0 and p.upper >= need for p in have.live
        ):
            return f"the workspace of op {op.name!r} is not alive when it runs"
    return None


def _lanes(case: Case) -> str | None:
    return LanesJudge(case.graph, case.plan).problem()


def _bodies(case: Case) -> str | None:
    graph, plan = case.graph, case.plan
    for body in plan.bodies:
        if body.op >= len(graph.ops):
            return f"a body is planned for op {body.op}, which does not exist"
        op = graph.ops[body.op]
        if not 0 <= body.region < len(op.regions):
            return f"op {op.name!r} has no body {body.region}"
        policies = body.plan.policies
        if (policies.inputs, policies.outputs) != ("external", "external"):
            return f"a body of op {op.name!r} may overwrite what it does not own"
        if policies.align != plan.policies.align:
            return f"a body of op {op.name!r} has another alignment than its arena"
        try:
            checks = verify_plan(op.regions[body.region].graph, body.plan)
        except InvalidPlan as error:
            return f"body of op {op.name!r}: {error}"
        for check in checks:
            if not check.ok:
                return f"body of op {op.name!r}: {check.detail}"
    return None


def _bounds(case: Case) -> str | None:
    """Claims about optimality follow from figures that are derived anew here."""
    plan = case.plan
    events: dict[int, int] = {}
    for buffer in plan.buffers:
        for piece in buffer.live:
            height = piece.upper - piece.lower
            events[piece.start] = events.get(piece.start, 0) + height
            events[piece.stop] = events.get(piece.stop, 0) - height
    load = peak = 0
    for step in sorted(events):
        load += events[step]
        peak = max(peak, load)
    said = _statement_problem(case)
    if said is not None:
        return said
    if peak > plan.arena_bytes:
        return f"{peak} bytes are alive at once, more than the arena's {plan.arena_bytes}"
    if max(plan.bound.offsets, plan.bound.any_order) > plan.arena_bytes:
        return "a stated lower bound is above the arena"
    family = plan.bound.offsets if plan.mode == "arena" else plan.bound.objects
    if plan.proof.packing and plan.arena_bytes != family:
        return f"the packing is called minimal, but the bound is {family}"
    if plan.proof.order and plan.arena_bytes != plan.bound.any_order:
        return f"the order is called optimal, but the bound is {plan.bound.any_order}"
    return None


def _statement_problem(case: Case) -> str | None:
    """What a plan says of its graph is what the graph says."""
    graph, plan = case.graph, case.plan
    scratch = [
        fact.workspace is not None or bool(op.regions)
        for op, fact in zip(graph.ops, case.facts, strict=True)
    ]
    known = all(scratch) and all(body.plan.workspace_known for body in plan.bodies)
    if plan.workspace_known != known:
        return f"it says that all scratch is {'' if plan.workspace_known else 'not '}known"
    if plan.unsupported != unsupported(graph):
        return "its list of unsupported kinds is not the graph's"
    if sorted(plan.opaque) != sorted(t.name for t in graph.tensors if is_opaque(t)):
        return "its list of tensors without a size is not the graph's"
    if not set(plan.copies) <= set(graph.outputs):
        return "it copies a tensor that is no output"
    family = all(buffer.object is None for buffer in plan.buffers)
    if plan.buffers and family != (plan.mode == "arena"):
        return f"its buffers are not those of mode {plan.mode!r}"
    for alias in plan.aliases:
        if graph.producer.get(alias.output) != alias.op:
            return f"it says that op {alias.op} makes {alias.output!r}"
    return None


_Rule = Callable[[Case], str | None]
_RULES: tuple[tuple[str, _Rule], ...] = (
    ("order", _order),
    ("places", _places),
    ("packing", _packing),
    ("lifetimes", _lifetimes),
    ("values", _values),
    ("lanes", _lanes),
    ("workspace", _workspace),
    ("bodies", _bodies),
    ("bounds", _bounds),
)
_PASSED = {
    "order": "a permutation that data and effects allow",
    "places": "every tensor has one place of its size where the policies want it",
    "packing": "no two live buffers share an address (judge 1)",
    "lifetimes": "every use lies in its buffer's stated life",
    "values": "every step reads the values the graph means (judge 2)",
    "lanes": "no allowed run loses a value",
    "workspace": "known scratch is reserved",
    "bodies": "plans of control-flow bodies pass the same judges",
    "bounds": "stated bounds and proofs agree with the plan",
}
