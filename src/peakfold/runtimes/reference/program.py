"""A graph that can be computed: a kernel per op, the values of what is static, and feeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakfold.analysis.graph.index import is_opaque
from peakfold.errors import ModelError
from peakfold.ir import Graph, Op, Tensor
from peakfold.ops.spec import concrete
from peakfold.runtimes.reference.kernels import Kernel

Bytes = NDArray[np.uint8]
Value = Any
"""An array; for opaque tensors (strings, sequences, maps) the Python object a kernel made."""


_OTHERWISE = frozenset({"resize", "upsample", "stft"})
"""Kinds of which onnx's reference kernels and runtimes make results of other sizes."""


class CannotRun(ModelError):
    """The reference kernels cannot run this model, which says nothing of the model or the plan."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A graph with everything that computing it needs.

    Attributes:
        graph: after the plan's recipe; what the plan's steps count.
        kernels: by op position; `None` for control flow, whose bodies are programs.
        statics: values of static tensors that ops read.
        feeds: values of the graph's inputs.
        notes: what a reader of the verdict must know, one line each.
        words: whether tensors have element types the kernels read; otherwise they are bytes.
        bodies: by op position and region; their feeds are known only when they run.
    """

    graph: Graph
    kernels: tuple[Kernel | None, ...]
    statics: Mapping[str, Value]
    feeds: Mapping[str, Value]
    notes: tuple[str, ...] = ()
    words: bool = True
    bodies: Mapping[tuple[int, int], Program] = field(default_factory=dict)

    def view(self, name: str, memory: Bytes, shape: tuple[int, ...] | None = None) -> Value:
        """A tensor's elements where they lie: a view, never a copy.

        Args:
            name: the tensor.
            memory: its bytes.
            shape: what it is now, for tensors whose shape only the run knows.

        Raises:
            ModelError: that is not known yet.
        """
        if not self.words:
            return memory
        tensor = self.graph[name]
        dims = self.shape_of(name) if shape is None else shape
        if dims is None:
            raise ModelError("its shape is not known yet", where=f"tensor {name!r}")
        dtype = dtype_of(tensor)
        count = math.prod(dims) * dtype.itemsize
        return memory[:count].view(dtype).reshape(dims)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """A tensor's shape; `None` where only the run tells it.

        So it is for every result of a graph that is doubtful: a size may be a bound.
        """
        if self.graph.doubts and name in self.graph.producer:
            return None
        return concrete(self.graph[name])

    def result(self, op: Op, name: str, value: Value) -> Value:
        """A kernel's result as the graph declares it.

        Args:
            op: the op, for errors.
            name: the tensor it makes.
            value: what the kernel made.

        Raises:
            CannotRun: another shape, where runtimes round otherwise than the reference kernels.
            ModelError: another shape or kind of element than the graph says.
        """
        tensor = self.graph[name]
        if is_opaque(tensor):
            return value
        array = np.asarray(value)
        want = self.shape_of(name) if self.words else (tensor.nbytes,)
        dtype = dtype_of(tensor) if self.words else np.dtype(np.uint8)
        fits = array.shape == want if want is not None else array.nbytes <= (tensor.nbytes or 0)
        if not fits or not np.can_cast(array.dtype, dtype, "same_kind"):
            other = self.graph.doubts or op.kind in _OTHERWISE
            raise (CannotRun if other else ModelError)(
                f"its kernel made {array.dtype}{list(array.shape)} for {name!r}, "
                f"the graph says {tensor.dtype}{'?' if want is None else list(want)}",
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
            f"elements of type {name} cannot be viewed in memory",
            where=f"tensor {tensor.name!r}",
            hint="the reference executor runs types of whole bytes only",
        )
    small = {"float8e8m0": "float8_e8m0fnu"}.get(name, name.replace("float8", "float8_"))
    scalar: Any = "int32" if name == "resource" else name  # the number of a variable
    if small.startswith(("float8", "bfloat")):
        import ml_dtypes  # comes with the versions of onnx that have these types

        scalar = getattr(ml_dtypes, small)
    dtype: np.dtype[Any] = np.dtype(scalar)
    return dtype


def slots(op: Op) -> tuple[str, ...]:
    """What a kernel is given: inputs by position, then what bodies capture beside them."""
    return (*op.inputs, *(name for name in op.operands if name not in op.inputs))


def formals(op: Op, region: int, given: Sequence[Value], args: Sequence[Value]) -> dict[str, Value]:
    """Inputs of a body by name: its formal ones in order, and what it captures.

    Args:
        op: the control-flow op.
        region: which body.
        given: values of the formal inputs.
        args: what the op was given, as `slots` lists it.
    """
    body = op.regions[region]
    captured = dict(zip(slots(op), args, strict=True))
    names = [name for name in body.graph.inputs if name not in body.captures]
    return dict(zip(names, given, strict=True)) | {n: captured[n] for n in body.captures}
