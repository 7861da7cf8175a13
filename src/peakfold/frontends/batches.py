"""A model read again with another batch, where the user named the symbol of its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from peakfold.errors import PeakfoldError
from peakfold.frontends import Bindings, load
from peakfold.ir import Graph


def rebatched(
    model: str, dims: Sequence[str], shapes: Sequence[str]
) -> Callable[[int], Graph] | None:
    """What reads the model at a batch; `None` where no symbol given by `dims` is its batch.

    Shapes inside follow the symbol then, as they do not follow a number that was put in its place.

    Args:
        model: as the user named it.
        dims: of ``--dim``.
        shapes: of ``--shape``.
    """
    bound = Bindings.parse(dims, shapes)
    if not bound.dims:
        return None
    try:
        graph = load(model, Bindings.parse((), shapes)).graph
    except PeakfoldError:
        return None
    leading = {(graph[name].shape or (None,))[0] for name in graph.inputs}
    symbols = leading & set(bound.dims)
    if len(symbols) != 1:
        return None
    (symbol,) = symbols

    def at(batch: int) -> Graph:
        return load(model, replace(bound, dims={**bound.dims, str(symbol): batch})).graph

    return at
