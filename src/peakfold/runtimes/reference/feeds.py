"""Seeded values: inputs in the range their readers expect, and weights of a sane scale."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from peakfold.analysis.graph.index import is_opaque
from peakfold.errors import ModelError
from peakfold.ir import Graph, Tensor
from peakfold.ops.spec import concrete
from peakfold.runtimes.reference.program import Program, Value, dtype_of

# The operand that holds positions in operand 0, by kind.
_INDEX: Mapping[str, int] = {
    "gather": 1,
    "gather_elements": 1,
    "gather_nd": 1,
    "scatter": 1,
    "scatter_elements": 1,
    "scatter_nd": 1,
}
_TRIPS = 3
"""Most trips of a loop whose count is an input."""

# Operand positions that hold trained weights, by kind.
_WEIGHTS: Mapping[str, tuple[int, ...]] = {
    "conv": (1, 2), "conv_transpose": (1, 2), "gemm": (0, 1, 2), "matmul": (0, 1),
    "batch_normalization": (1, 2, 3, 4), "prelu": (1,), "lstm": (1, 2, 3), "gru": (1, 2, 3),
    "rnn": (1, 2, 3), "add": (0, 1), "sub": (0, 1), "mul": (0, 1),
}  # fmt: skip


def _rng(seed: int, name: str) -> np.random.Generator:
    """Random numbers that belong to one tensor: the same whatever else the model holds."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def input_values(graph: Graph, seed: int) -> dict[str, Value]:
    """A value for every input.

    Floating values are standard normal, bytes cover their range, wide integers are 0 or 1
    (positions, lengths and flags stay legal) or, where an op reads them as positions, below
    the length of what they index. The trips of a loop are at most 3, and it starts.

    Args:
        graph: the graph.
        seed: of all values.

    Raises:
        ModelError: an opaque input, or one of unknown shape.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[2]\\noutput x")
        >>> bool((input_values(g, 0)["x"] == input_values(g, 0)["x"]).all())
        True
    """
    return {
        name: _input(graph, graph[name], seed)
        for name in graph.inputs
        if not graph[name].role.static
    }


def _input(graph: Graph, tensor: Tensor, seed: int) -> Value:
    shape = concrete(tensor)
    if is_opaque(tensor) or shape is None:
        raise ModelError(
            "no value can be made up for it",
            where=f"input {tensor.name!r}",
            hint="the reference executor feeds tensors of known shapes",
        )
    rng, dtype = _rng(seed, tensor.name), dtype_of(tensor)
    if dtype.kind in "iu":
        return rng.integers(0, _below(graph, tensor, dtype), shape, dtype=np.int64).astype(dtype)
    if dtype.kind == "b":
        if any(op.kind == "loop" and tensor.name == op.inputs[1] for op in graph.ops):
            return np.ones(shape, dtype)
        return rng.integers(0, 2, shape).astype(dtype)
    value: Any = rng.standard_normal(shape)
    if dtype.kind == "c":
        value = value + 1j * rng.standard_normal(shape)
    return value.astype(dtype)


def _below(graph: Graph, tensor: Tensor, dtype: np.dtype[Any]) -> int:
    """One more than the largest integer that an input may hold."""
    bound = {"uint8": 256, "int8": 128}.get(dtype.name, 2)
    depths: list[int] = []
    for op in graph.ops:
        position = _INDEX.get(op.kind)
        if position is not None and tensor.name in op.inputs[position : position + 1]:
            shape, axis = concrete(graph[op.inputs[0]]), op.attrs.get("axis", 0)
            if shape and op.kind.endswith("_nd"):
                depths.append(min(shape))
            elif shape and isinstance(axis, int):
                depths.append(shape[axis])
        if op.kind == "loop" and tensor.name == op.inputs[0]:
            depths.append(_TRIPS + 1)
    return max(min(depths, default=bound), 1)


def random_weights(program: Program, seed: int) -> Program:
    """The program with every trained floating weight replaced by a random one.

    A weight is what ops read as such, and only as such: clip bounds, scales of a resize and
    exponents keep their values. Matrices and filters get normal values with variance
    2 / fan-in, so that activations neither vanish nor overflow; vectors are positive, since
    one of them may be a variance. Bodies of control flow keep their own weights.

    Args:
        program: the program.
        seed: of all values.
    """
    wanted = {name for name, value in program.statics.items() if _random(value)}
    for op in program.graph.ops:
        allowed = _WEIGHTS.get(op.kind, ())
        wanted.difference_update(n for at, n in enumerate(op.inputs) if at not in allowed)
        wanted.difference_update(n for region in op.regions for n in region.captures)
    statics = {
        name: _weight(name, value, seed) if name in wanted else value
        for name, value in program.statics.items()
    }
    return replace(program, statics=statics)


def _random(value: Value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim > 0


def _weight(name: str, value: Value, seed: int) -> Value:
    rng = _rng(seed, name)
    if value.ndim == 1 or value.size == max(value.shape):
        return rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
    # Filters are (out, in, ...); a matrix may stand either way, so its longer side is taken.
    fan = max(value.shape) if value.ndim == 2 else value.size // value.shape[0]
    values = rng.standard_normal(value.shape, dtype=np.float32)
    values *= np.float32(np.sqrt(2 / fan))
    return values.astype(value.dtype, copy=False)
