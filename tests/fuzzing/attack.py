"""The attack on the judges: base plans, mutants of them, and what became of each.

A mutant is a pair of numbers: seed and number give the same base plan and the same changes in
every process. `attack` judges one by the public judge and by the oracle.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import msgspec

from peakfold.analysis.graph.workspace_profile import Profile
from peakfold.errors import InvalidPlan, PeakfoldError
from peakfold.frontends import load
from peakfold.ir import Graph, print_graph
from peakfold.judges.plan import Given, judge_plan
from peakfold.planning import PlanOptions
from peakfold.planning.modes import make_layout
from peakfold.planning.plan import Plan, decode_plan
from peakfold.planning.planner import plan_layout, planning_context
from peakfold.transform import replay

from .claims import Witness, boxes, claims
from .graphs import OPTION_SETS, options_for, random_graph
from .oracle import faults
from .placed import Fault
from .plan_mutations import MUTATIONS, Tree

PER_BASE = 12
"""Mutants of one base plan."""
REAL_OPTIONS = (
    {},
    {"align": 1, "inputs": "reusable"},
    {"mode": "both"},
    {"lanes": 2},
    {"lanes": 0, "align": 16},
    {"outputs": "external"},
)
REAL_OPS = 130
"""Ops of the largest real model whose plans are mutated."""
CLASSES = (
    "rejected, wrong",
    "rejected, safe",
    "accepted, harmless",
    "ACCEPTED, WRONG",
    "RAISED",
    "COMMAND DIFFERS",
)


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A plan as the planner made it, and what is known of its graph."""

    number: int
    label: str
    graph: Graph
    plan: Plan
    measured: Profile | None
    witnesses: tuple[Witness, ...]

    @property
    def profile(self) -> dict[str, int]:
        """Measured scratch by op."""
        return {} if self.measured is None else self.measured.workspace


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant."""

    number: int
    base: str
    mutations: tuple[str, ...]
    verdict: str
    faults: tuple[Fault, ...] = ()
    said: str = ""
    tree: Tree | None = field(default=None, compare=False)

    @property
    def signature(self) -> tuple[str, ...]:
        """Findings that differ in it differ in kind."""
        first = self.faults[0] if self.faults else Fault("", "")
        about = self.said[:60] if self.verdict == "RAISED" else first.about
        named = () if first.kind in ("claim", "statement") else sorted(set(self.mutations))
        return (self.verdict, first.kind, about, *named)


def models(root: Path) -> list[Path]:
    """Small real models: the bundled ones, and those beside the checkout where they are."""
    shared = root.parent / "shared" / "models"
    found = [
        *(root / "docs" / "examples").glob("*.*"),
        *(root / "src" / "peakfold" / "data" / "models").glob("*.onnx"),
        *(shared / "onnx").glob("*.onnx"),
        *(shared / "tflite").glob("*.tflite"),
    ]
    kinds = (".onnx", ".tflite", ".pf")
    return sorted(p for p in found if p.suffix in kinds and p.stat().st_size < 400_000)


@cache
def _real_graphs(root: Path) -> tuple[tuple[str, Graph], ...]:
    found = []
    for path in models(root):
        try:
            graph = load(path).graph
            _one_plan(graph, PlanOptions(time_limit=0.0))
        except PeakfoldError:  # symbols to bind, or a size that is not known
            continue
        if 1 < len(graph.ops) <= REAL_OPS:
            found.append((path.name, graph))
    return tuple(found)


@cache
def _real_base(root: Path, at: int, chosen: int) -> Base:
    name, graph = _real_graphs(root)[at]
    return plan_base(
        f"{name} {REAL_OPTIONS[chosen]}",
        graph,
        options_for(graph, random.Random(0), REAL_OPTIONS[chosen], 0.0),
    )


def base_plan(seed: int, number: int, root: Path | None) -> Base:
    """Base plan `number`: three of four from random graphs, the rest of real models."""
    rng = random.Random(f"{seed} base {number}")
    if root is not None and number % 4 == 3 and _real_graphs(root):
        at = rng.randrange(len(_real_graphs(root)))
        return replace(_real_base(root, at, rng.randrange(len(REAL_OPTIONS))), number=number)
    graph = random_graph(rng)
    chosen = rng.choice(OPTION_SETS)
    made = plan_base(f"random graph {number} {chosen}", graph, options_for(graph, rng, chosen))
    return replace(made, number=number)


def plan_base(label: str, graph: Graph, options: PlanOptions) -> Base:
    """A sound plan of a graph, with what else is known of the graph."""
    plan = _one_plan(graph, options)
    witnesses = [plan]
    if options.lanes == 1 and len(graph.ops) < 13:
        best = replace(
            options, order="best", inplace=True, views=True, zero_copy=True, mode="arena"
        )
        witnesses.append(_one_plan(graph, best))
    given = {} if options.profile is None else options.profile.workspace
    sound = [Witness(one) for one in witnesses if not faults(graph, one, given)]
    return Base(-1, label, graph, plan, options.profile, tuple(sound))


def _one_plan(graph: Graph, options: PlanOptions) -> Plan:
    """What `make_plan` writes, without the other modes that it compares a plan with."""
    context = planning_context(graph, options)
    return plan_layout(context, make_layout(context, options.mode, options.strategy))


def judged(base: Base, plan: Plan, *, with_profile: bool = True) -> tuple[str, str, list[str]]:
    """What the public judge says: its verdict, its words, and the fields it calls claimed."""
    given = Given(profile=base.measured if with_profile else None)
    try:
        verdict = judge_plan(base.graph, plan, given)
    except InvalidPlan as error:
        return "rejected", str(error), []
    except Exception as error:  # what this run looks for
        return "raised", f"{type(error).__name__}: {error}", []
    bad = [check for check in verdict.checks if not check.ok]
    claimed = [claim.field for claim in verdict.claims]
    return ("rejected", bad[0].detail, []) if bad else ("accepted", "", claimed)


def known_wrong(base: Base, plan: Plan) -> list[Fault]:
    """What the oracle says; of claims, only where nothing else is wrong."""
    found = faults(base.graph, plan, base.profile)
    if all(f.kind == "statement" and f.about not in ("recipe", "graph") for f in found):
        found += claims(replay(base.graph, plan.recipe), plan, base.witnesses)
    return sorted(found, key=lambda f: f.kind in ("statement", "claim"))


def told(fault: Fault, claimed: Sequence[str]) -> bool:
    """Whether the judge showed what is false as a claim it did not check."""
    about = fault.about
    return any(field == about or field.endswith(f".{about}") for field in claimed)


def mutate(
    base: Base, seed: int, number: int, keep: Sequence[int] | None = None
) -> tuple[Tree, tuple[str, ...]]:
    """Mutant `number` of a base plan: its tree, and the names of what was done to it.

    Args:
        base: the plan to change.
        seed: of the run.
        number: of the mutant.
        keep: which of its mutations to apply, by position; all by default.
    """
    rng = random.Random(f"{seed} mutant {number}")
    tree = msgspec.to_builtins(base.plan)  # a tree of its own each time
    work = replay(base.graph, base.plan.recipe)
    known = list(MUTATIONS)
    wanted = rng.choice([1, 1, 2, 3])
    dressing = rng.random(), rng.random(), rng.random()
    done: list[str] = []
    for turn in range(40):
        if len(done) == wanted:
            break
        own = random.Random(f"{seed} mutant {number} turn {turn}")
        name = own.choice(known)
        if keep is not None and len(done) not in keep:
            trial = copy.deepcopy(tree)  # the same turns must count as done
            if _applied(name, trial, own, work):
                done.append(name)
            continue
        if _applied(name, tree, own, work):
            done.append(name)
    _dress(tree, work, dressing)
    names = tuple(n for at, n in enumerate(done) if keep is None or at in keep)
    return tree, names


def _applied(name: str, tree: Tree, rng: random.Random, work: Graph) -> bool:
    """Whether a mutation changed the tree; an earlier one may have left nothing to change."""
    before = after = json.dumps(tree)
    with contextlib.suppress(*_NOTHING_TO_CHANGE):
        MUTATIONS[name](tree, rng, work)
        after = json.dumps(tree)
    tree.clear()
    tree.update(json.loads(after))  # no list stands in it twice
    return after != before


_BOUNDS = ("offsets", "objects", "any_order")
_NOTHING_TO_CHANGE = (
    KeyError,
    TypeError,
    IndexError,
    ValueError,
    AttributeError,
    ZeroDivisionError,
)


def _dress(tree: Tree, work: Graph, dice: tuple[float, float, float]) -> None:
    """Make a lie consistent, so that cheap checks do not hide deep ones."""
    records = tree["buffers"] if isinstance(tree["buffers"], list) else []
    places = [(b.get("offset"), b.get("size")) for b in records if isinstance(b, dict)]
    ends = [at + size for at, size in places if isinstance(at, int) and isinstance(size, int)]
    if dice[0] < 0.5:
        tree["arena_bytes"] = max(ends, default=0)
    if dice[1] < 0.5:
        tree["bound"] = dict.fromkeys(_BOUNDS, 0)
        tree["proof"] = {"packing": False, "order": False}
    elif dice[1] < 0.6:
        tree["bound"] = dict.fromkeys(_BOUNDS, tree["arena_bytes"])
        tree["proof"] = {"packing": True, "order": True}
    if dice[2] < 0.4:
        _relive(tree, work)


def _relive(tree: Tree, work: Graph) -> None:
    """Lives as graph and order want them, for the whole of each buffer."""
    try:
        plan = decode_plan(json.dumps(tree).encode())
        if sorted(plan.order) != list(range(len(work.ops))):
            return
        if any(p.tensor not in work.by_name for b in plan.buffers for p in b.tensors):
            return
        found = iter(boxes(work, plan))
        for buffer in tree["buffers"]:
            if buffer["what"] == "tensor" and not buffer["tensors"]:
                continue
            box = next(found)
            buffer["live"] = [
                {"start": box.start, "stop": box.stop, "lower": 0, "upper": buffer["size"]}
            ]
    except (InvalidPlan, KeyError, StopIteration):
        return  # no plan: the judge will say so


def outcome(base: Base, seed: int, number: int, keep: Sequence[int] | None = None) -> Outcome:
    """Make one mutant and judge it twice."""
    tree, names = mutate(base, seed, number, keep)
    try:
        plan = decode_plan(json.dumps(tree).encode())
    except InvalidPlan as error:
        return Outcome(number, base.label, names, "rejected, wrong", (), str(error), tree)
    verdict, said, claimed = judged(base, plan, with_profile=number % 2 == 0)
    wrong = tuple(f for f in known_wrong(base, plan) if not told(f, claimed))
    if verdict == "raised":
        kind = "RAISED"
    elif verdict == "rejected":
        kind = "rejected, wrong" if wrong else "rejected, safe"
    else:
        kind = "ACCEPTED, WRONG" if wrong else "accepted, harmless"
    return Outcome(number, base.label, names, kind, wrong, said, tree)


def smallest(base: Base, seed: int, found: Outcome) -> Outcome:
    """The same finding with as few of its mutations as show it."""
    count = len(found.mutations)
    for keep in [(n,) for n in range(count)] + [(a, b) for a in range(count) for b in range(a)]:
        if len(keep) < count:
            less = outcome(base, seed, found.number, keep)
            if less.verdict == found.verdict:
                return less
    return found


def bases(
    seed: int,
    numbers: Iterable[int],
    root: Path | None,
    refused: Callable[[int, PeakfoldError], None],
) -> Iterator[tuple[int, Base]]:
    """Base plans by number; those that cannot be planned are told to `refused`."""
    for number in numbers:
        try:
            yield number, base_plan(seed, number, root)
        except PeakfoldError as error:
            refused(number, error)


def record(base: Base, seed: int, found: Outcome) -> str:
    """A finding as JSON, with all it takes to see it again."""
    return json.dumps(
        {
            "seed": seed,
            "number": found.number,
            "base": found.base,
            "mutations": found.mutations,
            "verdict": found.verdict,
            "said": found.said,
            "faults": [[f.kind, f.about, f.text] for f in found.faults],
            "profile": base.profile,
            "graph": print_graph(base.graph),
            "plan": found.tree,
            "sound_plan": msgspec.to_builtins(base.plan),
        },
        indent=1,
    )
