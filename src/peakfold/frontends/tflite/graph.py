"""A checked `.tflite` file -> a `Graph`: the first subgraph, others as bodies inside it.

Shapes are the file's, as the interpreters take them. With ``--shape`` or ``--dim`` they are
computed anew from the inputs by the registry's rules; a dimension that the file leaves open and
no rule gives stays unknown, and planners name the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from peakfold.errors import UsageError
from peakfold.frontends.tflite.control import Bodies
from peakfold.frontends.tflite.file import TfliteFile
from peakfold.frontends.tflite.names import names_of_model
from peakfold.frontends.tflite.scope import Model, Scope, open_shape
from peakfold.ir import Graph
from peakfold.ir.bindings import Bindings
from peakfold.ops.doubts import listed


def build_graph(file: TfliteFile, bindings: Bindings) -> tuple[Graph, Bindings]:
    """The IR graph of a file, and the bindings with every symbol that given shapes imply.

    Raises:
        UsageError: ``--dim`` or ``--shape`` name nothing, or contradict the model.
        ModelError: what is wrong with the model, and where.
    """
    model = Model(file, names_of_model(file), bindings, Bodies())
    _check_bindings(model)
    graph = Scope(model, 0, None).build()
    doubts = listed(model.differ.values())
    notes = (*file.notes, *doubts, *_summaries(model), *dict.fromkeys(model.notes))
    return replace(graph, notes=notes, doubts=doubts), model.bindings


def _check_bindings(model: Model) -> None:
    """Refuse numbers that would change nothing.

    Raises:
        UsageError: a dimension or tensor that cannot be given.
    """
    main, names, bindings = model.file.subgraphs[0], model.names, model.bindings
    symbols = {
        dim
        for at in main.inputs
        for dim in open_shape(main.tensors[at], names.tensor[0, at])
        if isinstance(dim, str)
    }
    for name in sorted(set(bindings.dims) - symbols):
        raise UsageError(
            f"--dim: no dimension of the model is called {name!r}",
            hint=f"open dimensions of its inputs: {', '.join(sorted(symbols)[:20]) or 'none'}",
        )
    for name in sorted(bindings.shapes):
        number, at = names.tensor_at.get(name, (0, -1))
        if at < 0:
            raise UsageError(f"--shape names no tensor of the model: {name!r}")
        made = any(at in op.outputs for op in model.file.subgraphs[number].ops)
        if not made and (number or at not in main.inputs):
            raise UsageError(
                f"--shape: {name!r} follows from something else",
                hint="shapes can be given for inputs of the model and for results of operators",
            )


def _summaries(model: Model) -> Iterable[str]:
    reached = {number for number, _ in model.bodies.built} | {0}
    left = len(model.file.subgraphs) - len(reached)
    if left:
        yield f"{left} subgraphs that the first does not call were left out"
