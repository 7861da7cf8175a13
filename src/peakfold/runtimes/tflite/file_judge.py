"""The judge of a file's own layout: every value is where it is read, whoever placed it.

A file with offsets tells the interpreter where to put tensors, and the interpreter believes it:
overlapping live tensors and operators out of order run without complaint and give wrong numbers.
This judge plays the file through a map of memory, operator by operator. Tensors without an
offset and kernel scratch lie where the model of the allocator says. It knows no plan and shares
no code with the planner; which results may lie over an operand is the registry's and the
target's fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakfold.analysis import Facts, op_facts
from peakfold.errors import ModelError
from peakfold.frontends import load
from peakfold.frontends.tflite.file import read_tflite
from peakfold.frontends.tflite.names import names_of_model
from peakfold.interval import Interval
from peakfold.ir import Graph, Op
from peakfold.ir.graph import walk_regions
from peakfold.judges.plan import Check
from peakfold.runtimes.tflite.allocator import ONLINE, predict
from peakfold.runtimes.tflite.schema import (
    Model,
    called_subgraphs,
    classes,
    indices,
    offline_offsets,
    operator_code,
    operator_name,
    parse_model,
    read_model,
    tensor_bytes,
    tensor_width,
)
from peakfold.runtimes.tflite.scratch import known_scratch
from peakfold.runtimes.tflite.value_ranges import Values, Where
from peakfold.target import load_target

NAME = "offsets in the file"


@dataclass(frozen=True, slots=True)
class _Known:
    """A graph's op behind a file's operator, with what it may do."""

    graph: Graph
    op: Op
    facts: Facts


_LARGEST = 2**31 - 1
"""What an offset in a file can say."""


class _Wrong(Exception):
    """What is wrong with the layout, in words."""


def judge_file(path: Path, target: str = "tflm") -> Check:
    """Whether the interpreter would compute the right numbers in the layout of this file.

    Args:
        path: a .tflite file, with or without a table of offsets.
        target: whose kernels will run it.

    Raises:
        ModelError: it cannot be read.
    """
    model = parse_model(read_model(path), str(path))
    try:
        table = offline_offsets(model)
        placed = 0 if table is None else sum(offset != ONLINE for offset in table)
        head = _Player(model, _facts(path, target), target).play()
    except (_Wrong, ModelError) as wrong:  # operators out of order are no graph
        return Check(NAME, ok=False, detail=str(wrong))
    return Check(
        NAME,
        ok=True,
        detail=f"{placed} tensors placed by the file; every operator reads the values the graph "
        f"means, in {head} bytes",
    )


def _facts(path: Path, name: str) -> dict[Where, _Known]:
    names = names_of_model(read_tflite(path))
    target = load_target(name)
    return {
        names.op_at[op.name]: _Known(graph, op, op_facts(graph, op, target))
        for graph in walk_regions(load(path).graph)
        for op in graph.ops
        if op.name in names.op_at
    }


class _Player:
    def __init__(self, model: Model, known: dict[Where, _Known], target: str) -> None:
        self.model = model
        self.known = known
        prediction = predict(model, known_scratch(model, target))
        self.head = prediction.head
        self.at: dict[Where, Interval] = {}
        self.scratch: dict[Where, list[Interval]] = {}
        for request, offset in zip(prediction.requests, prediction.offsets, strict=True):
            if request.operator >= 0:
                owner = request.subgraph, request.operator
                place = Interval(offset, offset + request.size)
                self.scratch.setdefault(owner, []).append(place)
                continue
            tensor = model.subgraphs[request.subgraph].tensors[request.tensor]
            size = tensor_bytes(tensor) or 0
            self.at[request.subgraph, request.tensor] = Interval(offset, offset + size)
        self.memory = Values()
        # Operands that nothing makes are an operator's own memory, as compilers lay it out.
        self.loose = {
            (number, tensor)
            for number, graph in enumerate(model.subgraphs)
            for op in graph.operators or ()
            for tensor in indices(op.inputs)
        } - {
            (number, tensor)
            for number, graph in enumerate(model.subgraphs)
            for makers in (graph.inputs, *(op.outputs for op in graph.operators or ()))
            for tensor in indices(makers)
        }

    def play(self) -> int:
        """Run the main graph; bytes of the arena.

        Raises:
            _Wrong: the first value that is not where it is read.
        """
        for (number, at), place in self.at.items():
            width = tensor_width(self.model.subgraphs[number].tensors[at]) or 1
            if place.start < 0:
                raise _Wrong("a tensor is placed before the arena's first byte")
            if place.start % width:
                name = self._name(number, at)
                raise _Wrong(f"{name} starts at byte {place.start}, and its elements have {width}")
        if self.head > _LARGEST:
            raise _Wrong(f"it needs {self.head} bytes, more than an offset can say")
        self._variables()
        main = self.model.subgraphs[0]
        for tensor in indices(main.inputs):
            self._write(0, tensor)
        self._run(0)
        for tensor in indices(main.outputs):
            self._read(0, tensor, "the caller")
        for where in self.kept:
            self._read(*where, "the next run")
        return self.head

    def _variables(self) -> None:
        """Variables with an offset live in the arena for ever."""
        self.kept = []
        table = offline_offsets(self.model)
        for number, graph in enumerate(self.model.subgraphs):
            for at, tensor in enumerate(graph.tensors or ()):
                if not tensor.isVariable:
                    continue
                if (number, at) in self.at:
                    self.kept.append((number, at))
                    self._write(number, at)
                elif number and table is not None and table[at] != ONLINE:
                    # Its allocator looks up variables of every subgraph in the first one's rows.
                    raise _Wrong(f"variable {at} of subgraph {number} would get no memory")

    def _run(self, number: int) -> None:
        for at, op in enumerate(self.model.subgraphs[number].operators or ()):
            self._operator(number, at, op)

    def _operator(self, number: int, at: int, op: Any) -> None:
        who = f"operator {at} ({operator_name(self.model, op)})"
        who += f" of subgraph {number}" if number else ""
        operands, results = indices(op.inputs), indices(op.outputs)
        for tensor in operands:
            self._read(number, tensor, who)
        placed = [t for t in results if (number, t) in self.at]
        for result in placed:
            self._check_result(number, at, who, operands, results.index(result), result)
        for scratch in self.scratch.get((number, at), ()):
            for tensor in (*operands, *results):
                if (number, tensor) in self.at and scratch.overlaps(self.at[number, tensor]):
                    raise _Wrong(f"{who} has its scratch in tensor {self._name(number, tensor)}")
            self.memory.write(scratch, None)
        self._call(number, op, who, (*operands, *results))
        for tensor in placed:
            repeats = self._unchanged(number, at, operands, results.index(tensor))
            self.memory.write(self.at[number, tensor], (number, tensor), repeats)
        for tensor in placed:
            self._read(number, tensor, f"whoever reads the results of {who}")

    def _unchanged(
        self, number: int, at: int, operands: Sequence[int], position: int
    ) -> list[Interval]:
        """Operands that lie where the operator copies their very bytes to."""
        known = self.known.get((number, at))
        if known is None:
            return []
        target = self.at[number, indices(self._op(number, at).outputs)[position]]
        return [
            source
            for slot, tensor in enumerate(operands)
            if (source := self.at.get((number, tensor))) is not None
            and any(rule(known, slot, position, source, target) for rule in (_view, _part))
        ]

    def _op(self, number: int, at: int) -> Any:
        return self.model.subgraphs[number].operators[at]

    def _check_result(
        self, number: int, at: int, who: str, operands: Sequence[int], position: int, result: int
    ) -> None:
        target = self.at[number, result]
        for slot, tensor in enumerate(operands):
            source = self.at.get((number, tensor))
            if source is None or not source.overlaps(target):
                continue
            known = self.known.get((number, at))
            if known is None or not _may_meet(known, slot, position, source, target):
                raise _Wrong(
                    f"{who} writes {self._name(number, result)} over {self._name(number, tensor)}, "
                    "which it still reads"
                )

    def _call(self, number: int, op: Any, who: str, own: Sequence[int]) -> None:
        called = called_subgraphs(self.model, op)
        mine = [self.at[number, tensor] for tensor in own if (number, tensor) in self.at]
        for inner in called:
            for at in range(len(self.model.subgraphs[inner].tensors or ())):
                place = self.at.get((inner, at))
                if place is not None and any(place.overlaps(other) for other in mine):
                    raise _Wrong(f"{who} shares bytes with {self._name(inner, at)}, which it runs")
        loops = operator_code(self.model, op) == classes().BuiltinOperator.WHILE
        for inner in called * 2 if loops else called:
            graph = self.model.subgraphs[inner]
            for tensor in indices(graph.inputs):
                self._write(inner, tensor)
            self._run(inner)
            for tensor in indices(graph.outputs):
                self._read(inner, tensor, who)

    def _write(self, number: int, tensor: int) -> None:
        place = self.at.get((number, tensor))
        if place is not None:
            self.memory.write(place, (number, tensor))

    def _read(self, number: int, tensor: int, who: str) -> None:
        place = self.at.get((number, tensor))
        variable = tensor >= 0 and self.model.subgraphs[number].tensors[tensor].isVariable
        if place is None or ((number, tensor) in self.loose and not variable):
            return
        lost = self.memory.lost(place, (number, tensor))
        if lost is False:
            return
        name = self._name(number, tensor)
        if isinstance(lost, tuple) and lost != (number, tensor):
            raise _Wrong(f"{who} reads {name}, and finds {self._name(*lost)} in its place")
        raise _Wrong(f"{who} reads {name}, which is not made or was overwritten")

    def _name(self, number: int, tensor: int) -> str:
        name = self.model.subgraphs[number].tensors[tensor].name
        shown = name.decode("utf-8", "replace") if name else "without a name"
        return f"tensor {tensor} ({shown})"


def _may_meet(known: _Known, slot: int, position: int, source: Interval, target: Interval) -> bool:
    """Whether a kernel may write a result where this operand lies."""
    return any(rule(known, slot, position, source, target) for rule in _RULES)


def _view(known: _Known, slot: int, position: int, source: Interval, target: Interval) -> bool:
    """A result that repeats bytes of the operand in their place."""
    return any(
        (view.output, view.input) == (position, slot) and target.start == source.start + view.offset
        for view in known.facts.views
    )


def _part(known: _Known, slot: int, position: int, source: Interval, target: Interval) -> bool:
    """An operand that lies where the result wants its bytes."""
    return position == 0 and any(
        part.input == slot and source.start == target.start + part.offset
        for part in known.facts.parts
    )


def _in_place(known: _Known, slot: int, position: int, source: Interval, target: Interval) -> bool:
    """An element-wise result over an operand of its size and element width."""
    if position or slot not in known.facts.inplace or source != target:
        return False
    a, b = known.graph[known.op.inputs[slot]], known.graph[known.op.outputs[0]]
    return a.dtype.bits == b.dtype.bits and (known.facts.keeps_bytes or a.shape == b.shape)


def _apart(known: _Known, slot: int, position: int, source: Interval, target: Interval) -> bool:
    """A result that starts so far below the operand that each byte is read before it is lost."""
    return position == 0 and any(
        fact.input == slot and source.start - target.start >= fact.distance
        for fact in known.facts.overlap
    )


_RULES = (_view, _part, _in_place, _apart)
