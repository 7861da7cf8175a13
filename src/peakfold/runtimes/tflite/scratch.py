"""Kernel scratch of a file's operators, from the target's table or from the interpreter."""

from __future__ import annotations

from peakfold.errors import RunFailed
from peakfold.runtimes.tflite.one_op import measure_need
from peakfold.runtimes.tflite.schema import (
    Model,
    dims,
    indices,
    operator_name,
    tensor_width,
    type_names,
)
from peakfold.target.scratch import Operand, load_scratch

Sizes = dict[tuple[int, int], tuple[int, ...] | None]
"""Bytes of each scratch buffer by (subgraph, operator); `None` = not known."""


def operand(model: Model, subgraph: int, tensor: int) -> Operand | None:
    """A tensor as formulas see it; `None` for an optional one that is absent."""
    if tensor < 0:
        return None
    found = model.subgraphs[subgraph].tensors[tensor]
    name = type_names().get(int(found.type), "unknown").lower()
    return Operand(name, dims(found), tensor_width(found) or 0)


def table_scratch(model: Model, target: str = "tflm") -> Sizes:
    """Scratch of every operator by the target's table."""
    table = load_scratch(target)
    sizes: Sizes = {}
    for number, graph in enumerate(model.subgraphs):
        for at, op in enumerate(graph.operators or ()):
            inputs = [operand(model, number, t) for t in indices(op.inputs)]
            outputs = [operand(model, number, t) for t in indices(op.outputs)]
            sizes[number, at] = table.sizes(
                operator_name(model, op), inputs, [o for o in outputs if o is not None]
            )
    return sizes


def known_scratch(model: Model, target: str = "tflm") -> dict[tuple[int, int], tuple[int, ...]]:
    """Scratch by the table, and by running alone each operator the table does not cover.

    Operators of a kind that the interpreter refuses are left out: the model cannot run there.
    """
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    refused: set[str] = set()
    for (number, at), sizes in table_scratch(model, target).items():
        if sizes is not None:
            found[number, at] = sizes
            continue
        name = operator_name(model, model.subgraphs[number].operators[at])
        if name in refused:
            continue
        try:
            found[number, at] = (measure_need(model, number, at).scratch,)
        except RunFailed:
            refused.add(name)
    return found
