"""What the rows of TFLite's operators share: fused activations, NHWC windows.

Shapes and options: the TFLite schema (schema.fbs) and the operators' documentation. Layout is
batch, rows, columns, channels; padding is a word; an activation may be fused into an operator.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.types import Dim
from peakfold.ops.inference import CannotTell, given, integer, produced, text
from peakfold.ops.rules import count, number
from peakfold.ops.spec import Context, CountRule

# A rectifier with an upper bound compares twice.
_ACTIVATIONS: Final = {
    "none": 0,
    "relu": 1,
    "relu6": 2,
    "relu_n1_to_1": 2,
    "tanh": 1,
    "sign_bit": 1,
}


def activation(ctx: Context) -> int:
    """Scalar operations per element of the activation fused into an op.

    Raises:
        CannotTell: an activation this version does not know.
    """
    name = text(ctx, "fused_activation", "none")
    if name not in _ACTIVATIONS:
        raise CannotTell
    return _ACTIVATIONS[name]


def fused(operations: int = 0, bias: int | None = None) -> CountRule:
    """`operations` per output element, one for a bias that is given, and the activation's.

    Example:
        >>> from peakfold.ir.graph import Op, Tensor
        >>> from peakfold.ir.types import DTYPES
        >>> x = Tensor("x", DTYPES["float32"], (2, 3))
        >>> op = Op("n", "add", ("x", "x"), ("y",), {"fused_activation": "relu6"})
        >>> fused(1)(Context(op, (x, x), (x,)))
        18
    """

    def rule(ctx: Context) -> int:
        each = operations + activation(ctx)
        if bias is not None and given(ctx, bias):
            each += 1
        return each * prod(produced(ctx))

    return count(rule)


def window(size: Dim, taps: int, stride: int, dilation: int, padding: str) -> Dim:
    """Positions that a window takes along an axis.

    ``same`` covers every element, ``valid`` stays inside the data.

    Raises:
        CannotTell: the window does not fit, or the axis is a symbol that would change.

    Example:
        >>> window(96, 3, 2, 1, "same"), window(96, 3, 2, 1, "valid"), window("n", 3, 1, 1, "same")
        (48, 47, 'n')
    """
    if stride < 1 or taps < 1 or dilation < 1:
        raise CannotTell
    if padding == "same":
        return size if stride == 1 else -(-number(size) // stride)
    if padding != "valid":
        raise CannotTell
    room = number(size) - (taps - 1) * dilation
    if room < 1:
        raise CannotTell
    return -(-room // stride)


def slid(ctx: Context, spatial: tuple[Dim, ...], taps: tuple[int, ...]) -> tuple[Dim, ...]:
    """Output size along rows and columns (or depth, rows, columns), options applied."""
    padding = text(ctx, "padding", "same")
    axes = ("d", "h", "w")[-len(spatial) :]
    return tuple(
        window(
            size,
            tap,
            integer(ctx, f"stride_{axis}"),
            integer(ctx, f"dilation_{axis}_factor", 1),
            padding,
        )
        for size, tap, axis in zip(spatial, taps, axes, strict=True)
    )
