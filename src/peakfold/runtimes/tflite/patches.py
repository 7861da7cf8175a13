"""A network split into bands of rows, as operators and tensors to add to its file.

A band's operators are those of the whole image on fewer rows: the same options, weights and
quantisation. A cut of rows is a SLICE and the bands are joined by a CONCATENATION; only the
constants that say where to cut, and by how much to pad, are new.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peakfold.errors import InvalidPlan
from peakfold.frontends.tflite.file import TfliteFile
from peakfold.frontends.tflite.names import Names
from peakfold.ir import Graph, Op
from peakfold.ops import context
from peakfold.ops.spec import concrete
from peakfold.runtimes.tflite.schema import Model, classes, operator_code, type_names
from peakfold.target import load_target


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor like another one, of another shape.

    Attributes:
        like: what it has its type and quantisation from.
        instead: whether it takes that tensor's place. The interpreter sets memory aside for
            every tensor of a file, whether anything uses it or not.
    """

    name: str
    like: int
    shape: tuple[int, ...]
    instead: bool = False


@dataclass(frozen=True, slots=True)
class NewConstant:
    """Whole numbers that an operator reads; of the type of `like`, or int32."""

    name: str
    values: tuple[int, ...]
    shape: tuple[int, ...]
    like: int = -1


@dataclass(frozen=True, slots=True)
class NewOperator:
    """An operator like another one (or a SLICE, a CONCATENATION) on other tensors."""

    like: int
    builtin: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Growth:
    """What a split adds to the main graph of a file, and what it replaces.

    Attributes:
        tensors: appended to the file's, in this order, apart from those that take a place.
        operators: appended.
        replaced: operators that are no longer run.
    """

    tensors: tuple[NewTensor | NewConstant, ...] = ()
    operators: tuple[NewOperator, ...] = ()
    replaced: frozenset[int] = field(default=frozenset())


def growth(whole: Graph, split: Graph, names: Names, file: TfliteFile) -> tuple[Growth, Names]:
    """What a split adds to a file, and the names that tensors and operators then have.

    Args:
        whole: the graph before the split.
        split: the graph after it.
        names: of the file.
        file: as it is.

    Raises:
        InvalidPlan: the graph has ops that no operator of the file can do.
    """
    return _Growing(whole, split, names, file).run()


class _Growing:
    def __init__(self, whole: Graph, split: Graph, names: Names, file: TfliteFile) -> None:
        self.whole, self.split, self.names = whole, split, names
        self.stored = file.subgraphs[0]
        self.ops = {op.name: op for op in whole.ops}
        self.tensor_at: dict[str, tuple[int, int]] = dict(names.tensor_at)
        self.op_at: dict[str, tuple[int, int]] = dict(names.op_at)
        self.tensors: list[NewTensor | NewConstant] = []
        self.operators: list[NewOperator] = []
        self.constants: dict[tuple[tuple[int, ...], int], int] = {}
        self.taken: set[int] = set()
        self.count = 0

    def run(self) -> tuple[Growth, Names]:
        kept = set()
        for op in self.split.ops:
            if op.name in self.ops:
                kept.add(op.name)
            else:
                self._add(op)
        gone = frozenset(self.names.op_at[name][1] for name in self.ops if name not in kept)
        names = Names(self.names.tensor, self.names.op, self.tensor_at, self.op_at)
        return Growth(tuple(self.tensors), tuple(self.operators), gone), names

    def _add(self, op: Op) -> None:
        like = self.ops.get(op.name.rpartition("@")[0])
        if like is not None:
            made = self._clone(op, like)
        elif op.kind == "slice":
            made = self._slice(op)
        elif op.kind == "concat":
            most = load_target("tflm").concat_operands
            if len(op.inputs) > most:
                raise InvalidPlan(
                    f"it joins {len(op.inputs)} bands, and the interpreter at most {most}",
                    hint=f"plan with --split TENSOR={most}",
                )
            inputs = tuple(self._index(name) for name in op.inputs)
            axis = context(op, self.split.by_name).int_attr("axis", 0)
            made = NewOperator(-1, "CONCATENATION", inputs, (self._index(op.outputs[0]),), axis)
        else:
            raise InvalidPlan(f"op {op.name!r} ({op.kind}) is no operator of the file")
        self.op_at[op.name] = (0, len(self.stored.ops) + len(self.operators))
        self.operators.append(made)

    def _clone(self, op: Op, like: Op) -> NewOperator:
        number = self.names.op_at[like.name][1]
        stored = self.stored.ops[number]
        if len(stored.inputs) != len(op.inputs):
            raise InvalidPlan(f"op {op.name!r} ({op.kind}) has other operands in the file")
        # Constants may be shared in the graph where the file has two that differ in scale.
        inputs = [
            self._index(new) if new != old else at
            for new, old, at in zip(op.inputs, like.inputs, stored.inputs, strict=True)
        ]
        if op.attrs.get("pads") != like.attrs.get("pads"):
            inputs[1] = self._pads(op, stored.inputs[1])
        made = tuple(
            self._tensor(name, self._index(old), instead=old not in self.split.by_name)
            for name, old in zip(op.outputs, like.outputs, strict=True)
        )
        return NewOperator(number, "", tuple(inputs), made)

    def _pads(self, op: Op, like: int) -> int:
        pads = context(op, self.split.by_name).ints("pads") or ()
        rank = len(pads) // 2
        pairs = tuple(pads[n + side] for n in range(rank) for side in (0, rank))
        return self._constant(pairs, (rank, 2), like)

    def _slice(self, op: Op) -> NewOperator:
        source = self._index(op.inputs[0])
        shape = concrete(self.split[op.outputs[0]]) or ()
        ctx = context(op, self.split.by_name)
        begin = [0] * len(shape)
        for axis, start in zip(ctx.ints("axes") or (), ctx.ints("starts") or (), strict=True):
            begin[axis] = start
        inputs = (
            source,
            self._constant(tuple(begin), (len(shape),)),
            self._constant(shape, (len(shape),)),
        )
        return NewOperator(-1, "SLICE", inputs, (self._tensor(op.outputs[0], source),))

    def _index(self, name: str) -> int:
        return self.tensor_at[name][1]

    def _tensor(self, name: str, like: int, *, instead: bool = False) -> int:
        shape = concrete(self.split[name])
        if shape is None:
            raise InvalidPlan(f"the shape of {name!r} is not known")
        instead = instead and like not in self.taken
        at = like if instead else self._place()
        if instead:
            self.taken.add(like)
        else:
            self.count += 1
        self.tensors.append(NewTensor(name, like, shape, instead))
        self.tensor_at[name] = (0, at)
        return at

    def _constant(self, values: tuple[int, ...], shape: tuple[int, ...], like: int = -1) -> int:
        key = (values, like)
        if key not in self.constants:
            self.constants[key] = self._place()
            self.count += 1
            name = f"bands:{len(self.constants)}"
            self.tensors.append(NewConstant(name, values, shape, like))
        return self.constants[key]

    def _place(self) -> int:
        return len(self.stored.tensors) + self.count


