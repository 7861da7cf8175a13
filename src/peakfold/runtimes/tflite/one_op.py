"""One operator as a model of its own: what it needs and what it computes, from the interpreter.

Kernel scratch and persistent data are in no file. A model of the operator alone shows them: all
its tensors are alive at once, so its head is their sum and the scratch; what is persistent
beyond the interpreter's own records is the kernel's.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Need:
    """What an operator takes beside its tensors.

    Attributes:
        scratch: bytes of the arena while it runs, every buffer rounded up to 16.
        persistent: bytes its kernel keeps, in the tail.
    """

    scratch: int
    persistent: int


def single(model: Model, subgraph: int, operator: int, repeat: int = 1) -> Model:
    """A model of one operator: its tensors, their constants, nothing else.

    Args:
        model: the whole.
        subgraph: where it stands.
        operator: its index there; it calls no subgraphs.
        repeat: the operator several times, each with outputs of its own.

    Raises:
        RunFailed: the operator runs subgraphs, so it cannot stand alone.
    """
    schema = classes()
    source = model.subgraphs[subgraph]
    op = source.operators[operator]
    if called_subgraphs(model, op):
        raise RunFailed("an operator that runs subgraphs cannot run alone")
    alone = schema.ModelT()
    alone.version = model.version
    alone.operatorCodes = [model.operatorCodes[op.opcodeIndex]]
    empty = schema.BufferT()
    alone.buffers = [empty]
    graph = schema.SubGraphT()
    graph.tensors, graph.operators = [], []
    place: dict[int, int] = {-1: -1}

    def take(index: int) -> int:
        if index not in place:
            tensor = copy.copy(source.tensors[index])
            tensor.buffer = 0
            if has_data(model, source.tensors[index]):
                tensor.buffer = len(alone.buffers)
                alone.buffers.append(model.buffers[source.tensors[index].buffer])
            place[index] = len(graph.tensors)
            graph.tensors.append(tensor)
        return place[index]

    inputs = [take(index) for index in indices(op.inputs)]
    read = dict.fromkeys(
        place[index]
        for index in indices(op.inputs)
        if index >= 0
        and not has_data(model, source.tensors[index])
        and not source.tensors[index].isVariable
    )
    outputs: list[int] = []
    for _ in range(repeat):
        for index in indices(op.outputs):
            place.pop(index, None)
        made = copy.copy(op)
        made.opcodeIndex = 0
        made.inputs = inputs
        made.outputs = [take(index) for index in indices(op.outputs)]
        made.intermediates = [take(index) for index in indices(op.intermediates)] or None
        outputs += made.outputs
        graph.operators.append(made)
    graph.inputs, graph.outputs = list(read), outputs
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


def measure_need(model: Model, subgraph: int, operator: int) -> Need:
    """Scratch and persistent bytes of an operator, by running it alone.

    Raises:
        RunFailed: it cannot run alone, or the interpreter refuses it.
    """
    alone = single(model, subgraph, operator)
    outcome = run_alone(alone)
    return Need(
        scratch=outcome.head - own_bytes(alone),
        persistent=outcome.used.get("Persistent buffer data", 0),
    )


def evaluate(model: Model, subgraph: int, operator: int) -> tuple[NDArray[Any], ...]:
    """The results of an operator whose operands are constants, computed by its own kernel.

    Raises:
        RunFailed: the interpreter refuses it.
    """
    return run_alone(single(model, subgraph, operator), seeds=(0,)).outputs[0]
