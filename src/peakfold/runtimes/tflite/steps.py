"""What the interpreter asks of its arena while it starts, step by step.

The arena has two ends. Records that stay are kept at its end, at falling addresses; the head at
its start is resized as scratch is asked for; behind it lie temporaries, which an operator's
preparation takes for every look at a tensor and gives back only when it is done. The sequence
follows `MicroInterpreter::AllocateTensors`; sizes are the target's data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from peakfold.runtimes.tflite.allocator import ONLINE, Prediction, Scratch, predict
from peakfold.runtimes.tflite.schema import (
    Model,
    indices,
    offline_offsets,
    operator_name,
    scales,
    tensor_bytes,
)
from peakfold.runtimes.tflite.scratch import values_of
from peakfold.target.arena import Build, load_arena

ALIGN = 16
_MOST_SCRATCH = 12
"""Records of scratch that one operator may need, so that they are always free."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        what: ``keep`` (at the end, for ever), ``hold`` (a temporary), ``release`` (all
            temporaries), ``resize`` (the head, which ends temporaries, too), ``plan`` (the planner
            takes what is left, and needs so much) or ``reserve`` (the planned head).
        size: bytes.
        align: of its address.
    """

    what: Literal["keep", "hold", "release", "resize", "plan", "reserve"]
    size: int = 0
    align: int = 1


@dataclass(frozen=True, slots=True)
class Start:
    """How the interpreter starts on a file.

    Attributes:
        steps: in order.
        unknown: operators that no table covers, by name; their steps are missing.
        prediction: the plan of the head.
    """

    steps: tuple[Step, ...]
    unknown: tuple[str, ...]
    prediction: Prediction


def starting(model: Model, scratch: Scratch, build: Build) -> Start:
    """The steps of a file.

    Args:
        model: the parsed file.
        scratch: bytes of each scratch buffer per operator.
        build: of the interpreter.

    Raises:
        ModelError: a tensor whose type the interpreter cannot hold, or a broken table of offsets.
    """
    walk = _Walk(model, scratch, build)
    return Start(tuple(walk.steps()), tuple(walk.unknown), walk.prediction)


class _Walk:
    def __init__(self, model: Model, scratch: Scratch, build: Build) -> None:
        self.model = model
        self.scratch = scratch
        self.build = build
        self.prediction = predict(model, scratch)
        self.unknown: dict[str, None] = {}
        self.resources = _Resources(model)
        self.kernels = list(self._kernels())

    def steps(self) -> Iterator[Step]:
        yield from self._records()
        yield from self._operators()
        yield from self._planning()
        yield Step("reserve", self.prediction.head, ALIGN)
        main = self.model.subgraphs[0]
        for ends in (main.inputs, main.outputs):
            yield Step("keep", self.build.pointer * len(indices(ends)), ALIGN)
            for tensor in indices(ends):
                yield from self._tensor("keep", main.tensors[tensor])

    def _records(self) -> Iterator[Step]:
        build, word = self.build, self.build.pointer
        for size in build.allocators:
            yield Step("keep", size, word)
        if self.resources.count:
            yield Step("keep", build.resources, ALIGN)
            yield Step("keep", build.resource * self.resources.count, ALIGN)
        yield Step("keep", build.parameters, word)
        yield Step("resize", build.request * _MOST_SCRATCH, word)
        yield Step("keep", build.subgraph * len(self.model.subgraphs), word)
        for graph in self.model.subgraphs:
            yield Step("keep", build.eval_tensor * len(graph.tensors or ()), word)
        for graph in self.model.subgraphs:
            yield Step("keep", build.node * len(graph.operators or ()), word)

    def _operators(self) -> Iterator[Step]:
        """Parameters of all operators, then what `Init` keeps of all, then `Prepare` of each."""
        known = [kernel for _, _, _, kernel in self.kernels if kernel is not None]
        yield from (Step("keep", *kernel.params) for kernel in known if kernel.params is not None)
        yield from (Step("keep", size, ALIGN) for kernel in known for size in kernel.init)
        asked = 0
        for number, at, op, kernel in self.kernels:
            for taken in () if kernel is None else kernel.prepare:
                if isinstance(taken, int):
                    yield Step("keep", taken, ALIGN)
                else:
                    yield from self._look(number, op, taken)
            asked += len(self.scratch.get((number, at), ()))
            yield Step("release")
            yield Step("resize", self.build.request * (_MOST_SCRATCH + asked), self.build.pointer)
        if asked:
            yield Step("keep", self.build.pointer * asked, self.build.pointer)

    def _kernels(self) -> Iterator[tuple[int, int, Any, Any]]:
        table = load_arena("tflm")
        for number, graph in enumerate(self.model.subgraphs):
            for at, op in enumerate(graph.operators or ()):
                name = operator_name(self.model, op)
                first = self.resources.assigns_first(number, op, name)
                names = {"pointer": self.build.pointer, "first": int(first)}
                values = values_of(self.model, number, op, names)
                found = table.kernel(name, values, self.build)
                if found is None:
                    self.unknown[name] = None
                yield number, at, op, found

    def _look(self, number: int, op: Any, name: str) -> Iterator[Step]:
        side = indices(op.inputs if name[0] == "i" else op.outputs)
        at = int(name[1:])
        if at < len(side) and side[at] >= 0:
            yield from self._tensor("hold", self.model.subgraphs[number].tensors[side[at]])

    def _tensor(self, what: Literal["keep", "hold"], tensor: Any) -> Iterator[Step]:
        yield Step(what, self.build.tensor, self.build.pointer)
        count = scales(tensor)
        if count:  # and as many zero points as scales
            yield Step(what, self.build.quantization, self.build.pointer)
            yield Step(what, 4 + 4 * count, 4)

    def _planning(self) -> Iterator[Step]:
        build, subgraphs = self.build, self.model.subgraphs
        tensors = sum(len(graph.tensors or ()) for graph in subgraphs)
        scratch = sum(len(sizes) for sizes in self.scratch.values())
        yield Step("hold", build.size * len(subgraphs), build.size)
        yield Step("hold", build.info * (tensors + scratch), build.size)
        yield from (Step("keep", size, ALIGN) for size in self._variables())
        yield Step("plan", build.buffer * len(self.prediction.requests), ALIGN)
        yield Step("release")
        yield Step("resize")

    def _variables(self) -> Iterator[int]:
        table = offline_offsets(self.model)
        for graph in self.model.subgraphs:
            for at, tensor in enumerate(graph.tensors or ()):
                # Variables of every subgraph are looked up in the table's first rows.
                if tensor.isVariable and (table is None or table[at] == ONLINE):
                    yield tensor_bytes(tensor) or 0


class _Resources:
    """Variables that have a name and no tensor."""

    def __init__(self, model: Model) -> None:
        self.made: dict[tuple[int, int], bytes] = {}
        for number, graph in enumerate(model.subgraphs):
            for op in graph.operators or ():
                if operator_name(model, op) == "VAR_HANDLE":
                    # Without options of their own all such handles are one.
                    name = bytes(getattr(op.builtinOptions, "sharedName", None) or b"")
                    self.made.update(dict.fromkeys(_places(number, op.outputs), name))
        self.count = len(set(self.made.values()))
        self.assigned: set[bytes] = set()

    def assigns_first(self, number: int, op: Any, name: str) -> bool:
        """Whether an operator is the first that assigns to its variable."""
        handle = _places(number, op.inputs)[:1]
        if name != "ASSIGN_VARIABLE" or not handle or handle[0] not in self.made:
            return False
        variable = self.made[handle[0]]
        first = variable not in self.assigned
        self.assigned.add(variable)
        return first


def _places(number: int, tensors: Sequence[int] | None) -> list[tuple[int, int]]:
    return [(number, tensor) for tensor in indices(tensors)]
