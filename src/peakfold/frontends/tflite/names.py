"""Names of a TFLite model's tensors and operators in the graph, and the way back.

Names in a file may be empty or repeated, and operators have none. A graph needs unique ones, so
they are made here, from the file alone, in one pass: the same file always gives the same names.

- A tensor of the first subgraph keeps its name. An empty one becomes ``tensor:INDEX``; one that
  is taken gets ``:INDEX`` appended, as often as it needs.
- A tensor of another subgraph is called ``SUBGRAPH/NAME``, where SUBGRAPH is its number, so that
  names are unique in the whole model.
- An operator is called like its first result, which no other operator makes; one without
  results is called after its kind, ``builtin:INDEX``.

A graph leaves out tensors that nothing uses, and a constant that repeats another's bytes, type
and shape is replaced by the first: not every tensor of a file has a tensor in the graph. Every
tensor that an operator makes, every input and every variable has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peakfold.frontends.tflite.file import StoredOp, StoredSubgraph, TfliteFile

Place = tuple[int, int]
"""Subgraph, and index of a tensor or operator in it."""


@dataclass(frozen=True, slots=True)
class Names:
    """Both directions of the naming.

    Attributes:
        tensor: name by (subgraph, tensor index).
        op: name by (subgraph, operator index).
        tensor_at: (subgraph, tensor index) by name.
        op_at: (subgraph, operator index) by name.
    """

    tensor: Mapping[Place, str]
    op: Mapping[Place, str]
    tensor_at: Mapping[str, Place]
    op_at: Mapping[str, Place]


def names_of_model(file: TfliteFile) -> Names:
    """The names of every tensor and operator of a file.

    Example:
        >>> from peakfold.ir import DTYPES
        >>> from peakfold.frontends.tflite.file import StoredTensor
        >>> same = StoredTensor("x", DTYPES["int8"], (1,), None, True, 0, False)
        >>> add = StoredOp("ADD", "", (0, 0), (1,), ())
        >>> part = StoredSubgraph("main", (same, same), (add,), (0,), (1,))
        >>> names = names_of_model(TfliteFile(memoryview(b""), (part, part), (), ()))
        >>> [names.tensor[0, 0], names.tensor[0, 1], names.tensor[1, 0]]
        ['x', 'x:1', '1/x']
        >>> names.op[0, 0], names.tensor_at["x:1"], names.op_at["1/x:1"]
        ('x:1', (0, 1), (1, 0))
    """
    tensors: dict[Place, str] = {}
    ops: dict[Place, str] = {}
    tensor_at: dict[str, Place] = {}
    op_at: dict[str, Place] = {}
    for number, graph in enumerate(file.subgraphs):
        prefix = f"{number}/" if number else ""
        for at, tensor in enumerate(graph.tensors):
            name = _unique(prefix + (tensor.name or f"tensor:{at}"), at, tensor_at)
            tensors[number, at] = name
            tensor_at[name] = (number, at)
    for number, graph in enumerate(file.subgraphs):
        for at, op in enumerate(graph.ops):
            wanted = _wanted(number, at, op, graph, tensors)
            name = _unique(wanted, at, op_at)
            ops[number, at] = name
            op_at[name] = (number, at)
    return Names(tensors, ops, tensor_at, op_at)


def _wanted(
    number: int, at: int, op: StoredOp, graph: StoredSubgraph, tensors: Mapping[Place, str]
) -> str:
    made = next((out for out in op.outputs if 0 <= out < len(graph.tensors)), None)
    if made is not None:
        return tensors[number, made]
    return f"{number}/{op.builtin.lower()}:{at}" if number else f"{op.builtin.lower()}:{at}"


def _unique(name: str, at: int, taken: Mapping[str, Place]) -> str:
    while name in taken:
        name = f"{name}:{at}"
    return name
