"""Seeded mutations of ONNX files that stay well formed: broken structure, any field changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from .mutate_bytes import NUMBERS, WORDS


def mutate_structure(data: bytes, rng: random.Random) -> bytes:
    """Break the meaning of a model whose bytes stay well formed."""
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return data
    rng.choice([_any_field, *_STRUCTURE])(model, rng)
    return model.SerializeToString()


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if _repeated(field) else [value]:
                yield from _messages(inner)


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


def _any_field(model: ModelProto, rng: random.Random) -> None:
    """Some field of some message: set, emptied, told twice, or taken from another message."""
    found = list(_messages(model))
    message = rng.choice(found)
    fields = list(message.DESCRIPTOR.fields)
    present = [field for field, _ in message.ListFields()]
    field = rng.choice(present if present and rng.random() < 0.8 else fields)
    value = getattr(message, field.name)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        others = [m for m in found if m.DESCRIPTOR is field.message_type]
        _other_message(value, rng.choice(others) if others else None, _repeated(field), rng)
    elif _repeated(field):
        items = list(value)
        del value[:]
        value.extend(_other_items(items, field, rng))
    else:
        setattr(message, field.name, _scalar(field, rng))


def _other_message(value: Any, other: Message | None, repeated: bool, rng: random.Random) -> None:
    copy = None if other is None else type(other)()
    if copy is not None:
        copy.CopyFrom(other)
    if not repeated:
        if copy is None:
            value.Clear()
        else:
            value.CopyFrom(copy)
    elif len(value) and rng.random() < 0.5:
        del value[rng.randrange(len(value))]
    elif copy is not None:
        value.extend([copy] * rng.choice([1, 1, 2, 50]))


def _other_items(items: list[Any], field: Any, rng: random.Random) -> list[Any]:
    at = rng.randrange(len(items) + 1)
    how = rng.randrange(4)
    if how == 0 or not items:
        return [*items[:at], _scalar(field, rng), *items[at:]]
    if how == 1:
        return items[:at] + items[at + 1 :]
    if how == 2:
        return items * rng.choice([2, 3, 100]) if len(items) < 1000 else items[::-1]
    at = min(at, len(items) - 1)
    return [*items[:at], _scalar(field, rng), *items[at + 1 :]]


_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
_WIDE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def _scalar(field: Any, rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        word = rng.choice(WORDS)
        return word.encode() if field.type == FieldDescriptor.TYPE_BYTES else word
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice([0.0, -1.0, 1e38, float("inf"), float("nan")])
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    bits = 63 if kind in _WIDE else 31
    number = max(min(rng.choice(NUMBERS), 2**bits - 1), -(2**bits))
    return abs(number) if kind in _UNSIGNED else number


def _node(model: ModelProto, rng: random.Random) -> NodeProto | None:
    nodes = model.graph.node
    return nodes[rng.randrange(len(nodes))] if nodes else None


def _drop_node(model: ModelProto, rng: random.Random) -> None:
    if model.graph.node:
        del model.graph.node[rng.randrange(len(model.graph.node))]


def _swap_nodes(model: ModelProto, rng: random.Random) -> None:
    one, two = _node(model, rng), _node(model, rng)
    if one is not None and two is not None:
        copy = NodeProto()
        copy.CopyFrom(one)
        one.CopyFrom(two)
        two.CopyFrom(copy)


def _rewire(model: ModelProto, rng: random.Random) -> None:
    node, other = _node(model, rng), _node(model, rng)
    if node and other and node.input and other.output:
        node.input[rng.randrange(len(node.input))] = rng.choice([other.output[0], "", "nowhere"])


def _drop_or_add_io(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node is None:
        return
    names = rng.choice([node.input, node.output])
    if names and rng.random() < 0.7:
        del names[rng.randrange(len(names))]
    else:
        names.append(rng.choice(["", "extra", *names]))


def _rename_op(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node is not None:
        kinds = ["Conv", "Add", "Reshape", "Loop", "If", "Slice", "Concat", "Nope", "", "Split",
                 "Shape", "Constant", "Resize", "LSTM", "Scan", "Transpose", "Pad"]  # fmt: skip
        node.op_type = rng.choice(kinds)


def _break_attribute(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    if node is None or not node.attribute:
        return
    item = node.attribute[rng.randrange(len(node.attribute))]
    how = rng.randrange(4)
    if how == 0:
        item.i = rng.choice([-1, 0, 2**62, -(2**62), 7])
    elif how == 1 and item.ints:
        item.ints[rng.randrange(len(item.ints))] = rng.choice([-1, 0, 2**62, -(2**62), 99])
    elif how == 2:
        item.type = rng.choice([AttributeProto.INT, AttributeProto.STRING, AttributeProto.GRAPH])
    else:
        item.ints.append(rng.randrange(-3, 9))


def _break_dims(model: ModelProto, rng: random.Random) -> None:
    numbers = [-1, 0, -(2**40), 2**40, 2**62, 3]
    if model.graph.initializer and rng.random() < 0.5:
        tensor = model.graph.initializer[rng.randrange(len(model.graph.initializer))]
        if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(numbers)
        return
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if infos:
        dims = rng.choice(infos).type.tensor_type.shape.dim
        if dims:
            rng.choice(dims).dim_value = rng.choice(numbers)


def _break_types(model: ModelProto, rng: random.Random) -> None:
    if model.graph.initializer and rng.random() < 0.5:
        tensor = model.graph.initializer[rng.randrange(len(model.graph.initializer))]
        tensor.data_type = rng.choice([0, 1, 7, 8, 16, 99, TensorProto.STRING])
    elif model.graph.input:
        info = model.graph.input[rng.randrange(len(model.graph.input))]
        info.type.tensor_type.elem_type = rng.choice([0, 1, 7, 8, 16, 99])


def _break_opset(model: ModelProto, rng: random.Random) -> None:
    for entry in model.opset_import:
        entry.version = rng.choice([0, -1, 1, 5, 7, 13, 99, 2**40])


_EXTREMES = [0, -1, 1, 64, 65, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
_NAMES = [
    "axis",
    "axes",
    "perm",
    "num_outputs",
    "batch_dims",
    "group",
    "strides",
    "pads",
    "dilations",
    "kernel_shape",
    "blocksize",
    "to",
    "k",
    "equation",
]


def _add_attribute(model: ModelProto, rng: random.Random) -> None:
    """A number that C code may trust, in an attribute that may be none of the operator's."""
    node = _node(model, rng)
    if node is not None:
        item = node.attribute.add(name=rng.choice(_NAMES), i=rng.choice(_EXTREMES), s=b"...." * 9)
        item.type = rng.choice([AttributeProto.INT, AttributeProto.INTS, AttributeProto.STRING])
        item.ints.extend(rng.choice(_EXTREMES) for _ in range(rng.randrange(5)))


def _break_ir_version(model: ModelProto, rng: random.Random) -> None:
    model.ir_version = rng.choice(_EXTREMES)


def _break_data(model: ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        tensor = model.graph.initializer[rng.randrange(len(model.graph.initializer))]
        tensor.raw_data = rng.randbytes(rng.choice([0, 1, 4, 8, 16]))


def _drop_initializer(model: ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        del model.graph.initializer[rng.randrange(len(model.graph.initializer))]


_Break = Callable[[ModelProto, random.Random], None]
_STRUCTURE: list[_Break] = [
    _drop_node,
    _swap_nodes,
    _rewire,
    _drop_or_add_io,
    _rename_op,
    _break_attribute,
    _break_dims,
    _break_types,
    _break_opset,
    _drop_initializer,
    _add_attribute,
    _break_ir_version,
    _break_data,
]
