"""What a plan states beside its layout: of its inputs, of the graph, and of how good it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from peakfold.analysis.graph.alias_facts import Facts, op_facts
from peakfold.analysis.graph.index import is_opaque
from peakfold.analysis.graph.region_slots import slot_bytes
from peakfold.interval import Interval
from peakfold.judges.bounds import any_order_bound, load_bound, objects_bound
from peakfold.judges.live_ranges import Lives
from peakfold.judges.verdict import Case
from peakfold.ops.doubts import unsupported
from peakfold.planning.plan import Plan
from peakfold.units import round_up


def inputs(case: Case) -> str | None:
    """What the plan was made from: bindings and a profile are inputs of the check, too."""
    plan, given = case.plan, case.given
    record = plan.bindings
    for name, said, found in (
        ("name", plan.graph.name, case.graph.name),
        ("format", plan.graph.format, case.graph.source),
    ):
        if said != found:  # a model may be renamed, or written in another form
            case.claims[f"graph.{name}"] = f"{said!r}; here it is {found!r}"
    if given.bindings is not None:
        shapes = {name: str(shape) for name, shape in given.bindings.shapes.items()}
        if (record.dims, record.shapes) != (dict(given.bindings.dims), shapes):
            return "its bindings are not those that the model was loaded with"
    elif record.dims or record.shapes:
        case.claims["bindings"] = "the graph was given, not loaded with them"
    return _profile_problem(case)


def _profile_problem(case: Case) -> str | None:
    plan, profile = case.plan, case.given.profile
    if not plan.profile and plan.profile_digest is None:
        return None
    ops = {op.name: op for op in case.graph.ops}
    if profile is not None:
        measured = {name: size for name, size in profile.workspace.items() if name in ops}
        if plan.profile_digest not in (None, profile.digest) or plan.profile != measured:
            return "it was made with another profile"
        return None
    strangers = [name for name in plan.profile if name not in ops]
    if strangers:
        return f"it states measured scratch of {strangers[0]!r}, which is no op of the graph"
    for name, size in plan.profile.items():
        rule = op_facts(case.graph, ops[name], case.target).workspace
        if rule is not None and size < rule and not ops[name].regions:
            return (
                f"op {name!r} needs {rule} bytes of scratch, and {size} by a profile that is not "
                "at hand: give it with --profile"
            )
    case.claims["profile"] = f"scratch of {len(plan.profile)} ops: give the profile (--profile)"
    case.claims["profile_digest"] = "as for profile"
    return None


def scratch(case: Case, at: int, arenas: list[int]) -> int:
    """Padded scratch of an op whose bodies have arenas of so many bytes."""
    op, align = case.graph.ops[at], case.plan.policies.align
    need = case.facts[at].workspace or 0
    for arena, region in zip(arenas, op.regions, strict=True):
        need = max(need, round_up(arena, align) + slot_bytes(op, region, align, case.target))
    return round_up(need, align)


def bounds(case: Case) -> str | None:
    """Claims about optimality follow from figures that are derived anew, or are named as claims."""
    plan, lives = case.plan, Lives.of(case.graph, case.plan)
    load = load_bound(plan, lives)
    if load > plan.arena_bytes:
        return f"{load} bytes are alive at once, more than the arena's {plan.arena_bytes}"
    if max(plan.bound.offsets, plan.bound.any_order) > plan.arena_bytes:
        return "a stated lower bound is above the arena"
    in_arena = plan.mode == "arena"
    family = plan.bound.offsets if in_arena else plan.bound.objects
    if family > plan.arena_bytes:
        return "a stated lower bound is above the objects"
    if plan.proof.packing and plan.arena_bytes != family:
        return f"the packing is called minimal, but the bound is {family}"
    if plan.proof.order and plan.arena_bytes != plan.bound.any_order:
        return f"the order is called optimal, but the bound is {plan.bound.any_order}"
    derived = {
        "offsets": load,
        "objects": objects_bound(plan, lives),
        "any_order": any_order_bound(case.graph, plan, _least(case)),
    }
    for name, known in derived.items():
        stated = getattr(plan.bound, name)
        if known is None or stated > known:
            why = "too many buffers to derive it" if known is None else f"{known} was derived"
            case.claims[f"bound.{name}"] = f"{stated} bytes; {why}"
    shown = "bound.offsets" if in_arena else "bound.objects"
    for proof, bound in (("packing", shown), ("order", "bound.any_order")):
        if getattr(plan.proof, proof) and bound in case.claims:
            case.claims[f"proof.{proof}"] = f"it rests on {bound}"
    fields = [*(f"bound.{name}" for name in derived), "proof.packing", "proof.order"]
    found = [name for name in fields if name not in case.claims]
    case.derived["bounds"] = f"derived again: {', '.join(found) or 'none'}"
    return None


def _least(case: Case) -> list[Facts]:
    """Facts with what bodies need at the least: by bounds that were derived, not by their plans."""
    floors = {
        (body.op, body.region): (
            0
            if f"bodies[{number}].plan.bound.any_order" in case.claims
            else body.plan.bound.any_order
        )
        for number, body in enumerate(case.plan.bodies)
    }
    found = list(case.facts)
    for at, op in enumerate(case.graph.ops):
        if op.regions:
            arenas = [floors[at, number] for number in range(len(op.regions))]
            found[at] = replace(found[at], workspace=scratch(case, at, arenas))
    return found


def statements(case: Case) -> str | None:
    """What a plan says of its graph is what the graph says."""
    graph, plan = case.graph, case.plan
    sized = [
        fact.workspace is not None or bool(op.regions)
        for op, fact in zip(graph.ops, case.facts, strict=True)
    ]
    known = all(sized) and all(body.plan.workspace_known for body in plan.bodies)
    if plan.workspace_known != known:
        return f"it says that all scratch is {'' if plan.workspace_known else 'not '}known"
    if plan.unsupported != unsupported(graph):
        return "its list of unsupported kinds is not the graph's"
    if plan.doubts != list(graph.doubts):
        return "its list of what is doubtful is not the graph's"
    if plan.doubtful and any(proven(plan)):
        return "it calls something proven of a graph that is doubtful"
    if sorted(plan.opaque) != sorted(t.name for t in graph.tensors if is_opaque(t)):
        return "its list of tensors without a size is not the graph's"
    if (problem := _copies_problem(case)) is not None:
        return problem
    for alias in plan.aliases:
        if graph.producer.get(alias.output) != alias.op:
            return f"it says that op {alias.op} makes {alias.output!r}"
        if alias.output not in case.places.of:
            return f"it lays {alias.output!r} into {alias.input!r}, and it has no place"
    return _mode_problem(plan) or _sharing_problem(plan)


def _sharing_problem(plan: Plan) -> str | None:
    """Tensors are in one buffer only where aliases join them.

    What merely lies side by side would be one object in the bound of shared objects, and one
    result of a mode that shares nothing.
    """
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while name != root.setdefault(name, name):
            root[name] = root[root[name]]
            name = root[name]
        return name

    for alias in plan.aliases:
        root[find(alias.output)] = find(alias.input)
    held = [buffer.tensors for buffer in plan.buffers] + [one.tensors for one in plan.external]
    for places in held:
        names = [place.tensor for place in places]
        apart = next((name for name in names if find(name) != find(names[0])), None)
        if apart is not None:
            return f"{names[0]!r} and {apart!r} are in one buffer, and nothing joins them"
    return None


def proven(plan: Plan) -> Iterator[bool]:
    """What a plan calls proven, of itself and of its bodies."""
    yield from (plan.proof.packing, plan.proof.order)
    for body in plan.bodies:
        yield from proven(body.plan)


def _copies_problem(case: Case) -> str | None:
    """Copied outputs: those that a step behind the last op copies, and views laid out apart."""
    graph, plan = case.graph, case.plan
    missing = set(case.places.copies) - set(plan.copies)
    if missing or len(set(plan.copies)) != len(plan.copies):
        return "its list of copied outputs is not that of its copies"
    shown = {alias.output for alias in plan.aliases if alias.how == "view"}
    for name in set(plan.copies) - set(case.places.copies):
        maker = graph.producer.get(name)
        op = None if maker is None else graph.ops[maker]
        views = () if maker is None else case.facts[maker].views
        is_view = op is not None and any(op.outputs[view.output] == name for view in views)
        if name not in graph.outputs or not is_view or name in shown:
            return f"it says that output {name!r} is copied"
    return None


def _mode_problem(plan: Plan) -> str | None:
    """Objects are stated just where the mode shares them, one place each."""
    mode = plan.mode
    if any((buffer.object is None) != (mode == "arena") for buffer in plan.buffers):
        return f"its buffers are not those of mode {mode!r}"
    if mode in ("naive", "share") and plan.aliases:
        return f"mode {mode!r} lays no tensor into another"
    objects: dict[int, Interval] = {}
    for buffer in plan.buffers if mode != "arena" else ():
        number = buffer.object or 0
        place = Interval(buffer.offset, buffer.offset + buffer.size)
        if number in objects and (mode in ("naive", "inplace")):
            return f"mode {mode!r} has two buffers in object {number}"
        have = objects.setdefault(number, place)
        if have.start != place.start:
            return f"object {number} has two addresses"
        objects[number] = have.hull(place)
    held = sorted(place for place in objects.values() if place.length)
    for one, two in pairwise(held):
        if one.overlaps(two):
            return "two objects share an address"
    return None
