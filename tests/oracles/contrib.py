"""Models of one contrib operator each, for every kernel that ONNX Runtime has on the CPU.

A recipe states operands and attributes; sizes differ from each other so that a rule that takes
one for another is seen, and the batch is more than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .running import Sparse

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
        over: results that lie where an operand lies, by position.
    """

    op: str
    operands: Sequence[Array | Sparse | None]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    results: int = 1
    absent: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    note: str = ""
    domain: str = CONTRIB
    opset: int = 21
    over: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the case."""
        return " ".join(filter(None, (f"{self.domain}:{self.op}", self.note)))

    @property
    def shared(self) -> dict[str, str]:
        """Results and the operands they lie over, by name."""
        return {f"y{result}": f"x{operand}" for result, operand in self.over.items()}

    def model(self) -> tuple[ModelProto, dict[str, Array | Sparse]]:
        """The model, without a word on the sizes of results, and what it is fed with."""
        inputs, stored, names = [], [], []
        feeds: dict[str, Array | Sparse] = {}
        for at, value in enumerate(self.operands):
            name = "" if value is None else f"x{at}"
            names.append(name)
            if value is None:
                continue
            if at in self.stored and not isinstance(value, Sparse):
                stored.append(numpy_helper.from_array(value, name))
                continue
            feeds[name] = value
            if isinstance(value, Sparse):
                kind = TensorProto.FLOAT
                inputs.append(helper.make_sparse_tensor_value_info(name, kind, value.shape))
            else:
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
