"""The oracles: their cases, what became of each, and the tables that say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from peakfold.analysis.cost.counting import cost_of
from peakfold.ir import Graph
from tests.fuzzing.campaign import SLICES, slice_number

from . import (
    backend,
    contrib_attention,
    contrib_blocked,
    contrib_plain,
    contrib_search,
    models,
    peers,
)
from .comparing import Verdict, compare, judge, read
from .contrib import BLOCKED, Recipe
from .running import NotRun, kernels, run

MODELS = Path(__file__).parents[3] / "shared" / "models" / "onnx"

OPEN = "decided by values"
"""A size that only a run knows: the file does not hold it, and we say so."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case.

    Attributes:
        kind: ``equal``, ``wrong``, ``not run`` (by the runtime), ``skip``, ``open`` (all that is
            told is right, and something is told not to be known), ``bounded`` (something is
            told to be at most so large, and was no larger) or ``defined`` (a peer counts
            something else by the same name, and our figure is the one by our definition).
        why: the reason, or what is wrong.
        tensors: how many were compared and found equal.
    """

    name: str
    kind: str
    why: str = ""
    tensors: int = 0


Check = Callable[[], Result]


@dataclass(slots=True)
class Tally:
    """Results of one oracle."""

    results: list[Result] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Result]:
        """Results of some kinds."""
        return [result for result in self.results if result.kind in kinds]

    @property
    def ran(self) -> int:
        """Cases that the runtime ran."""
        return len(self.results) - len(self.of("not run"))

    @property
    def tensors(self) -> int:
        """Tensors compared."""
        return sum(result.tensors for result in self.results)

    def line(self) -> str:
        """Counts by kind."""
        counts = Counter(result.kind for result in self.results)
        return f"{dict(sorted(counts.items()))}, {self.tensors} tensors equal"


def shapes_of(feeds: Mapping[str, Any], model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors among what a model is fed with."""
    asked = {value.name for value in model.graph.input}
    asked -= {tensor.name for tensor in model.graph.initializer}
    found = {}
    for name, value in feeds.items():
        if name not in asked:
            continue
        if isinstance(value, TensorProto):
            found[name] = tuple(value.dims)
        elif isinstance(value, np.ndarray | np.generic):
            found[name] = value.shape
    return found


def told(name: str, found: Verdict, empty: str = "") -> Result:
    """A verdict as a result; `empty` is why nothing may have been compared."""
    if found.wrong or found.refused:
        return Result(name, "wrong", found.refused or "; ".join(found.wrong[:4]))
    if found.unknown:
        return Result(name, "open", f"{OPEN}: {', '.join(found.unknown[:4])}", found.equal)
    if not found.equal and not found.below:
        return Result(name, "skip", empty or "no tensor was compared")
    if found.below:
        return Result(name, "bounded", f"{found.below} sizes are at most ours", found.equal)
    return Result(name, "equal", "", found.equal)


NO_TENSORS = "its results are sequences or optionals, whose size no graph states"


def backend_checks() -> Iterator[Check]:
    """Every backend case twice: as the file is, and without what it declares."""
    for case in backend.cases():
        yield partial(backend_check, case)


def backend_check(case: backend.Case) -> Result:
    """One backend case, as the file is and bare."""
    name = f"{case.kind} {case.name}"
    try:
        ran = run(case.model, case.feeds)
    except NotRun as error:
        return Result(name, "not run", str(error))
    for seen in (case.model, backend.bare(case)):
        found = told(name, judge(seen, shapes_of(case.feeds, seen), ran), NO_TENSORS)
        if found.kind == "wrong":
            break
    return found


def recipes() -> Iterator[Recipe]:
    """Every recipe of a contrib operator."""
    for part in (contrib_plain, contrib_attention, contrib_search, contrib_blocked):
        yield from part.recipes()


WITHOUT_RECIPE = {
    "com.microsoft:WhisperBeamSearch": (
        "its bodies are a whole encoder and decoder; the row is BeamSearch's, which runs"
    ),
}


def contrib_checks() -> Iterator[Check]:
    """Every contrib operator that the installed runtime has a kernel for on the CPU."""
    known = kernels()
    for recipe in recipes():
        if (recipe.domain, recipe.op) in known:
            yield partial(contrib_check, recipe)
    for name, why in WITHOUT_RECIPE.items():
        yield partial(Result, name, "skip", why)


def contrib_check(recipe: Recipe) -> Result:
    """One contrib operator."""
    model, feeds = recipe.model()
    try:
        ran = run(model, feeds, recipe.shared)
    except NotRun as error:
        return Result(recipe.name, "not run", str(error))
    return told(recipe.name, judge(model, shapes_of(feeds, model), ran))


def model_checks(folder: Path = MODELS) -> Iterator[Check]:
    """Every shared model in every form."""
    for form in models.forms(folder):
        yield partial(form_check, form)


def form_check(form: models.Form) -> Result:
    """One form of a shared model."""
    try:
        model = form.model()
    except NotRun as error:
        return Result(form.name, "not run", str(error))
    feeds = models.feeds(model)
    try:
        ran = run(model, feeds)
    except NotRun as error:
        return Result(form.name, "not run", str(error))
    graph = read(model, shapes_of(feeds, model))
    result = told(form.name, compare(graph, ran))
    if not form.level or result.kind == "wrong":
        return result
    file = onnx.load(form.path)
    first, saved = work(read(file, shapes_of(feeds, file))), work(graph)
    if first != saved and len(first) == len(saved) and BLOCKED not in domains(model):
        return Result(form.name, "wrong", f"MACs {sum(saved)}, {sum(first)} before")
    return result


def domains(model: ModelProto) -> set[str]:
    """Domains of the nodes of the outermost graph."""
    return {node.domain for node in model.graph.node}


def work(graph: Graph) -> list[int]:
    """MACs of each op that has any, sorted."""
    return sorted(op.figures.macs for op in cost_of(graph).ops if op.figures.macs)


def peer_checks() -> Iterator[Check]:
    """Every case of peers' own tests: packings, graphs, models, counts."""
    for case in peers.cases():
        yield partial(peer_check, case)
    for trace in peers.NOT_COPIED:
        yield partial(Result, trace, "skip", "its data has no licence, and is not copied")


def peer_check(case: peers.Case) -> Result:
    """One case of a peer's."""
    said = peers.complaint(case)
    if "ours" in case and not said:
        return Result(peers.name(case), "defined", case["why"])
    return Result(peers.name(case), "wrong" if said else "equal", said)


ORACLES: Mapping[str, Callable[[], Iterable[Check]]] = {
    "backend cases": backend_checks,
    "contrib operators": contrib_checks,
    "shared models": model_checks,
    "peers' cases": peer_checks,
}


def sliced(name: str, tenth: int | None = None) -> Tally:
    """A tenth of an oracle, today's unless stated."""
    at = slice_number() if tenth is None else tenth
    return Tally([check() for n, check in enumerate(ORACLES[name]()) if n % SLICES == at])


def whole(name: str) -> Tally:
    """All of an oracle."""
    return Tally([check() for check in ORACLES[name]()])
