"""Seeded mutations of `.tflite` files whose bytes stay well formed: broken structure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import flatbuffers

from peakfold.frontends.tflite.schema import names_of, schema

from .mutate_bytes import NUMBERS, WORDS, mutate_bytes


def mutate_structure(data: bytes, rng: random.Random) -> bytes:
    """Break the meaning of a model whose bytes stay well formed."""
    try:
        model = unpacked(data)
        rng.choice([_any_field, *_STRUCTURE])(model, rng)
        return packed(model)
    except Exception:  # flatbuffers' own: a field was changed to what cannot be written
        return mutate_bytes(data, rng)


def _records(record: Any) -> Iterator[Any]:
    yield record
    for value in vars(record).values():
        for inner in value if isinstance(value, list) else [value]:
            if hasattr(inner, "Pack"):
                yield from _records(inner)


def _any_field(model: Any, rng: random.Random) -> None:
    """Some field of some table: another number or name, a list cut or told twice, nothing."""
    record = rng.choice(list(_records(model)))
    name = rng.choice(list(vars(record)))
    old = getattr(record, name)
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, int):
        new = rng.choice([n for n in NUMBERS if -(2**31) <= n < 2**32])
    elif isinstance(old, bytes | str):
        new = rng.choice(WORDS)
    elif isinstance(old, list) and old:
        at = rng.randrange(len(old))
        new = rng.choice([old[:at], old[at + 1 :], old * 2, old[::-1], [old[at]] * 70, None])
    else:
        new = None
    setattr(record, name, new)


def unpacked(data: bytes) -> Any:
    return schema().ModelT.InitFromObj(schema().Model.GetRootAs(data, 0))


def packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _graph(model: Any, rng: random.Random) -> Any:
    return rng.choice([graph for graph in model.subgraphs if graph.tensors])


def _op(model: Any, rng: random.Random) -> Any:
    graph = _graph(model, rng)
    return rng.choice(graph.operators) if graph.operators else None


def _drop_op(model: Any, rng: random.Random) -> None:
    graph = _graph(model, rng)
    if graph.operators:
        del graph.operators[rng.randrange(len(graph.operators))]


def _swap_ops(model: Any, rng: random.Random) -> None:
    ops = _graph(model, rng).operators
    if len(ops) > 1:
        a, b = rng.sample(range(len(ops)), 2)
        ops[a], ops[b] = ops[b], ops[a]


def _rewire(model: Any, rng: random.Random) -> None:
    graph = _graph(model, rng)
    op = rng.choice(graph.operators) if graph.operators else None
    if op is None:
        return
    listed = list(rng.choice([op.inputs, op.outputs]))
    if not listed:
        return
    listed[rng.randrange(len(listed))] = rng.choice(
        [-1, -2, 0, len(graph.tensors) - 1, len(graph.tensors), 2**31 - 1]
    )
    if rng.random() < 0.5:
        op.inputs = listed
    else:
        op.outputs = listed


def _resize_list(model: Any, rng: random.Random) -> None:
    graph = _graph(model, rng)
    owner, name = rng.choice([(graph, "inputs"), (graph, "outputs")])
    op = _op(model, rng)
    if op is not None and rng.random() < 0.7:
        owner, name = op, rng.choice(["inputs", "outputs"])
    listed = list(getattr(owner, name) if getattr(owner, name) is not None else [])
    if listed and rng.random() < 0.5:
        del listed[rng.randrange(len(listed))]
    else:
        listed.append(rng.choice([0, -1, *listed]))
    setattr(owner, name, listed)


def _other_kind(model: Any, rng: random.Random) -> None:
    code = rng.choice(model.operatorCodes)
    number = rng.choice([*names_of("BuiltinOperator"), 250, 2**31 - 1])
    code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)


def _shape(model: Any, rng: random.Random) -> None:
    tensor = rng.choice(_graph(model, rng).tensors)
    numbers = [-1, 0, 1, 2**31 - 1, -(2**31), 3]
    how = rng.randrange(4)
    dims = list(tensor.shape) if tensor.shape is not None else []
    if how == 0 and dims:
        dims[rng.randrange(len(dims))] = rng.choice(numbers)
        tensor.shape = dims
    elif how == 1:
        tensor.shape = [*dims, rng.choice(numbers)]
    elif how == 2:
        tensor.shapeSignature = [-1] * rng.randrange(5)
    else:
        tensor.shape = rng.choice([None, dims[:-1]])


def _type(model: Any, rng: random.Random) -> None:
    rng.choice(_graph(model, rng).tensors).type = rng.choice([0, 2, 4, 5, 9, 13, 14, 17, 99])


def _buffer(model: Any, rng: random.Random) -> None:
    tensor = rng.choice(_graph(model, rng).tensors)
    tensor.buffer = rng.choice([0, len(model.buffers) - 1, len(model.buffers), 2**31])


def _stored(model: Any, rng: random.Random) -> None:
    buffer = rng.choice(model.buffers)
    how = rng.randrange(3)
    if how == 0:
        buffer.offset, buffer.size = rng.choice([(2, 2**63), (2**40, 4), (8, 4), (1, 1)])
    elif how == 1 and buffer.data is not None and len(buffer.data):
        buffer.data = list(buffer.data)[: rng.randrange(len(buffer.data))]
    elif buffer.data is not None and 0 < len(buffer.data) <= 64:
        buffer.data = [rng.choice([0, 255, b]) for b in buffer.data]


def _options(model: Any, rng: random.Random) -> None:
    op = _op(model, rng)
    if op is None or op.builtinOptions is None:
        return
    numbers = [name for name, v in vars(op.builtinOptions).items() if type(v) is int]
    if numbers and rng.random() < 0.8:
        setattr(op.builtinOptions, rng.choice(numbers), rng.choice([-1, 0, 1, 2, 5, 100, 127]))
    else:
        op.builtinOptions = None


def _variable(model: Any, rng: random.Random) -> None:
    tensor = rng.choice(_graph(model, rng).tensors)
    tensor.isVariable = not tensor.isVariable


def _call(model: Any, rng: random.Random) -> None:
    """Make some operator call a subgraph, itself among them."""
    name, options = rng.choice(
        [("WHILE", "WhileOptions"), ("IF", "IfOptions"), ("CALL_ONCE", "CallOnceOptions")]
    )
    number = next(n for n, v in names_of("BuiltinOperator").items() if v == name)
    op = _op(model, rng)
    if op is None:
        return
    code = schema().OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
    model.operatorCodes.append(code)
    op.opcodeIndex = len(model.operatorCodes) - 1
    op.builtinOptionsType = getattr(schema().BuiltinOptions, options)
    op.builtinOptions = getattr(schema(), options + "T")()
    for field in vars(op.builtinOptions):
        setattr(op.builtinOptions, field, rng.choice([-1, 0, 1, 2, 9]))
    if rng.random() < 0.5:
        op.inputs = op.outputs = []
    if rng.random() < 0.5:
        extra = schema().SubGraphT()
        extra.tensors, extra.inputs, extra.outputs = [], [], []
        extra.operators = [op] if rng.random() < 0.3 else []
        model.subgraphs.append(extra)


_Break = Callable[[Any, random.Random], None]
_STRUCTURE: list[_Break] = [
    _drop_op,
    _swap_ops,
    _rewire,
    _resize_list,
    _other_kind,
    _shape,
    _type,
    _buffer,
    _stored,
    _options,
    _variable,
    _call,
]
