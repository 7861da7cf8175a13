"""Models of one contrib operator each, for every kernel that ONNX Runtime has on the CPU.

A recipe states operands and attributes; sizes differ from each other so that a rule that takes
one for another is seen, and the batch is more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]
CONTRIB = "com.microsoft"
BLOCKED = "com.microsoft.nchwc"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One op with operands.

    Attributes:
        op: type of the operator.
        operands: by position; `None` = absent.
        attrs: attributes.
        results: how many results are asked for; absent ones are listed in `absent`.
        stored: positions of operands that are in the file, not fed.
        note: tells recipes of one operator apart.
        before: nodes in front, which make operands out of fed ones (see `made`).
        made: position -> name of a value that `before` makes.
    """

    op: str
    operands: Sequence[Array | None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    results: int = 1
    absent: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    note: str = ""
    domain: str = CONTRIB
    opset: int = 21

    @property
    def name(self) -> str:
        """Of the case."""
        return " ".join(filter(None, (f"{self.domain}:{self.op}", self.note)))

    def model(self) -> tuple[ModelProto, dict[str, Array]]:
        """The model, without a word on the sizes of results, and what it is fed with."""
        inputs, stored, feeds, names = [], [], {}, []
        for at, value in enumerate(self.operands):
            name = "" if value is None else f"x{at}"
            names.append(name)
            if value is None:
                continue
            if at in self.stored:
                stored.append(numpy_helper.from_array(value, name))
                continue
            feeds[name] = value
            inputs.append(helper.make_tensor_value_info(name, code_of(value), value.shape))
        results = ["" if at in self.absent else f"y{at}" for at in range(self.results)]
        node = helper.make_node(self.op, names, results, "n", domain=self.domain, **self.attrs)
        outputs = [helper.make_empty_tensor_value_info(name) for name in results if name]
        graph = helper.make_graph([node], "contrib", inputs, outputs, stored)
        sets = [helper.make_opsetid("", self.opset)]
        sets += [helper.make_opsetid(name, 1) for name in (CONTRIB, BLOCKED)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10), feeds


def code_of(value: Array) -> int:
    """The `TensorProto` code of an array."""
    if value.dtype.kind in "OU":
        return int(TensorProto.STRING)
    return helper.np_dtype_to_tensor_dtype(value.dtype)


def f(*shape: int) -> Array:
    """Floats of a shape, between 0 and 1 and the same in every run."""
    return np.random.default_rng(shape).random(shape, np.float32)


def h(*shape: int) -> Array:
    """The same in half precision."""
    return f(*shape).astype(np.float16)


def u8(*shape: int) -> Array:
    """Bytes of a shape."""
    return np.random.default_rng(shape).integers(0, 255, shape, np.uint8)


def s8(*shape: int) -> Array:
    """Signed bytes of a shape."""
    return np.random.default_rng(shape).integers(-9, 9, shape, np.int8)


def i32(*values: Any) -> Array:
    """The given numbers; one number is a scalar."""
    return np.array(values[0] if len(values) == 1 else values, np.int32)


def i64(*values: Any) -> Array:
    """The given numbers; one number is a scalar."""
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def ids(*shape: int, below: int = 5, dtype: Any = np.int32) -> Array:
    """Indices of a shape, below a number."""
    return np.random.default_rng(shape).integers(0, below, shape, dtype)


S, Z8, ZS8 = np.float32(0.1).reshape(()), np.array(3, np.uint8), np.array(0, np.int8)
"""A scale and zero points."""
