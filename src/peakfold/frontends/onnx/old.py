"""Nodes of opsets below 7, one at a time, as opset 7 writes them.

onnx's own converter takes a model as a whole: one node that it cannot convert ends it, and a
binary operator's operand is unsqueezed to as many axes as the ranks differ, not to where ``axis``
says. Here a node is rewritten when the types of its operands are known. What cannot be rewritten
becomes an operator of a domain that no row describes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from peakfold.frontends.onnx.nodes import where
from peakfold.frontends.onnx.scope import Scope

_BINARY: Final = frozenset(
    {"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"}
)
_DROPPED: Final = frozenset({"consumed_inputs", "is_test", "output_sequence"})
_MOST: Final = 2**31
_STRANGE: Final = "ai.onnx.opset{}"

_Attrs = dict[str, Any]
_Rule = Callable[[Scope, NodeProto, _Attrs], "list[NodeProto] | None"]


def modern(scope: Scope, node: NodeProto) -> list[NodeProto]:
    """A node of the standard domain as opset 7 writes it, behind what prepares its operands.

    Args:
        scope: types and values of the operands.
        node: the node, which is left as it is.
    """
    found = NodeProto()
    found.CopyFrom(node)
    del found.attribute[:]
    found.attribute.extend(item for item in node.attribute if item.name not in _DROPPED)
    rule = _RULES.get(node.op_type)
    if rule is None:
        return [found]
    attrs = {item.name: helper.get_attribute_value(item) for item in found.attribute}
    parts = rule(scope, found, attrs) if node.output and node.output[0] else None
    if parts is not None:
        return parts
    version = scope.file.old
    scope.notes.append(f"{where(node)}: not understood in opset {version}")
    found.domain = _STRANGE.format(version)
    return [found]


def _rank(scope: Scope, name: str) -> int | None:
    shape = scope.type_of(name)[1]
    return None if shape is None else len(shape)


def _with(
    node: NodeProto, drop: Container[str] = (), inputs: Iterable[str] = (), **add: object
) -> NodeProto:
    """The node without some attributes, with others, and with other inputs where any are given."""
    kept = [item for item in node.attribute if item.name not in drop and item.name not in add]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(*item) for item in add.items())
    node.input[:] = list(inputs) or list(node.input)
    return node


def _unsqueezed(node: NodeProto, at: int, axes: range) -> tuple[NodeProto, str]:
    """A node that puts axes of length 1 into an operand, and what it makes."""
    name = f"{node.output[0]}/{node.input[at]}"
    made = helper.make_node("Unsqueeze", [node.input[at]], [name], name=name, axes=list(axes))
    return made, name


def _stored(node: NodeProto, what: str, values: Iterable[int]) -> tuple[NodeProto, str]:
    name = f"{node.output[0]}/{what}"
    tensor = numpy_helper.from_array(np.array(list(values), np.int64), name)
    return helper.make_node("Constant", [], [name], name=name, value=tensor), name


def _binary(scope: Scope, node: NodeProto, attrs: _Attrs) -> list[NodeProto] | None:
    """The second operand lies along the first from `axis` on; without it, at the end."""
    axis, written = attrs.get("axis"), ("axis", "broadcast")
    if not attrs.get("broadcast") or axis is None or len(node.input) != 2:
        return [_with(node, written)]
    first, second = (_rank(scope, name) for name in node.input)
    if first is None or second is None or not isinstance(axis, int):
        return None
    behind = first - (axis % first if -first <= axis < first else axis) - second
    if not 0 <= behind <= first:
        return None
    if not behind or not second:
        return [_with(node, written)]
    before, name = _unsqueezed(node, 1, range(second, second + behind))
    return [before, _with(node, written, [node.input[0], name])]


def _prelu(scope: Scope, node: NodeProto, _attrs: _Attrs) -> list[NodeProto] | None:
    """A slope per channel, which is the second axis."""
    if len(node.input) != 2:
        return None
    rank, slope = _rank(scope, node.input[0]), scope.type_of(node.input[1])[1]
    if rank is None or slope is None:
        return None
    if len(slope) != 1 or slope == (1,) or rank < 3:
        return [node]
    before, name = _unsqueezed(node, 1, range(1, rank - 1))
    return [before, _with(node, (), [node.input[0], name])]


def _cast(_scope: Scope, node: NodeProto, attrs: _Attrs) -> list[NodeProto] | None:
    """The element type by its name."""
    to = attrs.get("to")
    if not isinstance(to, bytes):
        return [node]
    word = to.decode("utf-8", "replace").upper()
    known = TensorProto.DataType.keys()
    return [_with(node, to=TensorProto.DataType.Value(word))] if word in known else None


def _pad(_scope: Scope, node: NodeProto, _attrs: _Attrs) -> list[NodeProto] | None:
    for item in node.attribute:
        if item.name == "paddings":
            item.name = "pads"
    return [node]


def _pool(_scope: Scope, node: NodeProto, attrs: _Attrs) -> list[NodeProto] | None:
    """The norm's order was a float; a window may have been left out."""
    order = attrs.get("p", 2)
    if not isinstance(order, int | float) or not 0 < order < _MOST:
        return None
    if node.op_type == "LpPool" and "kernel_shape" not in attrs:
        return None
    return [_with(node, p=int(order))]


