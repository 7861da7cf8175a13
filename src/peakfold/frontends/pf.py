"""The text form as a model file: the user's numbers are put into its symbols."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from peakfold import boundary
from peakfold.errors import UsageError
from peakfold.ir import Graph, check_graph, parse_graph
from peakfold.ir.bindings import Bindings
from peakfold.ops.facts import check_facts

MAX_BYTES = 1 << 26
"""Of a file; records of ops take forty times as much."""


def load_text(path: Path, bindings: Bindings) -> tuple[Graph, Bindings]:
    """The graph of a ``.pf`` file, each stated fact of a known op held against the registry.

    Raises:
        UsageError: the file cannot be read; a name of `bindings` that does not exist, or a
            shape that contradicts the graph.
        ModelError: a line that cannot be read, or a result that its op cannot make.
    """
    text = boundary.read_text(path, MAX_BYTES, "a text model")
    graph, bindings = bind_shapes(parse_graph(text, str(path)), bindings)
    check_graph(graph)
    check_facts(graph)
    return graph, bindings


def bind_shapes(graph: Graph, bindings: Bindings) -> tuple[Graph, Bindings]:
    """The graph with given shapes and dimensions in place.

    Raises:
        UsageError: a name that does not exist, or a shape that contradicts the graph.
    """
    for name in bindings.shapes:
        if name not in graph.by_name:
            raise UsageError(f"--shape names no tensor of the model: {name!r}")
    tensors = []
    for tensor in graph.tensors:
        if tensor.name not in bindings.shapes:
            tensors.append(tensor)
            continue
        shape, bound = bindings.merge_shape(tensor.name, tensor.shape)
        bindings = bindings.with_dims(bound)
        dtype = bindings.shapes[tensor.name].dtype or tensor.dtype
        kept = tensor.dtype if tensor.dtype.bits is not None else dtype
        tensors.append(replace(tensor, shape=shape, dtype=kept))
    symbols = set(graph.symbols)
    unknown = set(bindings.dims) - symbols
    if unknown:
        raise UsageError(
            f"--dim: no dimension of the model is called {min(unknown)!r}",
            hint=f"its symbols: {', '.join(sorted(symbols)) or 'none'}",
        )
    bound_graph = replace(graph, tensors=tuple(tensors))
    left = {name: number for name, number in bindings.dims.items() if name in bound_graph.symbols}
    return bound_graph.bind(left), bindings
