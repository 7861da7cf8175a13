"""A plan as edits of the file it was made for: the bridge between graph names and file indices."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from peakfold.errors import InvalidPlan
from peakfold.frontends.tflite.file import read_tflite
from peakfold.frontends.tflite.names import Names, names_of_model
from peakfold.ir import Graph
from peakfold.planning import Plan
from peakfold.runtimes.tflite.allocator import ONLINE, loose_bytes, predict
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.patches import Growth, growth
from peakfold.runtimes.tflite.rewrite import Edit, Where, rewrite_all
from peakfold.runtimes.tflite.schema import Model, offline_offsets, parse_model, read_model
from peakfold.runtimes.tflite.scratch import known_scratch
from peakfold.transform import replay

TARGETS = ("tflm", "tflm-cmsis")
"""Whose plans a file can carry."""


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """A file that carries a plan.

    Attributes:
        data: its bytes.
        head: bytes of the arena head it will need, by the model of the allocator.
        plain: the file with the same constants folded, and no plan.
        unplanned: bytes of its head.
        obeys: whether it carries the plan; false when the interpreter's own is no worse, so that
            the file was left as the interpreter would have it.
        whole: whether the plan's arena is that head; false when the file leaves a tensor of the
            plan to the interpreter, or holds tensors that no run uses and that take more.
    """

    data: bytes
    head: int
    plain: bytes
    unplanned: int
    obeys: bool
    whole: bool = False


def apply_plan(path: Path, graph: Graph, plan: Plan) -> Applied:
    """Write a plan into its model's file.

    Args:
        path: the file.
        graph: as loaded from it, with the plan's bindings.
        plan: one that the judges passed.

    Raises:
        InvalidPlan: the plan asks for what a file cannot say.
        ModelError: the file holds what cannot be carried over.
        RunFailed: an operator to be folded cannot be computed here.
    """
    _check(plan)
    made = _Recipe.of(path, graph, plan.recipe)
    data = read_model(path)
    offsets = _offsets(plan, made.names)
    edits = [
        Edit(order=_kept(made.whole, made.names), offsets={}),
        Edit(order=_order(made.work, plan, made.names), offsets=offsets, added=made.added),
    ]
    plain, planned = rewrite_all(data, edits, str(path))
    model = parse_model(planned)
    before = _head(parse_model(plain), plan.target)
    after = _head(model, plan.target)
    whole = _count(plan) == _placed_by(model) and loose_bytes(predict(model)) <= plan.arena_bytes
    if after > before or not (whole or _sound(planned, plan.target)):
        return Applied(plain, before, plain, before, obeys=False)
    return Applied(planned, after, plain, before, obeys=True, whole=whole)


def after_recipe(path: Path, graph: Graph, recipe: Sequence[str]) -> Model:
    """The file's model after the graph steps of a recipe, planned by nobody.

    Args:
        path: the file.
        graph: as loaded from it.
        recipe: steps, as plans record them.

    Raises:
        InvalidPlan: the steps make ops that no operator of the file can do.
        ModelError: the file holds what cannot be carried over.
        RunFailed: an operator to be folded cannot be computed here.
    """
    return parse_model(_after(path, graph, recipe, planned=False))


def bytes_after(path: Path, graph: Graph, recipe: Sequence[str]) -> int:
    """Bytes of the file that carries a plan made after the steps of a recipe.

    Args:
        path: the file.
        graph: as loaded from it.
        recipe: steps, as plans record them.

    Raises:
        InvalidPlan: the steps make ops that no operator of the file can do.
        ModelError: the file holds what cannot be carried over.
        RunFailed: an operator to be folded cannot be computed here.
    """
    return len(_after(path, graph, recipe, planned=True))


def _after(path: Path, graph: Graph, recipe: Sequence[str], *, planned: bool) -> bytes:
    made = _Recipe.of(path, graph, recipe)
    order = {0: [_index(op.name, made.names, 0) for op in made.work.ops]}
    # A table of offsets has a number for every tensor, whichever of them are planned.
    edit = Edit(order=order, offsets={(0, 0): 0} if planned else {}, added=made.added)
    return rewrite_all(read_model(path), [edit], str(path))[0]


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A recipe's steps as the file sees them.

    Attributes:
        whole: the graph after folding.
        work: the graph after all steps.
        added: what a split adds to the file.
        names: of the file with that.
    """

    whole: Graph
    work: Graph
    added: Growth
    names: Names

    @classmethod
    def of(cls, path: Path, graph: Graph, recipe: Sequence[str]) -> _Recipe:
        file = read_tflite(path)
        names = names_of_model(file)
        at = next((n for n, step in enumerate(recipe) if step.startswith("split ")), len(recipe))
        whole, work = replay(graph, recipe[:at]), replay(graph, recipe)
        if whole is work or at == len(recipe):
            return cls(work, work, Growth(), names)
        added, names = growth(whole, work, names, file)
        return cls(whole, work, added, names)