def _concat(_scope: Scope, node: NodeProto, attrs: _Attrs) -> list[NodeProto] | None:
    return [node if "axis" in attrs else _with(node, axis=1)]


def _gemm(_scope: Scope, node: NodeProto, _attrs: _Attrs) -> list[NodeProto] | None:
    return [_with(node, ("broadcast",))]


def _upsample(_scope: Scope, node: NodeProto, attrs: _Attrs) -> list[NodeProto] | None:
    if "scales" in attrs:
        return [node]
    names = ("height_scale", "width_scale")
    by = [attrs.get(name) for name in names]
    if not all(isinstance(scale, float) and 0 < scale < _MOST for scale in by):
        return None
    return [_with(node, names, scales=[1.0, 1.0, *by])]


def _reshape(scope: Scope, node: NodeProto, attrs: _Attrs) -> list[NodeProto] | None:
    if len(node.input) != 1:
        return [node] if scope.file.old >= 5 else None
    shape = attrs.get("shape")
    if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
        return None
    before, name = _stored(node, "shape", shape)
    return [before, _with(node, ("shape",), [node.input[0], name])]


def _split(scope: Scope, node: NodeProto, _attrs: _Attrs) -> list[NodeProto] | None:
    """How long the parts are may have been an operand."""
    if len(node.input) < 2 or not node.input[1]:
        return [node]
    sizes = _numbers(scope, node.input[1])
    return None if not sizes else [_with(node, (), [node.input[0]], split=sizes)]


def _tile(scope: Scope, node: NodeProto, _attrs: _Attrs) -> list[NodeProto] | None:
    """How often, and along which axis, as two operands."""
    if len(node.input) != 3:
        return [node] if scope.file.old >= 6 else None
    rank = _rank(scope, node.input[0])
    tiles, axis = (_numbers(scope, name) for name in node.input[1:])
    if rank is None or len(tiles) != 1 or len(axis) != 1 or not -rank <= axis[0] < rank:
        return None
    repeats = [1] * rank
    repeats[axis[0]] = tiles[0]
    before, name = _stored(node, "repeats", repeats)
    return [before, _with(node, (), [node.input[0], name])]


def _numbers(scope: Scope, name: str) -> list[int]:
    """A known value as integers; none where it is not known, or holds anything else."""
    value = scope.values.get(name)
    if value is None or value.dtype.kind not in "fiu" or not (abs(value) < _MOST).all():
        return []
    return [int(number) for number in value.ravel()]


_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(_BINARY, _binary),
    "Cast": _cast,
    "Concat": _concat,
    "Gemm": _gemm,
    "GlobalLpPool": _pool,
    "LpPool": _pool,
    "PRelu": _prelu,
    "Pad": _pad,
    "Reshape": _reshape,
    "Split": _split,
    "Tile": _tile,
    "Upsample": _upsample,
}
