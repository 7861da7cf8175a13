"""Seeded mutations of real models: any file's bytes flipped and cut, ONNX structure broken."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

Edit = Callable[[bytearray, int, random.Random], None]
"""Changes bytes from a place on."""


def mutate_bytes(data: bytes, rng: random.Random, more: Sequence[Edit] = ()) -> bytes:
    """Flip, cut, repeat or insert bytes, or do what a format of its own suggests."""
    mutated = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(mutated) + 1)
        rng.choice([_flip, _cut, _repeat, _insert, *more])(mutated, at, rng)
    return bytes(mutated)


def _flip(data: bytearray, at: int, rng: random.Random) -> None:
    data[at : at + 1] = rng.randbytes(1)


def _cut(data: bytearray, at: int, rng: random.Random) -> None:
    del data[at : at + rng.randrange(1, 40)]


def _repeat(data: bytearray, at: int, rng: random.Random) -> None:
    data[at:at] = data[at : at + rng.randrange(1, 40)]


def _insert(data: bytearray, at: int, rng: random.Random) -> None:
    data[at:at] = rng.randbytes(rng.randrange(1, 8))


def mutate_structure(data: bytes, rng: random.Random) -> bytes:
    """Break the meaning of a model whose bytes stay well formed."""
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return data
    for _ in range(rng.choice([1, 1, 2, 4])):
        rng.choice(_STRUCTURE)(model, rng)
    return model.SerializeToString()


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
_NAMES = ["axis", "axes", "perm", "num_outputs", "batch_dims", "group", "strides", "pads",
          "dilations", "kernel_shape", "blocksize", "to", "k", "equation"]  # fmt: skip


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
    _drop_node, _swap_nodes, _rewire, _drop_or_add_io, _rename_op, _break_attribute, _break_dims,
    _break_types, _break_opset, _drop_initializer, _add_attribute, _break_ir_version, _break_data,
]  # fmt: skip