def grow(model: Model, added: Growth) -> None:
    """Add a split's tensors and operators to a model; nothing runs them yet.

    Args:
        model: changed in place.
        added: what to add.
    """
    graph = model.subgraphs[0]
    for tensor in added.tensors:
        if isinstance(tensor, NewConstant):
            graph.tensors.append(_constant(model, tensor))
            continue
        made = _tensor(graph.tensors[tensor.like], tensor)
        if tensor.instead:
            graph.tensors[tensor.like] = made
        else:
            graph.tensors.append(made)
    codes: dict[str, int] = {}
    for op in added.operators:
        graph.operators.append(_operator(model, op, codes))


def _tensor(like: Any, new: NewTensor) -> Any:
    tensor = copy.copy(like)
    tensor.name, tensor.shape, tensor.shapeSignature = new.name.encode(), list(new.shape), None
    tensor.buffer, tensor.isVariable = 0, False
    return tensor


def _constant(model: Model, new: NewConstant) -> Any:
    schema = classes()
    kinds = type_names()
    tensor = schema.TensorT()
    if new.like >= 0:
        tensor = copy.copy(model.subgraphs[0].tensors[new.like])
    else:
        tensor.type = schema.TensorType.INT32
    wide = np.int64 if kinds.get(int(tensor.type)) == "INT64" else np.int32
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.asarray(new.values, dtype=wide).tobytes(), dtype=np.uint8)
    tensor.name, tensor.shape, tensor.buffer = (
        new.name.encode(),
        list(new.shape),
        len(model.buffers),
    )
    model.buffers.append(buffer)
    return tensor


def _operator(model: Model, new: NewOperator, codes: dict[str, int]) -> Any:
    schema = classes()
    graph = model.subgraphs[0]
    if new.like >= 0:
        op = copy.copy(graph.operators[new.like])
    else:
        op = schema.OperatorT()
        word = {"SLICE": "SliceOptions", "CONCATENATION": "ConcatenationOptions"}[new.builtin]
        op.opcodeIndex = _code(model, new.builtin, graph.tensors[new.outputs[0]], codes)
        op.builtinOptionsType = getattr(schema.BuiltinOptions, word)
        op.builtinOptions = getattr(schema, f"{word}T")()
        if new.builtin == "CONCATENATION":
            op.builtinOptions.axis = new.axis
    op.inputs, op.outputs = list(new.inputs), list(new.outputs)
    return op


_VERSIONS: Mapping[str, Mapping[str, int]] = {
    "SLICE": {"INT8": 2, "INT16": 4},
    "CONCATENATION": {"INT8": 2, "INT16": 3},
}


def _code(model: Model, builtin: str, result: Any, codes: dict[str, int]) -> int:
    """Index of an operator code; one the file has is used when its version is high enough."""
    if builtin not in codes:
        schema = classes()
        number = getattr(schema.BuiltinOperator, builtin)
        version = _VERSIONS[builtin].get(type_names().get(int(result.type), ""), 1)
        for at, code in enumerate(model.operatorCodes):
            holder = schema.OperatorT()
            holder.opcodeIndex = at
            if operator_code(model, holder) == number and code.version >= version:
                codes[builtin] = at
                return at
        code = schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = number
        code.version = version
        model.operatorCodes = [*model.operatorCodes, code]
        codes[builtin] = len(model.operatorCodes) - 1
    return codes[builtin]
