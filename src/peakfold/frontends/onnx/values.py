"""Small values that decide shapes: computed on demand, and only those that are asked for.

Exporters compute Reshape targets, Slice ranges and If conditions with little integer graphs.
Each needed value is evaluated by onnx's own reference kernels; weights are never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from peakfold.boundary import foreign
from peakfold.errors import ModelError
from peakfold.frontends.onnx.file import OnnxFile
from peakfold.ir import DType, Shape, element_count

Value = NDArray[Any]
MAX_ELEMENTS = 1024
"""Values above this are weights or data, not shapes."""
_MAX_DEPTH = 200
SHAPE_ARITHMETIC: Final = frozenset(
    {"abs", "add", "and", "arg_max", "arg_min", "bit_shift", "bitwise_and", "bitwise_not",
     "bitwise_or", "bitwise_xor", "cast", "cast_like", "ceil", "clip", "compress", "concat",
     "constant_of_shape", "cum_sum", "div", "equal", "exp", "expand", "flatten", "floor",
     "gather", "gather_elements", "gather_nd", "greater", "greater_or_equal", "identity",
     "is_inf", "is_nan", "less", "less_or_equal", "log", "max", "mean", "min", "mod", "mul",
     "neg", "non_zero", "not", "one_hot", "or", "pad", "pow", "range", "reciprocal",
     "reduce_l1", "reduce_l2", "reduce_log_sum", "reduce_log_sum_exp", "reduce_max",
     "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "reduce_sum_square", "relu",
     "reshape", "reverse_sequence", "round", "scatter", "scatter_elements", "scatter_nd",
     "shape", "sign", "size", "slice", "split", "sqrt", "squeeze", "sub", "sum", "tile",
     "top_k", "transpose", "trilu", "unique", "unsqueeze", "where", "xor"}
)  # fmt: skip
"""Kinds whose work is about as large as their operands and results, which are small."""


@dataclass(slots=True)
class Values:
    """Known values of one scope, chained to the enclosing one.

    Attributes:
        file: where stored tensors are read from.
        type_of: dtype and shape of any tensor in scope.
        foldable: whether the op of a node may be evaluated.
        declared: tensors whose shape the file only claims; nobody knows how large they get.
        shape_only: whether the op of a node needs only its inputs' shapes.
        bounded: tensors whose shape may be smaller in a run.
    """

    file: OnnxFile
    type_of: Callable[[str], tuple[DType, Shape | None]]
    foldable: Callable[[NodeProto], bool]
    shape_only: Callable[[NodeProto], bool]
    bounded: set[str]
    outer: Values | None = None
    stored: dict[str, TensorProto] = field(default_factory=dict)
    made_by: dict[str, NodeProto] = field(default_factory=dict)
    known: dict[str, Value | None] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)

    def get(self, name: str, depth: int = 0) -> Value | None:
        """The value, or `None` when it is not known before the run or is too large."""
        if name in self.known:
            return self.known[name]
        value: Value | None = None
        if name in self.stored:
            tensor = self.stored[name]
            if prod(tensor.dims) <= MAX_ELEMENTS:
                value = self.file.array(tensor)
        elif name in self.made_by:
            value = self._evaluate(name, depth) if depth < _MAX_DEPTH else None
        elif self.outer is not None:
            return self.outer.get(name, depth)
        self.known[name] = value
        return value

    def _evaluate(self, name: str, depth: int) -> Value | None:
        node = self.made_by[name]
        dtype, shape = self.type_of(name)
        count = None if shape is None else element_count(shape)
        if count is None or count > MAX_ELEMENTS or dtype.bits is None:
            return None
        if name in self.declared or not self.foldable(node):
            return None
        feeds: dict[str, Value] = {}
        for operand in node.input:
            value = self._operand(node, operand, depth) if operand else None
            if operand and value is None:
                return None
            if value is not None:
                feeds[operand] = value
        results = _run(node, feeds, self.file)
        return None if results is None else results.get(name)

    def _operand(self, node: NodeProto, name: str, depth: int) -> Value | None:
        if not self.shape_only(node):
            return self.get(name, depth + 1)
        _, shape = self.type_of(name)
        if shape is None or element_count(shape) is None or name in self.bounded:
            return None
        # Only the shape is read, so a zero-stride stand-in of any size costs no memory.
        try:
            return np.broadcast_to(np.zeros((), dtype=np.int8), tuple(int(d) for d in shape))
        except ValueError:  # more dimensions or elements than numpy counts
            return None


def _run(node: NodeProto, feeds: dict[str, Value], file: OnnxFile) -> dict[str, Value] | None:
    from onnx.reference import ReferenceEvaluator

    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    model = helper.make_model(
        helper.make_graph([node], "value", inputs, outputs),
        opset_imports=list(file.model.opset_import),
        ir_version=min(file.model.ir_version, 10),
    )
    try:
        with foreign("not known before the run"):  # a kernel is missing, or refuses
            results = ReferenceEvaluator(model).run(None, feeds)
    except ModelError:
        return None
    names = [name for name in node.output if name]
    return {n: np.asarray(v) for n, v in zip(names, results, strict=True) if v is not None}
