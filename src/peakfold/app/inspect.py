"""`peakfold.load`, `cost` and `inspect`: from a model to what it costs, without any planner."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from peakfold.analysis import Cost, CostOptions, Index, cost_of, op_facts, unsupported
from peakfold.analysis.cost.breakdown import break_down
from peakfold.app.custom_ops import Handler, with_handlers
from peakfold.arguments import flag, mapping, real, shown, whole, word
from peakfold.arguments import path as need_path
from peakfold.device import Device, load_device
from peakfold.errors import UsageError
from peakfold.frontends import Bindings, Loaded
from peakfold.frontends import load as load_file
from peakfold.ir import Graph
from peakfold.reports.records.cost_results import CostReport, InspectReport
from peakfold.reports.records.extras import Extras
from peakfold.reports.text.inspect import ModelFacts
from peakfold.target import load_target
from peakfold.transform import Fold

if TYPE_CHECKING:
    from peakfold.analysis.time.timing import Timing
    from peakfold.frontends.torch.module import Example

Model = Union[str, Path, Graph, Loaded, tuple[Any, ...], "Example"]
"""A file, a graph, what `load` returned, or a torch module with its inputs: ``(module, args)``."""


def load(
    path: str | Path,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, str] | None = None,
    trust: bool = False,
) -> Loaded:
    """Read a model file (``.onnx``, ``.tflite``, ``.pt2`` or ``.pf``).

    Args:
        path: the file.
        dims: numbers for symbolic dimensions, as ``--dim`` takes them.
        shapes: shapes by tensor name as ``--shape`` takes them: ``"1x3x224x224"``.
        trust: let PyTorch's own loader read a ``.pt2`` file, which runs code of the file.

    Raises:
        UsageError: no such file, unknown format, or a name the model does not have.
        ModelError: the file is broken, with the op or tensor at fault.
    """
    bindings = Bindings.parse(
        [f"{name}={number}" for name, number in mapping(dims, "dims").items()],
        [f"{name}={shape}" for name, shape in mapping(shapes, "shapes").items()],
    )
    need_path(path, "the model")
    return load_file(path, bindings, trust=trust)


def inspect(
    model: Model,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, str] | None = None,
    target: str = "generic",
    fold: bool = True,
    fold_weights: bool = False,
    handlers: Mapping[str, Handler] | None = None,
    device: str | Device | None = None,
    precision: str | None = None,
    measured_s: float | None = None,
    batches: tuple[int, ...] = (),
    lint: bool = False,
    sparsity: bool = False,
    **options: Any,  # noqa: ANN401 - the fields of CostOptions, checked below
) -> InspectReport:
    """What a model costs, and where its memory goes, by role and by op.

    Args:
        model: a path, a graph, what `load` returned, or ``(torch module, inputs)``.
        dims: as `load` takes them; only with a path.
        shapes: likewise.
        target: whose rules decide what is known of kernel scratch.
        fold: as in a plan.
        fold_weights: as in a plan.
        handlers: as `cost` takes them.
        device: a preset's name, a ``.toml`` file or a `Device`: also say how long a run takes.
        precision: element type that floating-point ops are taken to run in on the device.
        measured_s: seconds of a run, measured, for the utilisation of the device.
        batches: batch sizes to tell the bound on the device at.
        lint: add advice.
        sparsity: read the weights, and count what their zeros leave; a path only.
        options: fields of `peakfold.analysis.CostOptions`.

    Raises:
        UsageError: an unknown target, device, option or name.
        ModelError: the model cannot be read, or a size is not known.
    """
    for name, given in (
        ("fold", fold),
        ("fold_weights", fold_weights),
        ("lint", lint),
        ("sparsity", sparsity),
    ):
        flag(given, name)
    loaded = loaded_from(model, dims, shapes)
    rules = load_target(target)
    graph = Fold(weights=fold_weights)(loaded.graph) if fold else loaded.graph
    index = Index.of(graph, partial=True)
    found = break_down(index, [op_facts(graph, op, rules) for op in graph.ops])
    table = with_handlers(loaded.graph, handlers)
    counts = cost_of(graph, _cost_options(options), table=table, original=loaded.graph)
    facts = ModelFacts(
        name=called(loaded),
        format=graph.source or "pf",
        ops=len(graph.ops),
        tensors=len(graph.tensors),
        folded=len(loaded.graph.ops) - len(graph.ops),
    )
    strangers = {kind: n for kind, n in unsupported(graph).items() if kind not in table}
    if not isinstance(batches, tuple | list):
        raise UsageError(f"batches are no list of numbers: {shown(batches)}")
    batches = tuple(whole(batch, "a size in batches", 1) for batch in batches)
    if measured_s is not None and not real(measured_s, "measured_s"):
        raise UsageError("measured_s is 0, and must be above it")
    if device is None and (precision is not None or measured_s is not None or batches):
        raise UsageError("a time needs a device", hint="name one: --device t4")
    taken = None if device is None else _timing(graph, counts, device, precision)
    return InspectReport(
        facts,
        found,
        counts,
        strangers,
        graph.notes,
        taken,
        measured_s,
        batches,
        _extras(loaded, graph, counts, lint=lint, sparsity=sparsity),
        graph.doubts,
    )


def _timing(graph: Graph, counts: Cost, device: str | Device, precision: str | None) -> Timing:
    from peakfold.analysis.time.timing import timing

    chip = device if isinstance(device, Device) else load_device(device)
    if precision is not None and not isinstance(precision, str):
        raise UsageError(f"precision is no element type: {shown(precision)}")
    return timing(graph, counts, chip, precision=precision)


def _extras(loaded: Loaded, graph: Graph, found: Cost, *, lint: bool, sparsity: bool) -> Extras:
    """The analyses that were asked for."""
    advice, counted = None, None
    if lint:
        from peakfold.analysis.lint.rules import lints

        advice = lints(graph, found)
    if sparsity:
        from peakfold.analysis.cost.sparsity import effective
        from peakfold.frontends.weights import open_weights

        counted = effective(graph, found, loaded.graph, open_weights(loaded.path))
    return Extras(lints=advice, sparsity=counted)


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
        model: a path, a graph, what `load` returned, or ``(torch module, inputs)``.
        dims: as `load` takes them; only with a path.
        shapes: likewise.
        fold: count what is computed before the run as done.
        handlers: rows of your own by op kind (or by the operator's name in an ONNX file, such
            as ``com.example::Warp``), in place of the registry's: an `OpSpec`, or a function
            from `peakfold.ops.Context` to MACs.
        options: fields of `peakfold.analysis.CostOptions`: `causal`, `trips`, `batch`.

    Raises:
        UsageError: an unknown option or name, a handler for no kind or with no count.
        ModelError: the model cannot be read.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[8]\\n"
        ...                 "y: float32[8] = warp(x)\\noutput y")
        >>> cost(g, handlers={"warp": lambda ctx: 64}).total().figures.macs
        64
    """
    flag(fold, "fold")
    loaded = loaded_from(model, dims, shapes)
    graph = Fold()(loaded.graph) if fold else loaded.graph
    table = with_handlers(loaded.graph, handlers)
    found = cost_of(graph, _cost_options(options), table=table, original=loaded.graph)
    return CostReport(found, called(loaded))