def write_anew(path: Path, graph: Graph, *, fold_weights: bool = False) -> Applied:
    """A file that means the same, with what it already carries.

    Args:
        path: the file.
        graph: as loaded from it.
        fold_weights: compute half-precision weights, and whatever else needs no input.

    Raises:
        ModelError: the file holds what cannot be carried over.
        RunFailed: an operator to be folded cannot be computed here.
    """
    data = read_model(path)
    edit = Edit()
    if fold_weights:
        names = names_of_model(read_tflite(path))
        edit = Edit(order=_kept(replay(graph, ["fold-weights"]), names))
    written = rewrite_all(data, [edit], str(path))[0]
    before, after = _head(parse_model(data)), _head(parse_model(written))
    return Applied(written, after, data, before, obeys=False)


def _count(plan: Plan) -> int:
    """How many tensors a plan and those of its bodies place in the arena, copies included.

    A tensor of a body that several ops run has one place in the file.
    """
    return len({name for name, _ in _placed(plan, 0)}) + _copies(plan)


def _copies(plan: Plan) -> int:
    return len(plan.copies) + sum(_copies(body.plan) for body in plan.bodies)


def _placed_by(model: Model) -> int:
    """How many tensors a file places."""
    return sum(offset != ONLINE for offset in offline_offsets(model) or ())


def _sound(data: bytes, target: str) -> bool:
    """Whether the judge of files passes it."""
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        path = Path(folder) / "planned.tflite"
        path.write_bytes(data)
        return judge_file(path, target).ok


def _check(plan: Plan) -> None:
    if plan.mode != "arena":
        raise InvalidPlan(
            f"a file carries offsets, and mode {plan.mode} has none", hint="plan with --mode arena"
        )
    if plan.target not in TARGETS:
        raise InvalidPlan(f"the plan is for target {plan.target}", hint="plan with --target tflm")
    if plan.lanes != 1:
        raise InvalidPlan("the interpreter runs one operator at a time", hint="plan with --lanes 1")
    if plan.bindings.shapes or plan.bindings.dims:
        raise InvalidPlan("the plan is for other shapes than the file states")


def _kept(work: Graph, names: Names) -> dict[int, list[int]]:
    """Operators of the main graph that are left after folding, in file order."""
    return {0: sorted(_index(op.name, names, 0) for op in work.ops)}


def _order(work: Graph, plan: Plan, names: Names) -> dict[int, list[int]]:
    """The plan's order of operators per subgraph; bodies that several operators run keep theirs."""
    orders = {0: [_index(work.ops[at].name, names, 0) for at in plan.order]}
    seen: dict[int, int] = {}
    for body in plan.bodies:
        inner = work.ops[body.op].regions[body.region].graph
        if not inner.ops:
            continue
        number = names.op_at[inner.ops[0].name][0]
        seen[number] = seen.get(number, 0) + 1
        orders[number] = [_index(inner.ops[at].name, names, number) for at in body.plan.order]
    return {number: order for number, order in orders.items() if seen.get(number, 0) < 2}


def _index(name: str, names: Names, subgraph: int) -> int:
    found = names.op_at.get(name)
    if found is None or found[0] != subgraph:
        raise InvalidPlan(f"op {name!r} is no operator of the file: a step of the recipe made it")
    return found[1]


def _offsets(plan: Plan, names: Names) -> dict[Where, int]:
    """Of every tensor that the plan places, bodies included.

    Left to the interpreter are outputs that the plan copies at its end (no operator does that, but
    the one that repeats another tensor's bytes can write them anywhere), and subgraphs that
    several plans place, each elsewhere.
    """
    offsets: dict[Where, int] = {}
    twice: set[int] = set()
    for place, offset in _placed(plan, 0):
        where = names.tensor_at[place]
        if offsets.setdefault(where, offset) != offset:
            twice.add(where[0])
    return {where: offset for where, offset in offsets.items() if where[0] not in twice}


def _placed(plan: Plan, base: int) -> Iterator[tuple[str, int]]:
    """Tensors and their addresses, with the arena of the plan at `base`."""
    scratch = {}
    for buffer in plan.buffers:
        scratch[buffer.op] = base + buffer.offset
        if buffer.what == "tensor":
            for place in buffer.tensors:
                if place.tensor not in plan.copies:
                    yield place.tensor, base + buffer.offset + place.offset
    for body in plan.bodies:
        if body.op in scratch:  # else no body of the op takes any memory
            yield from _placed(body.plan, scratch[body.op])


def _head(model: Model, target: str = "tflm") -> int:
    return predict(model, known_scratch(model, target)).head
