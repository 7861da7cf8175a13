"""Element-wise kernels that write into memory they are given, an operand's own included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from peakfold.runtimes.reference.kernels import Args, Array, Into, Kernel, Run

_UNARY: Mapping[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
}
_BINARY: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "sum": np.add,
}


def elementwise(kind: str, attrs: Mapping[str, Any], inputs: int, floating: bool) -> Kernel | None:
    """The kernel of an element-wise kind, or `None` when numpy has no direct one.

    Args:
        kind: the op kind.
        attrs: attributes of the ONNX node.
        inputs: how many inputs the node lists.
        floating: whether the operands are float32 or float64.

    Example:
        >>> kernel = elementwise("relu", {}, 1, True)
        >>> x = np.array([-1.0, 2.0])
        >>> kernel.into([x], x)
        >>> x
        array([0., 2.])
    """
    if kind == "relu":
        return _kernel(kind, _relu)
    if kind in _BINARY and inputs == 2:
        return _kernel(kind, _binary(_BINARY[kind]), operands=2)
    if not floating:
        return None
    if kind == "div":
        return _kernel(kind, _binary(np.true_divide), operands=2)
    if kind in _UNARY:
        return _kernel(kind, _unary(_UNARY[kind]))
    if kind == "clip":
        return _kernel(kind, _clip(attrs))
    if kind == "batch_normalization" and inputs == 5 and not attrs.get("training_mode"):
        return _kernel(kind, _batch_norm(attrs)) if attrs.get("spatial", 1) else None
    return None


def _kernel(kind: str, into: Into, operands: int = 1) -> Kernel:
    return Kernel(kind, _fresh(into, operands), into)


def _fresh(into: Into, operands: int) -> Run:
    """The same kernel with a result of its own, shaped by its first operands."""

    def run(args: Args) -> tuple[Array, ...]:
        shape = np.broadcast_shapes(*(arg.shape for arg in args[:operands]))
        out = np.empty(shape, args[0].dtype)
        into(args, out)
        return (out,)

    return run


def _relu(args: Args, out: Array) -> None:
    np.maximum(args[0], args[0].dtype.type(0), out=out)


def _unary(function: Callable[..., Any]) -> Into:
    def into(args: Args, out: Array) -> None:
        function(args[0], out=out)

    return into


def _binary(function: Callable[..., Any]) -> Into:
    def into(args: Args, out: Array) -> None:
        function(args[0], args[1], out=out)

    return into


def _clip(attrs: Mapping[str, Any]) -> Into:
    def into(args: Args, out: Array) -> None:
        x = args[0]
        low = args[1] if len(args) > 1 else attrs.get("min")
        high = args[2] if len(args) > 2 else attrs.get("max")
        low = -np.inf if low is None else low
        high = np.inf if high is None else high
        np.maximum(x, x.dtype.type(low), out=out)
        np.minimum(out, x.dtype.type(high), out=out)

    return into


def _batch_norm(attrs: Mapping[str, Any]) -> Into:
    """Inference: one factor and one summand a channel."""

    def into(args: Args, out: Array) -> None:
        x, scale, bias, mean, variance = args
        factor = scale / np.sqrt(variance + x.dtype.type(attrs.get("epsilon", 1e-5)))
        summand = bias - mean * factor
        channels = (-1, *(1,) * (x.ndim - 2))
        np.multiply(x, factor.reshape(channels), out=out)
        np.add(out, summand.reshape(channels), out=out)

    return into
