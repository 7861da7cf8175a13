"""Attributes as the registry's rows read them, from options and from operands of known value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from numpy.typing import NDArray

from peakfold.frontends.tflite.file import StoredOp
from peakfold.ir import AttrValue, Shape, Tensor
from peakfold.ops import VALUE_INPUTS
from peakfold.ops.spec import concrete

Value = NDArray[Any]
Attrs = dict[str, AttrValue]

_TO_THE_END: Final = 2**31 - 1


def attributes(
    kind: str, op: StoredOp, values: Mapping[int, Value], outputs: tuple[Tensor | None, ...]
) -> Attrs:
    """What the rows of a kind read, and the rest of the operator's options.

    Args:
        kind: op kind.
        op: the operator.
        values: known values of its operands, by position.
        outputs: its results as the file states them: their element types, and for
            operators whose options lack it their shape.
    """
    attrs = dict(op.options)
    change = _CHANGES.get(kind)
    if change is not None:
        change(attrs, outputs)
    for at, name in VALUE_INPUTS.get(kind, {}).items():
        if at in values:
            attrs[name] = _plain(values[at])
        elif at < len(op.inputs) and op.inputs[at] >= 0:
            attrs.pop(name, None)  # an operand overrules an option
    if kind == "pad" and 1 in values:
        attrs.pop("pads")
        if values[1].size % 2 == 0:  # an odd number says nothing, and the row then stops
            attrs["pads"] = _pads(values[1])
    if op.builtin == "MIRROR_PAD":
        attrs["mode"] = "symmetric" if attrs.get("mode") else "reflect"
    return attrs


def _plain(value: Value) -> AttrValue:
    items = value.ravel().tolist()
    return items[0] if value.ndim == 0 else tuple(items)


def _pads(value: Value) -> AttrValue:
    """[axis][before, after] as ONNX's row reads it: all befores, then all afters."""
    pairs = value.reshape(-1, 2)
    return tuple(int(n) for n in (*pairs[:, 0], *pairs[:, 1]))


def _stated_shape(outputs: tuple[Tensor | None, ...]) -> Shape | None:
    return concrete(outputs[0]) if outputs and outputs[0] is not None else None


def _to(attrs: Attrs, outputs: tuple[Tensor | None, ...]) -> None:
    if outputs and outputs[0] is not None:
        attrs["to"] = outputs[0].dtype.name


def _reduction(attrs: Attrs, _outputs: tuple[Tensor | None, ...]) -> None:
    attrs["keepdims"] = int(bool(attrs.pop("keep_dims", 0)))
    attrs["noop_with_empty_axes"] = 1


def _arg_reduction(attrs: Attrs, _outputs: tuple[Tensor | None, ...]) -> None:
    attrs["keepdims"] = 0


def _joining(attrs: Attrs, _outputs: tuple[Tensor | None, ...]) -> None:
    attrs["axis"] = attrs.pop("dimension", attrs.get("axis", 0))


def _first_axis(attrs: Attrs, _outputs: tuple[Tensor | None, ...]) -> None:
    attrs.setdefault("axis", 0)


def _squeezing(attrs: Attrs, _outputs: tuple[Tensor | None, ...]) -> None:
    if "squeeze_dims" in attrs:
        attrs["axes"] = attrs.pop("squeeze_dims")


def _reshaping(attrs: Attrs, outputs: tuple[Tensor | None, ...]) -> None:
    shape = attrs.pop("new_shape", None)
    stated = _stated_shape(outputs)
    attrs["allowzero"] = 1
    if shape is not None:
        attrs["shape"] = shape
    elif stated is not None:
        attrs["shape"] = tuple(int(d) for d in stated)  # neither option nor operand: the result


def _as_stated(attrs: Attrs, outputs: tuple[Tensor | None, ...]) -> None:
    stated = _stated_shape(outputs)
    if stated is not None:
        attrs["shape"] = tuple(int(d) for d in stated)


_CHANGES: Final[Mapping[str, Callable[[Attrs, tuple[Tensor | None, ...]], None]]] = {
    "arg_max": _arg_reduction,
    "arg_min": _arg_reduction,
    "cast": _to,
    "concat": _joining,
    "one_hot": _first_axis,
    "quantize": _to,
    "reduce_all": _reduction,
    "reduce_any": _reduction,
    "reduce_max": _reduction,
    "reduce_mean": _reduction,
    "reduce_min": _reduction,
    "reduce_prod": _reduction,
    "reduce_sum": _reduction,
    "reshape": _reshaping,
    "squeeze": _squeezing,
    "stablehlo_broadcast_in_dim": _as_stated,
    "tfl_bitcast": _to,
}