def _cost_options(options: Mapping[str, Any]) -> CostOptions:
    known = tuple(sorted(item.name for item in fields(CostOptions)))
    for name in options:
        word(name, known, "option")
    return CostOptions(**options)


def loaded_from(
    model: Model, dims: Mapping[str, int] | None, shapes: Mapping[str, str] | None
) -> Loaded:
    """A model given in any of its forms.

    Raises:
        UsageError: `dims` or `shapes` beside something that is loaded already; no model at all.
        ModelError: the model cannot be read, or a module cannot be captured.
    """
    if isinstance(model, str | Path):
        return load(model, dims=dims, shapes=shapes)
    if dims or shapes:
        raise UsageError("dims and shapes go with a path", hint="pass them to peakfold.load")
    if isinstance(model, Loaded):
        return model
    return Loaded(model if isinstance(model, Graph) else _captured(model), Bindings(), "")


def _captured(model: object) -> Graph:
    """The graph of a torch module that comes with its inputs."""
    torch = sys.modules.get("torch")
    if torch is not None:
        from peakfold.frontends.torch.module import Example, capture

        made = model
        if isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
            made = _example(made)
        if isinstance(made, Example):
            return capture(
                made.module, made.args, made.kwargs, dynamic=made.dynamic, route=made.route
            )
        if isinstance(made, torch.nn.Module):
            raise UsageError(
                f"the module {type(made).__name__!r} comes without inputs",
                hint="pass (module, (input, ...)), or an Example",
            )
    raise UsageError(
        f"a {type(model).__name__} is no model",
        hint="pass a path, a graph, what peakfold.load returned, or (torch module, inputs)",
    )


def _example(made: tuple[Any, ...]) -> Example:
    """``(module, args)`` or ``(module, args, kwargs)``; one input may stand alone."""
    from peakfold.frontends.torch.module import Example

    module, *rest = made
    args = rest[0] if rest else ()
    kwargs = rest[1] if len(rest) > 1 else {}
    if len(rest) not in (1, 2) or not isinstance(kwargs, Mapping):
        raise UsageError("a module comes as (module, args) or (module, args, kwargs)")
    return Example(module, tuple(args) if isinstance(args, tuple | list) else (args,), kwargs)


def called(loaded: Loaded) -> str:
    """The file's name, or else the graph's: exporters call every graph alike."""
    return Path(loaded.path).name or loaded.graph.name
