"""What the interpreter keeps for its whole life, and the arena a user must give it.

The arena has two ends. Its head is shared by lifetimes (`allocator`); its tail grows with every
record that stays: of tensors, operators, options, kernels, variables. While it plans, the
interpreter needs room for the plan itself between the two, which decides for small models.
Sizes of records are the target's data; the walk follows the order in which they are made, since
each one is aligned on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peakfold.runtimes.tflite.allocator import ONLINE, Scratch, predict
from peakfold.runtimes.tflite.schema import (
    Model,
    indices,
    offline_offsets,
    operator_name,
    tensor_bytes,
)
from peakfold.runtimes.tflite.scratch import operand
from peakfold.target.scratch import load_tail
from peakfold.units import round_up

_ALIGN = 16
_MAX_SCRATCH = 12


@dataclass(frozen=True, slots=True)
class Arena:
    """An arena, in bytes.

    Attributes:
        head: shared by lifetimes.
        tail: kept.
        planning: needed at once while the interpreter makes its plan.
        unknown: operators whose kernels may keep what no table says, by name; the tail is then
            a lower bound.
    """

    head: int
    tail: int
    planning: int
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The smallest arena that works, a multiple of 16."""
        return round_up(max(self.head + self.tail, self.planning), _ALIGN)


def predict_arena(model: Model, scratch: Scratch, pointer: int = 8) -> Arena:
    """The arena of a file.

    Args:
        model: the parsed file.
        scratch: per operator.
        pointer: bytes of an address: 8 as measured, 4 on a microcontroller (not run here).
    """
    return _Tail(model, scratch, pointer).arena()


class _Tail:
    """The tail as it grows: each record ends at its own alignment."""

    def __init__(self, model: Model, scratch: Scratch, pointer: int) -> None:
        self.model = model
        self.scratch = scratch
        self.pointer = pointer
        self.table = load_tail("tflm", pointer)
        self.records: Mapping[str, int] = self.table.records
        self.used = 0
        self.unknown: dict[str, None] = {}

    def take(self, size: int, align: int) -> None:
        self.used = round_up(self.used + size, align)

    def arena(self) -> Arena:
        self._start()
        self._kernels()
        count = sum(len(sizes) for sizes in self.scratch.values())
        if count:
            self.take(self.pointer * count, self.pointer)
        self._variables()
        prediction = predict(self.model, self.scratch)
        planning = self.used + self._planning(count, len(prediction.requests))
        main = self.model.subgraphs[0]
        self._ends(indices(main.inputs))
        self._ends(indices(main.outputs))
        return Arena(prediction.head, self.used, planning, tuple(self.unknown))

    def _start(self) -> None:
        records, word = self.records, self.pointer
        self.take(records["allocator"], word)
        handles = self._resources()
        if handles:
            self.take(records["variables"], _ALIGN)
            self.take(records["variable"] * len(handles), _ALIGN)
        self.take(records["options_allocator"], word)
        self.take(records["subgraph"] * len(self.model.subgraphs), word)
        for graph in self.model.subgraphs:
            self.take(records["eval_tensor"] * len(graph.tensors or ()), word)
        for graph in self.model.subgraphs:
            self.take(records["node"] * len(graph.operators or ()), word)

    def _resources(self) -> set[bytes]:
        return {
            _variable_name(op)
            for graph in self.model.subgraphs
            for op in graph.operators or ()
            if operator_name(self.model, op) == "VAR_HANDLE"
        }

    def _kernels(self) -> None:
        """Options of all operators, then what their kernels set aside."""
        kept: list[int] = []
        for number, graph in enumerate(self.model.subgraphs):
            for op in graph.operators or ():
                name = operator_name(self.model, op)
                inputs, outputs = self._operands(number, op)
                rule = self.table.kernels.rule(name, inputs, outputs)
                sizes = self.table.kernels.sizes(name, inputs, outputs)
                if rule is None or sizes is None:
                    self.unknown[name] = None
                    continue
                if rule.options:
                    words = name == "VAR_HANDLE"  # two addresses
                    self.take(
                        2 * self.pointer if words else rule.options,
                        self.pointer if words else rule.align,
                    )
                kept += sizes
                if name == "FULLY_CONNECTED":
                    kept += self._channels(number, op)
        for size in kept:
            self.take(size, _ALIGN)
        for size in self._assigned():
            self.take(size, _ALIGN)

    def _operands(self, number: int, op: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        inputs = [operand(self.model, number, t) for t in indices(op.inputs)]
        outputs = [operand(self.model, number, t) for t in indices(op.outputs)]
        return inputs, [one for one in outputs if one is not None]

    def _channels(self, number: int, op: Any) -> list[int]:
        """Multipliers and shifts of a fully connected layer that is quantised by channel."""
        if len(indices(op.inputs)) < 2:
            return []
        weights = self.model.subgraphs[number].tensors[op.inputs[1]]
        scale = None if weights.quantization is None else weights.quantization.scale
        channels = 0 if scale is None else len(scale)
        return [4 * channels, 4 * channels] if channels > 1 else []

    def _assigned(self) -> list[int]:
        """The value of each resource variable, where the first assignment to it is prepared."""
        sizes: dict[bytes, int] = {}
        for graph in self.model.subgraphs:
            named: dict[int, bytes] = {}
            for op in graph.operators or ():
                name = operator_name(self.model, op)
                if name == "VAR_HANDLE":
                    named.update(dict.fromkeys(indices(op.outputs), _variable_name(op)))
                elif name == "ASSIGN_VARIABLE" and len(indices(op.inputs)) == 2:
                    handle, value = indices(op.inputs)
                    if handle in named:
                        size = tensor_bytes(graph.tensors[value]) or 0
                        sizes.setdefault(named[handle], size)
        return list(sizes.values())

    def _variables(self) -> None:
        table = offline_offsets(self.model)
        place = 0
        for graph in self.model.subgraphs:
            for tensor in graph.tensors or ():
                online = table is None or table[place] == ONLINE
                place += 1
                if tensor.isVariable and online:
                    self.take(tensor_bytes(tensor) or 0, _ALIGN)

    def _planning(self, scratch: int, buffers: int) -> int:
        """Bytes in use at once while the plan is made, from the arena's start."""
        records = self.records
        tensors = sum(len(graph.tensors or ()) for graph in self.model.subgraphs)
        used = records["scratch"] * (scratch + _MAX_SCRATCH)
        used = round_up(used, self.pointer) + self.pointer * len(self.model.subgraphs)
        used += records["info"] * (tensors + scratch)
        return round_up(used, _ALIGN) + records["request"] * buffers

    def _ends(self, tensors: Sequence[int]) -> None:
        """Records of the graph's inputs or outputs."""
        self.take(self.pointer * len(tensors), _ALIGN)
        for index in tensors:
            tensor = self.model.subgraphs[0].tensors[index]
            self.take(self.records["tensor"], self.pointer)
            scale = None if tensor.quantization is None else tensor.quantization.scale
            zero = None if tensor.quantization is None else tensor.quantization.zeroPoint
            if scale is not None and len(scale) and zero is not None and len(zero):
                self.take(self.records["quantization"], self.pointer)
                self.take(4 + 4 * len(scale), 4)


def _variable_name(op: Any) -> bytes:
    options = op.builtinOptions
    if options is None:  # a broken file: all such handles are one
        return b"/"
    return (options.container or b"") + b"/" + (options.sharedName or b"")
