"""One operator as a model of its own: what it needs and what it computes, from the interpreter.

Kernel scratch and persistent data are in no file. A model of the operator alone shows them: all
its tensors are alive at once, so its head is their sum and the scratch; what is persistent
beyond the interpreter's own records is the kernel's.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from peakfold.errors import RunFailed
from peakfold.runtimes.tflite.interpreter import Job, Outcome, run
from peakfold.runtimes.tflite.schema import (
    Model,
    Signature,
    called_subgraphs,
    classes,
    has_data,
    indices,
    pack_model,
    tensor_bytes,
)
from peakfold.units import round_up

_ARENA_SLACK = 1 << 20


def single(model: Model, subgraph: int, operator: int) -> Model:
    """A model of one operator: its tensors, their constants, nothing else.

    Raises:
        RunFailed: the operator runs subgraphs, so it cannot stand alone.
    """
    return cut(model, subgraph, (operator,))


def cut(model: Model, subgraph: int, operators: Sequence[int]) -> Model:
    """A model of some operators, in the order given; all their results are its outputs.

    Args:
        model: the whole.
        subgraph: where they stand.
        operators: their indices there; none of them runs subgraphs.

    Raises:
        RunFailed: an operator runs subgraphs, so it cannot stand alone.
    """
    schema = classes()
    source = model.subgraphs[subgraph]
    alone = schema.ModelT()
    alone.version = model.version
    alone.operatorCodes = model.operatorCodes
    alone.buffers = [schema.BufferT()]
    graph = schema.SubGraphT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [], []
    place: dict[int, int] = {-1: -1}

    def take(index: int, made: bool) -> int:
        if index not in place:
            tensor = copy.copy(source.tensors[index])
            tensor.buffer = 0
            place[index] = len(graph.tensors)
            if has_data(model, source.tensors[index]):
                tensor.buffer = len(alone.buffers)
                alone.buffers.append(model.buffers[source.tensors[index].buffer])
            elif not made and not tensor.isVariable:
                graph.inputs.append(place[index])
            graph.tensors.append(tensor)
        return place[index]

    for at in operators:
        op = source.operators[at]
        if called_subgraphs(model, op):
            raise RunFailed("an operator that runs subgraphs cannot run alone")
        made = copy.copy(op)
        made.inputs = [take(index, made=False) for index in indices(op.inputs)]
        made.outputs = [take(index, made=True) for index in indices(op.outputs)]
        made.intermediates = [take(i, made=True) for i in indices(op.intermediates)] or None
        graph.outputs += made.outputs
        graph.operators.append(made)
    alone.subgraphs = [graph]
    return alone


def own_bytes(alone: Model) -> int:
    """Bytes of the arena that the tensors of a one-operator model take, all alive at once."""
    return sum(
        round_up(tensor_bytes(tensor) or 0, 16)
        for tensor in alone.subgraphs[0].tensors
        if not has_data(alone, tensor) and not tensor.isVariable
    )


def run_alone(alone: Model, seeds: tuple[int, ...] = ()) -> Outcome:
    """Run a one-operator model in an arena that is large enough.

    Raises:
        RunFailed: the interpreter refuses it.
    """
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        path = Path(folder) / "operator.tflite"
        path.write_bytes(pack_model(alone))
        shape = Signature.of(alone)
        arena = 64 * own_bytes(alone) + 64 * _ARENA_SLACK
        return run(Job(path, min(arena, 1 << 30), shape.inputs, shape.results, seeds))


def scratch_alone(model: Model, subgraph: int, operator: int) -> int:
    """Bytes of the arena that an operator takes while it runs alone, beside its tensors.

    Every buffer is rounded up to 16.

    Raises:
        RunFailed: it cannot run alone, or the interpreter refuses it.
    """
    alone = single(model, subgraph, operator)
    return run_alone(alone).head - own_bytes(alone)


def evaluate(
    model: Model, subgraph: int, operators: Sequence[int]
) -> tuple[tuple[NDArray[Any], ...], ...]:
    """The results of operators that need no input, computed by their own kernels.

    Args:
        model: the whole.
        subgraph: where they stand.
        operators: in an order that makes every operand before it is read.

    Raises:
        RunFailed: the interpreter refuses one of them.
    """
    counts = [len(indices(model.subgraphs[subgraph].operators[at].outputs)) for at in operators]
    values = iter(run_alone(cut(model, subgraph, operators), seeds=(0,)).outputs[0])
    return tuple(tuple(next(values) for _ in range(count)) for count in counts)
