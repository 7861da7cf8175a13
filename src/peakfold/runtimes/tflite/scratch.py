"""Kernel scratch of a file's operators, from the target's table or from the interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peakfold.boundary import foreign
from peakfold.errors import ModelError, RunFailed
from peakfold.frontends.tflite.options import snake
from peakfold.runtimes.tflite.interpreter import Job, Outcome, run_all
from peakfold.runtimes.tflite.schema import (
    Model,
    Signature,
    dims,
    indices,
    operator_name,
    pack_model,
    scales,
    tensor_width,
    type_names,
)
from peakfold.runtimes.tflite.single_op import own_bytes, scratch_alone, single
from peakfold.target.formula import Operand, Values
from peakfold.target.scratch import load_scratch

Sizes = dict[tuple[int, int], tuple[int, ...] | None]
"""Bytes of each scratch buffer by (subgraph, operator); `None` = not known."""


def operand(model: Model, subgraph: int, tensor: int) -> Operand | None:
    """A tensor as formulas see it; `None` for an optional one that is absent."""
    if tensor < 0:
        return None
    found = model.subgraphs[subgraph].tensors[tensor]
    name = type_names().get(int(found.type), "unknown").lower()
    return Operand(name, dims(found), tensor_width(found) or 0, scales(found))


def values_of(model: Model, subgraph: int, op: Any, names: Mapping[str, int]) -> Values:
    """An operator as formulas see it.

    Args:
        model: the parsed file.
        subgraph: where the operator stands.
        op: the operator.
        names: numbers that a formula may name.
    """
    inputs = [operand(model, subgraph, t) for t in indices(op.inputs)]
    outputs = [operand(model, subgraph, t) for t in indices(op.outputs)]
    made = [one for one in outputs if one is not None]
    return Values(inputs, made, names, _options(op))


def _options(op: Any) -> dict[str, int] | None:
    """Numbers among an operator's options, a custom one's included; `None` = not readable."""
    raw = indices(op.customOptions)
    found: Any = {} if op.builtinOptions is None else vars(op.builtinOptions)
    if raw:
        try:
            with foreign("broken custom options"):
                from flatbuffers import flexbuffers

                found = flexbuffers.Loads(bytearray(bytes(raw)))
        except ModelError:
            return None
    if not isinstance(found, dict):
        return {}
    return {snake(str(name)): int(n) for name, n in found.items() if isinstance(n, int)}


def table_scratch(model: Model, target: str = "tflm", pointer: int | None = None) -> Sizes:
    """Scratch of every operator by the target's table.

    Args:
        model: the parsed file.
        target: whose kernels run it.
        pointer: bytes of an address, by default the table's.
    """
    table = load_scratch(target)
    sizes: Sizes = {}
    for number, graph in enumerate(model.subgraphs):
        for at, op in enumerate(graph.operators or ()):
            asked = values_of(model, number, op, {})
            sizes[number, at] = table.sizes(
                operator_name(model, op), asked.inputs, asked.outputs, asked.options, pointer
            )
    return sizes


def measured_scratch(model: Model) -> dict[tuple[int, int], int | None]:
    """Bytes of scratch of every operator, each run alone; `None` where it cannot be.

    Buffers are counted as the interpreter pads them.
    """
    alone: dict[tuple[int, int], Model] = {}
    found: dict[tuple[int, int], int | None] = {}
    with tempfile.TemporaryDirectory(prefix="peakfold-") as folder:
        jobs = []
        for number, graph in enumerate(model.subgraphs):
            for at in range(len(graph.operators or ())):
                found[number, at] = None
                try:
                    made = single(model, number, at)
                except RunFailed:
                    continue
                path = Path(folder) / f"{number}-{at}.tflite"
                path.write_bytes(pack_model(made))
                alone[number, at] = made
                shape = Signature.of(made)
                arena = min(8 * own_bytes(made) + (8 << 20), 1 << 30)
                jobs.append(Job(path, arena, shape.inputs, shape.results, build_only=True))
        for (where, made), outcome in zip(alone.items(), run_all(jobs), strict=True):
            if isinstance(outcome, Outcome):
                left = outcome.head - own_bytes(made)
                found[where] = left if left >= 0 else None
    return found


def known_scratch(
    model: Model, target: str = "tflm", pointer: int | None = None
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Scratch by the table, and by running alone each operator the table does not cover.

    Args:
        model: the parsed file.
        target: whose kernels run it.
        pointer: bytes of an address, by default the table's.

    Operators of a kind that the interpreter refuses are left out: the model cannot run there. So
    are those of another target than the interpreter's, whose kernels cannot be run here.
    """
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    refused: set[str] = set()
    for (number, at), sizes in table_scratch(model, target, pointer).items():
        if sizes is not None:
            found[number, at] = sizes
            continue
        name = operator_name(model, model.subgraphs[number].operators[at])
        if name in refused or target != "tflm":
            continue
        try:
            found[number, at] = (scratch_alone(model, number, at),)
        except RunFailed:
            refused.add(name)
    return found
