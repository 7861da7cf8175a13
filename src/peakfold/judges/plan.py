"""The judges of a plan: what it says of a graph is derived anew, or called a claim.

Judge 2 plays the schedule through a model of memory (`interpret`): every byte a step reads must
hold the very value the graph means. Registry facts (which results may be views, which operands
may be overwritten) are taken from the rows, which tests prove one by one. Judge 1
(`peakfold.packing.violations`) checks the geometry. Nothing is shared with the planner.

How each field of a plan is judged stands in docs/explanation/judges.md. No plan makes a judge
raise anything but `InvalidPlan`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from peakfold.analysis.graph.alias_facts import op_facts
from peakfold.analysis.graph.workspace_profile import profiled
from peakfold.boundary import first_line
from peakfold.errors import InvalidPlan, UsageError
from peakfold.ir import Graph, effect_edges
from peakfold.ir.bindings import Bindings
from peakfold.judges.interpreter import Interpreter
from peakfold.judges.lanes import LanesJudge
from peakfold.judges.live_ranges import Lives
from peakfold.judges.placement import Places
from peakfold.judges.stated import bounds, inputs, scratch, statements
from peakfold.judges.verdict import LABELS, Case, Check, Claim, Given, Verdict
from peakfold.packing.problem import Problem
from peakfold.packing.verify import violations
from peakfold.planning.plan import SCHEMA, BodyPlan, Plan
from peakfold.target import load_target
from peakfold.transform import replay

__all__ = ["Check", "Claim", "Given", "Verdict", "judge_plan", "verify_plan", "work_graph"]


_RECIPE_LIMIT = 16


def verify_plan(graph: Graph, plan: Plan, given: Given | None = None) -> tuple[Check, ...]:
    """The checks of `judge_plan`.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import make_plan
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\n"
        ...                 "y: int8[64] = relu(x)\\noutput y")
        >>> all(check.ok for check in verify_plan(g, make_plan(g).plan))
        True
    """
    return judge_plan(graph, plan, given).checks


def judge_plan(graph: Graph, plan: Plan, given: Given | None = None) -> Verdict:
    """Judge a plan against the graph it claims to be for.

    Args:
        graph: as loaded with the plan's own bindings.
        plan: the plan.
        given: what else is known.

    Raises:
        InvalidPlan: the plan is for another model, or needs a step this version lacks.
    """
    try:
        case = _case(graph, plan, given or Given())
    except InvalidPlan:
        raise
    except Exception as error:  # the plan alone is at fault: its graph has been read
        raise InvalidPlan(f"it cannot be judged: {first_line(error)}") from None
    done: list[Check] = []
    for name, rule in _RULES:
        try:
            problem = rule(case)
        except Exception as error:  # no plan may stop a judge: what it cannot follow is wrong
            problem = f"it cannot be followed: {type(error).__name__}: {first_line(error)}"
        said = case.derived.get(name, _PASSED.get(name, ""))
        done.append(Check(name, problem is None, problem or said))
        if problem is not None:
            return Verdict(tuple(done), ())
    claims = case.claims | dict.fromkeys(LABELS, "a label; nothing rests on it")
    return Verdict(tuple(done), tuple(Claim(where, why) for where, why in claims.items()))


def work_graph(graph: Graph, plan: Plan) -> Graph:
    """The graph that a plan lays out: the model's, after the plan's recipe.

    Args:
        graph: as loaded with the plan's own bindings.
        plan: the plan.

    Raises:
        InvalidPlan: the plan is for another model, other shapes or another graph.
    """
    if plan.graph.source != graph.digest:
        raise InvalidPlan(
            f"the plan is for another model ({plan.graph.name!r}) or other shapes",
            hint="plan this model again",
        )
    if len(plan.recipe) > _RECIPE_LIMIT:
        raise InvalidPlan(f"its recipe has {len(plan.recipe)} steps")
    try:
        work = replay(graph, plan.recipe)
    except InvalidPlan:
        raise
    except Exception as error:  # the model has been read: what cannot be replayed is the recipe
        raise InvalidPlan(f"its recipe cannot be replayed: {first_line(error)}") from None
    if work.digest != plan.graph.digest:
        raise InvalidPlan("the recipe leads to another graph than the plan is for")
    return work


def _case(graph: Graph, plan: Plan, given: Given) -> Case:
    """Everything the rules look at.

    Raises:
        InvalidPlan: the plan is for another model, or for something unknown here.
    """
    if plan.schema != SCHEMA:
        raise InvalidPlan(f"its schema is {plan.schema!r}, not {SCHEMA!r}")
    work = work_graph(graph, plan)
    try:
        target = load_target(plan.target)
    except UsageError as error:
        raise InvalidPlan(str(error)) from None
    facts = tuple(profiled(op_facts(work, op, target), op, plan.profile) for op in work.ops)
    return Case(work, plan, target, facts, Places.of_plan(plan), given)


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


def _lifetimes(case: Case) -> str | None:
    return Lives.of(case.graph, case.plan).problem(case.plan)


def _values(case: Case) -> str | None:
    trace = None if case.plan.lanes == 1 else case.trace
    return Interpreter(case.graph, case.plan, case.facts, case.places, trace).run()


def _workspace(case: Case) -> str | None:
    """Scratch has a buffer of just its size, bodies and their slots included."""
    given = {buffer.op: buffer for buffer in case.plan.buffers if buffer.what == "workspace"}
    bodies = {(body.op, body.region): body.plan for body in case.plan.bodies}
    for at, op in enumerate(case.graph.ops):
        for number, region in enumerate(op.regions):
            if (at, number) not in bodies:
                return f"op {op.name!r} has a body {region.label!r} without a plan"
        arenas = [bodies[at, number].arena_bytes for number in range(len(op.regions))]
        need = scratch(case, at, arenas)
        have = given[at].size if at in given else 0
        if have != need:
            return f"op {op.name!r} needs {need} bytes of workspace, not {have}"
    return None


def _lanes(case: Case) -> str | None:
    return LanesJudge(case.graph, case.plan, case.trace).problem()


def _bodies(case: Case) -> str | None:
    seen: set[tuple[int, int]] = set()
    inner = Given(profile=case.given.profile, bindings=Bindings())
    for number, body in enumerate(case.plan.bodies):
        problem = _body_problem(case, body)
        if problem is None and (body.op, body.region) in seen:
            problem = f"region {body.region} of op {body.op} has two plans"
        if problem is not None:
            return problem
        seen.add((body.op, body.region))
        op = case.graph.ops[body.op]
        try:
            verdict = judge_plan(op.regions[body.region].graph, body.plan, inner)
        except InvalidPlan as error:
            return f"body of op {op.name!r}: {error}"
        for check in verdict.checks:
            if not check.ok:
                return f"body of op {op.name!r}: {check.detail}"
        for claim in verdict.claims:
            if claim.field not in LABELS:
                case.claims[f"bodies[{number}].plan.{claim.field}"] = claim.detail
    return None


def _body_problem(case: Case, body: BodyPlan) -> str | None:
    """Whether a body's plan is one that its op can hold."""
    graph, plan = case.graph, case.plan
    if body.op >= len(graph.ops):
        return f"a body is planned for op {body.op}, which does not exist"
    op, inner = graph.ops[body.op], body.plan
    if body.region >= len(op.regions):
        return f"op {op.name!r} has no body {body.region}"
    policies = inner.policies
    if (policies.inputs, policies.outputs) != case.target.body_policies:
        return f"a body of op {op.name!r} has its inputs or outputs where its target does not"
    if policies.align != plan.policies.align:
        return f"a body of op {op.name!r} has another alignment than its arena"
    if inner.target != plan.target:
        return f"a body of op {op.name!r} is planned for target {inner.target!r}"
    if inner.lanes != 1 or inner.mode != "arena" or inner.recipe:
        return f"a body of op {op.name!r} is planned for lanes, another mode or after a recipe"
    if inner.profile_digest != plan.profile_digest:
        return f"a body of op {op.name!r} was planned with another profile"
    return None


_Rule = Callable[[Case], str | None]
_RULES: tuple[tuple[str, _Rule], ...] = (
    ("inputs", inputs),
    ("order", _order),
    ("places", _places),
    ("packing", _packing),
    ("values", _values),
    ("lanes", _lanes),
    ("lifetimes", _lifetimes),
    ("workspace", _workspace),
    ("bodies", _bodies),
    ("statements", statements),
    ("bounds", bounds),
)
_PASSED = {
    "inputs": "model and recipe are those it was made from, target and numbers are known",
    "order": "a permutation that data and effects allow",
    "places": "every tensor has one place of its size where the policies want it",
    "packing": "no two live buffers share an address (judge 1)",
    "lifetimes": "every buffer has the size and the life that its tensors need",
    "values": "every step reads the values the graph means (judge 2)",
    "lanes": "no allowed run loses a value",
    "workspace": "known scratch is reserved",
    "bodies": "plans of control-flow bodies pass the same judges",
    "statements": "what it says of the graph is what the graph says",
}
