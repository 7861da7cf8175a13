"""A graph that can be computed: a kernel per op, the values of what is static, and feeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from peakfold.analysis.index import is_opaque
from peakfold.errors import ModelError
from peakfold.ir import Graph, Op, Tensor
from peakfold.ops.spec import concrete
from peakfold.runtimes.kernels import Kernel

Bytes = NDArray[np.uint8]
Value = Any
"""An array; for opaque tensors (strings, sequences, maps) whatever Python object the kernel made."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A graph with everything that computing it needs.

    Attributes:
        graph: after the plan's recipe; what the plan's steps count.
        kernels: by op position.
        statics: values of static tensors that ops read.
        feeds: values of the graph's inputs.
        notes: what a reader of the verdict must know, one line each.
        words: whether tensors have element types the kernels read; otherwise they are bytes.
    """

    graph: Graph
    kernels: tuple[Kernel, ...]
    statics: Mapping[str, Value]
    feeds: Mapping[str, Value]
    notes: tuple[str, ...] = ()
    words: bool = True

    def view(self, name: str, memory: Bytes, shape: tuple[int, ...] | None = None) -> Value:
        """A tensor's elements where they lie: a view, never a copy.

        Args:
            name: the tensor.
            memory: its bytes.
            shape: what it is now, for tensors whose shape only the run knows.
        """
        if not self.words:
            return memory
        tensor = self.graph[name]
        dims = concrete(tensor) if shape is None else shape
        if dims is None:
            raise ModelError("its shape is not known yet", where=f"tensor {name!r}")
        dtype = dtype_of(tensor)
        count = math.prod(dims) * dtype.itemsize
        return memory[:count].view(dtype).reshape(dims)

    def result(self, op: Op, name: str, value: Value, shape: tuple[int, ...] | None) -> Value:
        """A kernel's result as the graph declares it.

        Args:
            op: the op, for errors.
            name: the tensor it makes.
            value: what the kernel made.
            shape: the shape the tensor must have, where only an earlier run knows it.

        Raises:
            ModelError: another shape or kind of element than the graph says.
        """
        tensor = self.graph[name]
        if is_opaque(tensor):
            return value
        array = np.asarray(value)
        want = (tensor.nbytes,) if not self.words else concrete(tensor) or shape
        dtype = dtype_of(tensor) if self.words else np.dtype(np.uint8)
        fits = want is None or array.shape == want
        if not fits or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ModelError(
                f"its kernel made {array.dtype}{list(array.shape)} for {name!r}, "
                f"the graph says {tensor.dtype}{list(want or ())}",
                where=f"op {op.name!r} ({op.kind})",
            )
        return array.astype(dtype, copy=False)


def dtype_of(tensor: Tensor) -> np.dtype[Any]:
    """The numpy type of a tensor's elements.

    Raises:
        ModelError: elements that are no whole bytes, which no array can view.

    Example:
        >>> from peakfold.ir import DTYPES
        >>> dtype_of(Tensor("x", DTYPES["bfloat16"], (2,)))
        dtype(bfloat16)
    """
    name, bits = tensor.dtype.name, tensor.dtype.bits
    if bits is None or bits % 8:
        raise ModelError(
            f"elements of type {name} cannot be viewed in memory", where=f"tensor {tensor.name!r}",
            hint="the reference executor runs types of whole bytes only",
        )  # fmt: skip
    known = {"float8e8m0": "float8_e8m0fnu"}
    if name.startswith("float8"):
        return np.dtype(getattr(ml_dtypes, known.get(name, name.replace("float8", "float8_"))))
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def slots(op: Op) -> tuple[str, ...]:
    """What a kernel is given: inputs by position, then what bodies capture beside them."""
    return (*op.inputs, *(name for name in op.operands if name not in op.inputs))
