"""`peakfold compare`: from model files to rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from peakfold.analysis import Cost, cost_of
from peakfold.errors import UsageError
from peakfold.frontends import Bindings, Loaded, load
from peakfold.reports.bubbles import accuracies
from peakfold.reports.compare import CompareDocument, ModelRow, accuracy_of, model_row, op_changes
from peakfold.reports.payload import schema_name
from peakfold.transform import Fold


def compare(
    models: Sequence[str], *, dims: Sequence[str] = (), shapes: Sequence[str] = (),
    fold: bool = True, fold_weights: bool = False, ops: bool = False, peak: bool = True,
    accuracy: str | None = None,
) -> CompareDocument:  # fmt: skip
    """Models side by side.

    Args:
        models: files.
        dims: ``NAME=N``; one that a model does not have is left out for it.
        shapes: ``TENSOR=AxB``, for every model.
        fold: as in a plan.
        fold_weights: as in a plan.
        ops: compare the first two op by op as well.
        peak: plan each model's memory.
        accuracy: a CSV file with the columns ``model,accuracy``.

    Raises:
        UsageError: a dimension that no model has, or a file that does not exist.
        ModelError: a model that cannot be read, or a table that is none.
    """
    table = {} if accuracy is None else accuracies(accuracy)
    rows: list[ModelRow] = []
    costs, names = list[Cost](), _names(models)
    for loaded in _loaded(models, dims, shapes):
        graph = Fold(weights=fold_weights)(loaded.graph) if fold else loaded.graph
        found = cost_of(graph, original=loaded.graph)
        name = names[len(rows)]
        arena = _peak(loaded, fold=fold, fold_weights=fold_weights) if peak else None
        kind, known = graph.source or "pf", accuracy_of(table, name)
        rows.append(model_row(name, kind, found, peak=arena, accuracy=known))
        costs.append(found)
    return CompareDocument(
        schema=schema_name("compare"), models=rows, device=None,
        ops=op_changes(costs[0], costs[1]) if ops else None,
    )  # fmt: skip


def _names(models: Sequence[str]) -> list[str]:
    """File names, without suffix and folder where that tells the models apart."""
    paths = [Path(model) for model in models]
    for names in ([p.stem for p in paths], [p.name for p in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _peak(loaded: Loaded, *, fold: bool, fold_weights: bool) -> int:
    from peakfold.planning import PlanOptions, make_plan

    options = PlanOptions(fold=fold, fold_weights=fold_weights, time_limit=1.0)
    return make_plan(loaded.graph, options, loaded.bindings).summary.arena_bytes


def _loaded(models: Sequence[str], dims: Sequence[str], shapes: Sequence[str]) -> list[Loaded]:
    given = Bindings.parse(tuple(dims), tuple(shapes))
    used: set[str] = set()
    found: list[Loaded] = []
    for model in models:
        mine = given
        if given.dims:
            symbols = set(load(model, Bindings.parse((), tuple(shapes))).graph.symbols)
            kept = tuple(word for word in dims if word.partition("=")[0] in symbols)
            used.update(word.partition("=")[0] for word in kept)
            mine = Bindings.parse(kept, tuple(shapes))
        found.append(load(model, mine))
    for name in given.dims:
        if name not in used:
            raise UsageError(f"--dim: no dimension of any model is called {name!r}")
    return found
