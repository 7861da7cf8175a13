"""`peakfold compare`: from model files to rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from peakfold.analysis import Cost, cost_of
from peakfold.analysis.cost.sparsity import Effective, effective
from peakfold.device import load_device
from peakfold.errors import UsageError
from peakfold.frontends import FORMATS, Bindings, Loaded, load
from peakfold.frontends.weights import open_weights
from peakfold.ir import Graph
from peakfold.planning.fit.total import Need
from peakfold.reports.pictures.bubbles import accuracies
from peakfold.reports.records import schema_name
from peakfold.reports.records.compare_rows import CompareDocument, ModelRow, model_row, op_changes
from peakfold.reports.text.tables import listed
from peakfold.transform import Fold


def compare(
    models: Sequence[str],
    *,
    dims: Sequence[str] = (),
    shapes: Sequence[str] = (),
    fold: bool = True,
    fold_weights: bool = False,
    ops: bool = False,
    peak: bool = True,
    accuracy: str | None = None,
    device: str | None = None,
    precision: str | None = None,
    sparsity: bool = False,
) -> CompareDocument:
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
        device: a preset's name or a ``.toml`` file, to tell times for.
        precision: element type that floating-point ops run in there.
        sparsity: read the weights, and count what their zeros leave.

    Raises:
        UsageError: an unknown device, a dimension that no model has, a file that does not exist,
            or one whose weights cannot be read.
        ModelError: a model that cannot be read, or a table that is none.
    """
    table = {} if accuracy is None else accuracies(accuracy)
    clock = _Clock(device, precision)
    rows: list[ModelRow] = []
    costs, names = list[Cost](), _names(models)
    notes: list[str] = []
    sparse: list[Effective] = []
    for loaded in _loaded(models, dims, shapes):
        graph = Fold(weights=fold_weights)(loaded.graph) if fold else loaded.graph
        found = cost_of(graph, original=loaded.graph)
        name = names[len(rows)]
        need = _need(loaded, fold=fold, fold_weights=fold_weights) if peak else None
        kind, known = graph.source or "pf", accuracy_of(table, name)
        time_s = clock.seconds(graph, found)
        if sparsity:
            sparse.append(effective(graph, found, loaded.graph, open_weights(loaded.path)))
            unread = sparse[-1].unread
            notes += [f"{name}: weights not read, counted as dense: {listed(unread)}"] * bool(
                unread
            )
        rows.append(
            model_row(
                name,
                kind,
                found,
                need=need,
                accuracy=known,
                time_s=time_s,
                sparse=sparse[-1] if sparse else None,
            )
        )
        costs.append(found)
        notes += _unknown(name, found)
    return CompareDocument(
        schema=schema_name("compare"),
        models=rows,
        device=clock.name,
        time_note=clock.note,
        notes=notes,
        ops=op_changes(costs[0], costs[1], sparse) if ops else None,
    )


def _unknown(name: str, cost: Cost) -> list[str]:
    """Why figures of a model are not known: dimensions nobody bound, or else its ops."""
    if cost.unbound:
        flags = " ".join(f"--dim {dim}=N" for dim in cost.unbound)
        return [f"{name}: {', '.join(cost.unbound)} not bound, pass {flags}"]
    kinds = ", ".join(f"{kind} ({count})" for kind, count in cost.unsupported().items())
    loops = ", ".join(cost.open_loops)
    return [
        f"{name}: {text}"
        for text in (kinds and f"no cost of {kinds}", loops and f"no trip count of {loops}")
        if text
    ]


class _Clock:
    """Times of models on one device, and what they rest on."""

    def __init__(self, device: str | None, precision: str | None) -> None:
        if device is None and precision is not None:
            raise UsageError("a time needs a device", hint="name one: --device t4")
        self.device = None if device is None else load_device(device)
        self.precision = precision
        self._notes: dict[str, None] = {}

    @property
    def name(self) -> str | None:
        """The device's."""
        return None if self.device is None else self.device.name

    @property
    def note(self) -> str | None:
        """What all times so far rest on."""
        return "; ".join(self._notes) or None

    def seconds(self, graph: Graph, cost: Cost) -> float | None:
        """A run's time; what was found out about it is added to the notes."""
        if self.device is None:
            return None
        from peakfold.analysis.time.timing import timing
        from peakfold.reports.text.timing import basis_words

        found = timing(graph, cost, self.device, precision=self.precision)
        self._notes[basis_words(found)] = None
        return found.time_s


def _names(models: Sequence[str]) -> list[str]:
    """File names, without suffix and folder where that tells the models apart."""
    paths = [Path(model) for model in models]
    for names in ([stem(p.name) for p in paths], [p.name for p in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _need(loaded: Loaded, *, fold: bool, fold_weights: bool) -> Need:
    from peakfold.planning import PlanOptions, make_plan

    options = PlanOptions(fold=fold, fold_weights=fold_weights, time_limit=1.0)
    return make_plan(loaded.graph, options, loaded.bindings).need


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


def accuracy_of(table: Mapping[str, float], name: str) -> float | None:
    """The accuracy of a model, whose name the table may write with or without its suffix.

    Example:
        >>> accuracy_of({"a.onnx": 70.5}, "a"), accuracy_of({"b": 71.0}, "b.tflite")
        (70.5, 71.0)
        >>> accuracy_of({"net_0.25": 50.0}, "net_0.75.onnx") is None
        True
    """
    known = {stem(key): value for key, value in table.items()} | dict(table)
    return known.get(name, known.get(stem(name)))


def stem(name: str) -> str:
    """A model's name without the suffix of a format; other dots belong to the name."""
    return next((name.removesuffix(s) for s in FORMATS if name.endswith(s)), name)
