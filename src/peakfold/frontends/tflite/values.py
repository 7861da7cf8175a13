"""Small values that decide shapes: stored ones, and what little graphs compute from shapes.

Converters compute a reshape's target with SHAPE, STRIDED_SLICE and PACK. Only whole numbers of
at most 1,024 elements are followed, so weights are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from peakfold.errors import ModelError
from peakfold.ir import DType, Op, Shape, element_count

Value = NDArray[Any]
MAX_ELEMENTS: Final = 1024

_NUMPY: Final = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
                 "float32", "float64")
}  # fmt: skip
_WHOLE: Final = frozenset(_NUMPY) - {"float32", "float64"}


def stored_value(dtype: DType, shape: Shape, data: memoryview) -> Value | None:
    """The value of a stored tensor, or `None` when it is large or of an exotic type.

    Args:
        dtype: element type.
        shape: dimensions.
        data: its bytes.

    Raises:
        ModelError: the bytes do not fit.
    """
    count = element_count(shape)
    if dtype.name not in _NUMPY or count is None or not count <= MAX_ELEMENTS:
        return None
    if len(data) != dtype.nbytes(count):
        raise ModelError(f"{len(data)} bytes are stored for {count} elements of {dtype}")
    return np.frombuffer(data, _NUMPY[dtype.name]).reshape([int(dim) for dim in shape])


def computed_value(
    op: Op, args: Sequence[Value | None], dtype: DType, shapes: Shapes
) -> Value | None:
    """What an op makes of known operands, or `None` when that is not known before the run.

    Args:
        op: the op, with the attributes its row reads.
        args: known values of its operands, by position.
        dtype: element type of its result.
        shapes: shapes of its operands.
    """
    if dtype.name not in _WHOLE:
        return None
    try:
        with np.errstate(all="ignore"):  # whole numbers wrap around, as in the kernels
            value = np.asarray(_compute(op, args, shapes)).astype(_NUMPY[dtype.name])
    except (ValueError, IndexError, TypeError, ArithmeticError):
        return None  # operands that do not fit: the checker and the row say what is wrong
    return value if value.size <= MAX_ELEMENTS else None


def _compute(op: Op, args: Sequence[Value | None], shapes: Shapes) -> Value:
    if op.kind == "shape":
        shape = shapes[0] or () if shapes else ()
        if not shapes or shapes[0] is None or not all(isinstance(dim, int) for dim in shape):
            raise ValueError
        return np.array(shape, np.int64)
    known = [arg for arg in args if arg is not None]
    function = _FUNCTIONS.get(op.kind)
    if function is None or len(known) != len(args) or not known:
        raise ValueError
    return np.asarray(function(op, known))


Shapes = Sequence[Shape | None]


def _strided(op: Op, args: list[Value]) -> Value:
    """A strided slice of a vector, the only form that shape arithmetic takes."""
    values, begin, end, step = (args[0], *(int(a.ravel()[0]) for a in args[1:4]))
    masks = {
        name: op.attrs.get(f"{name}_mask", 0)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if values.ndim != 1 or masks["ellipsis"] or masks["new_axis"] or op.attrs.get("offset"):
        raise ValueError
    if masks["shrink_axis"]:
        return np.asarray(values[begin])
    first = None if masks["begin"] else begin
    last = None if masks["end"] else end
    return values[slice(first, last, step)]


def _axis(op: Op) -> int:
    axis = op.attrs.get("axis", 0)
    return axis if isinstance(axis, int) else 0


def _reshaped(op: Op, args: list[Value]) -> Value:
    shape = op.attrs.get("shape")
    if not isinstance(shape, tuple):
        raise ValueError
    return args[0].reshape([int(d) for d in shape])


def _squeezed(op: Op, args: list[Value]) -> Value:
    axes = op.attrs.get("axes")
    where = tuple(int(a) for a in axes) if isinstance(axes, tuple) else None
    return np.squeeze(args[0], where)


def _divided(_op: Op, args: list[Value]) -> Value:
    if not (args[1] != 0).all():
        raise ZeroDivisionError
    return np.asarray(np.trunc(args[0] / args[1]))


def _floored(_op: Op, args: list[Value]) -> Value:
    if not (args[1] != 0).all():
        raise ZeroDivisionError
    return np.asarray(args[0] // args[1])


def _reduced(function: Callable[..., Any]) -> Callable[[Op, list[Value]], Value]:
    def run(op: Op, args: list[Value]) -> Value:
        axes = tuple(int(a) for a in args[1].ravel())
        return np.asarray(function(args[0], axis=axes, keepdims=bool(op.attrs.get("keepdims"))))

    return run


def _ranged(_op: Op, args: list[Value]) -> Value:
    start, limit, delta = (int(a.item()) for a in args[:3])
    span = range(start, limit, delta)
    if len(span) > MAX_ELEMENTS:
        raise ValueError
    return np.array(span)


def _gathered(op: Op, args: list[Value]) -> Value:
    if op.attrs.get("batch_dims"):
        raise ValueError
    return np.asarray(np.take(args[0], args[1], axis=_axis(op)))


_FUNCTIONS: Final[Mapping[str, Callable[[Op, list[Value]], Any]]] = {
    "add": lambda _, a: a[0] + a[1],
    "cast": lambda _, a: a[0],
    "concat": lambda op, a: np.concatenate(a, axis=_axis(op)),
    "div": _divided,
    "expand_dims": lambda _, a: np.expand_dims(a[0], int(a[1].item())),
    "floor_div": _floored,
    "max": lambda _, a: np.maximum(a[0], a[1]),
    "min": lambda _, a: np.minimum(a[0], a[1]),
    "mul": lambda _, a: a[0] * a[1],
    "pack": lambda op, a: np.stack(a, axis=_axis(op)),
    "range": _ranged,
    "reduce_max": _reduced(np.max),
    "reduce_prod": _reduced(np.prod),
    "reduce_sum": _reduced(np.sum),
    "reshape": _reshaped,
    "squeeze": _squeezed,
    "strided_slice": _strided,
    "sub": lambda _, a: a[0] - a[1],
    "tfl_gather": _gathered,
}
"""Kinds that shape arithmetic uses -> their function on known operands."""
