"""`peakfold.plan`, `cost`, `inspect`, `verify`: one call each, from a model to a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from peakfold.analysis import CostOptions, Index, cost_of, op_facts, unsupported
from peakfold.errors import InvalidPlan, UsageError
from peakfold.frontends import FORMATS, Bindings, Loaded
from peakfold.frontends import load as load_file
from peakfold.ir import Graph
from peakfold.ops import REGISTRY, Context, OpSpec, lookup, register
from peakfold.planning import Plan, PlanOptions, decode_plan, make_plan
from peakfold.planning.study import recipe_of
from peakfold.reports.breakdown import break_down
from peakfold.reports.documents import verify_document
from peakfold.reports.results import CostReport, InspectReport, PlanReport, VerifyReport
from peakfold.reports.terminal import ModelFacts
from peakfold.target import load_target
from peakfold.transform import replay
from peakfold.units import parse_size

Model = str | Path | Graph | Loaded
Handler = OpSpec | Callable[[Context], int | None]


def load(
    path: str | Path,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, str] | None = None,
) -> Loaded:
    """Read a model file (``.onnx``, ``.tflite`` or ``.pf``).

    Args:
        path: the file.
        dims: numbers for symbolic dimensions, as ``--dim`` takes them.
        shapes: shapes by tensor name as ``--shape`` takes them: ``"1x3x224x224"``.

    Raises:
        UsageError: no such file, unknown format, or a name the model does not have.
        ModelError: the file is broken, with the op or tensor at fault.
    """
    bindings = Bindings.parse(
        [f"{name}={number}" for name, number in (dims or {}).items()],
        [f"{name}={shape}" for name, shape in (shapes or {}).items()],
    )
    return load_file(path, bindings)


def plan(
    model: Model,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401 - the fields of PlanOptions, checked below
) -> PlanReport:
    """Plan a model's memory.

    Args:
        model: a path, a graph, or what `load` returned.
        dims: as `load` takes them; only with a path.
        shapes: likewise.
        options: fields of `peakfold.PlanOptions`; `budget` may be written ``"256KiB"``.

    Returns:
        A report: `print` it, `save` its plan, read `summary`.

    Raises:
        UsageError: an unknown option, or a value that no option has.
        ModelError: the model cannot be read, or a size is not known.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\n"
        ...                 "y: int8[64] = relu(x)\\nz: int8[64] = relu(y)\\noutput z")
        >>> plan(g).summary.arena_bytes
        64
    """
    loaded = _loaded(model, dims, shapes)
    known = {item.name for item in fields(PlanOptions)}
    for name in options:
        if name not in known:
            hint = f"known: {', '.join(sorted(known))}"
            raise UsageError(f"there is no option {name!r}", hint=hint)
    if isinstance(options.get("budget"), str):
        options["budget"] = parse_size(options["budget"])
    result = make_plan(loaded.graph, PlanOptions(**options), loaded.bindings)
    return PlanReport(result, _called(loaded))


def inspect(
    model: Model,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, str] | None = None,
    target: str = "generic",
    fold: bool = True,
    fold_weights: bool = False,
    handlers: Mapping[str, Handler] | None = None,
    **options: Any,  # noqa: ANN401 - the fields of CostOptions, checked below
) -> InspectReport:
    """What a model costs, and where its memory goes, by role and by op.

    Args:
        model: a path, a graph, or what `load` returned.
        dims: as `load` takes them; only with a path.
        shapes: likewise.
        target: whose rules decide what is known of kernel scratch.
        fold: as in a plan.
        fold_weights: as in a plan.
        handlers: as `cost` takes them.
        options: fields of `peakfold.analysis.CostOptions`.

    Raises:
        UsageError: an unknown target, option or name.
        ModelError: the model cannot be read, or a size is not known.
    """
    loaded = _loaded(model, dims, shapes)
    rules = load_target(target)
    graph = replay(loaded.graph, recipe_of(PlanOptions(fold=fold, fold_weights=fold_weights)))
    index = Index.of(graph)
    found = break_down(index, [op_facts(graph, op, rules) for op in graph.ops])
    table = _table(handlers)
    counts = cost_of(graph, _cost_options(options), table=table, original=loaded.graph)
    facts = ModelFacts(
        name=_called(loaded),
        format=graph.source or "pf",
        ops=len(graph.ops),
        tensors=len(graph.tensors),
        folded=len(loaded.graph.ops) - len(graph.ops),
    )
    strangers = {kind: n for kind, n in unsupported(graph).items() if kind not in table}
    return InspectReport(facts, found, counts, strangers, graph.notes)


def cost(
    model: Model,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, str] | None = None,
    fold: bool = True,
    handlers: Mapping[str, Handler] | None = None,
    **options: Any,  # noqa: ANN401 - the fields of CostOptions, checked below
) -> CostReport:
    """What a model costs: MACs, FLOPs, parameters, memory access, per op, scope and kind.

    Args:
        model: a path, a graph, or what `load` returned.
        dims: as `load` takes them; only with a path.
        shapes: likewise.
        fold: count what is computed before the run as done.
        handlers: rows of your own by op kind, in place of the registry's: an `OpSpec`, or a
            function from `peakfold.ops.Context` to MACs.
        options: fields of `peakfold.analysis.CostOptions`: `causal`, `trips`, `batch`.

    Raises:
        UsageError: an unknown option or name.
        ModelError: the model cannot be read.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[8]\\n"
        ...                 "y: float32[8] = warp(x)\\noutput y")
        >>> cost(g, handlers={"warp": lambda ctx: 64}).total().figures.macs
        64
    """
    loaded = _loaded(model, dims, shapes)
    graph = replay(loaded.graph, recipe_of(PlanOptions(fold=fold)))
    found = cost_of(graph, _cost_options(options), table=_table(handlers), original=loaded.graph)
    return CostReport(found, _called(loaded))


def _table(handlers: Mapping[str, Handler] | None) -> Mapping[str, OpSpec]:
    table = REGISTRY
    for kind, row in (handlers or {}).items():
        if isinstance(row, OpSpec):
            table = register(table, kind, row)
        else:
            table = register(table, kind, lookup(kind), macs=row, known=True)
    return table


def _cost_options(options: Mapping[str, Any]) -> CostOptions:
    known = {item.name for item in fields(CostOptions)}
    for name in options:
        if name not in known:
            hint = f"known: {', '.join(sorted(known))}"
            raise UsageError(f"there is no option {name!r}", hint=hint)
    return CostOptions(**options)


def verify(model: Model, plan: Plan | PlanReport | str | Path) -> VerifyReport:
    """Check a plan against its model, by code that shares nothing with the planner.

    Args:
        model: a path, a graph, or what `load` returned; a path is loaded with the numbers
            that the plan records.
        plan: a plan, a report, or a plan file.

    Raises:
        InvalidPlan: the file is no plan, or the plan belongs to another model.
        UsageError: a file does not exist.
        ModelError: the model cannot be read.
    """
    from peakfold.planning.verify import verify_plan

    record = plan.plan if isinstance(plan, PlanReport) else plan
    if not isinstance(record, Plan):
        record = read_plan(record)
    if isinstance(model, str | Path):
        loaded = _load_for(model, record)
    else:
        loaded = _loaded(model, None, None)
    return VerifyReport(verify_document(verify_plan(loaded.graph, record)))


def _load_for(model: str | Path, plan: Plan) -> Loaded:
    """The model with the plan's numbers; numbers it has no place for are another model's."""
    dims, shapes = plan.bindings.dims, plan.bindings.shapes
    try:
        return load(model, dims=dims, shapes=shapes)
    except UsageError as error:
        readable = Path(model).is_file() and Path(model).suffix in FORMATS
        if readable and (dims or shapes):
            raise InvalidPlan(
                f"the plan is for another model: {error}", where=plan.graph.name
            ) from None
        raise


def read_plan(path: str | Path) -> Plan:
    """Read a plan file.

    Raises:
        UsageError: the file cannot be read.
        InvalidPlan: it holds no plan of this version.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    return decode_plan(data, str(path))


def _loaded(
    model: Model, dims: Mapping[str, int] | None, shapes: Mapping[str, str] | None
) -> Loaded:
    if isinstance(model, str | Path):
        return load(model, dims=dims, shapes=shapes)
    if dims or shapes:
        raise UsageError("dims and shapes go with a path", hint="pass them to peakfold.load")
    return model if isinstance(model, Loaded) else Loaded(model, Bindings(), "")


def _called(loaded: Loaded) -> str:
    """The file's name, or else the graph's: exporters call every graph alike."""
    return Path(loaded.path).name or loaded.graph.name
