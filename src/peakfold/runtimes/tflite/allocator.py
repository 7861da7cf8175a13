"""A model of TensorFlow Lite Micro's allocator: the arena head it will need, to the byte.

Written from the interpreter's documented behaviour (tensorflow/lite/micro: memory_management.md,
AllocationInfoBuilder, GreedyMemoryPlanner) and shares nothing with peakfold's planner:

- every tensor without data in the file, of every subgraph, is a buffer, except variables; sizes
  are rounded up to 16;
- one counter of scopes runs over operators in file order, entering subgraphs where an operator
  calls them; a buffer lives from its first creation to its last use, both inclusive. Graph
  inputs exist from the start of their graph, its outputs to its end;
- the scratch of an operator lives while it and the subgraphs it calls run;
- buffers with an offset in the file keep it; the others follow by falling size, equal sizes
  later ones first, each in the lowest gap between buffers alive with it.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peakfold.errors import ModelError
from peakfold.runtimes.tflite.schema import (
    Model,
    called_subgraphs,
    has_data,
    indices,
    offline_offsets,
    operator_name,
    tensor_bytes,
)
from peakfold.units import round_up

ALIGN = 16
ONLINE = -1
Scratch = Mapping[tuple[int, int], Sequence[int]]
"""Bytes of each scratch buffer by (subgraph, operator)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A buffer the interpreter plans.

    Attributes:
        size: bytes, rounded up.
        first, last: scopes, both inclusive.
        offset: from the file, or `ONLINE`.
        subgraph: of the tensor or operator.
        tensor: index within the subgraph; -1 = scratch.
        operator: whose scratch this is; -1 = a tensor.
    """

    size: int
    first: int
    last: int
    offset: int
    subgraph: int
    tensor: int = -1
    operator: int = -1


@dataclass(frozen=True, slots=True)
class Prediction:
    """The allocator's plan: where each request lies, and the head it amounts to."""

    requests: tuple[Request, ...]
    offsets: tuple[int, ...]

    @property
    def head(self) -> int:
        """Bytes of the arena that lifetimes share."""
        ends = (o + r.size for o, r in zip(self.offsets, self.requests, strict=True))
        return max(ends, default=0)


def predict(model: Model, scratch: Scratch | None = None) -> Prediction:
    """What the interpreter will plan for a file.

    Args:
        model: the parsed file.
        scratch: per operator; operators it leaves out are taken to need none.

    Raises:
        ModelError: a tensor whose type the interpreter cannot hold, or a broken table of offsets.
    """
    requests = lifetimes(model, scratch or {})
    return Prediction(requests, place(requests))


def loose_bytes(prediction: Prediction) -> int:
    """Bytes of the head that tensors take which no run makes or reads, alive beside each other."""
    placed = zip(prediction.requests, prediction.offsets, strict=True)
    return max((offset + one.size for one, offset in placed if one.last < 0), default=0)


def lifetimes(model: Model, scratch: Scratch) -> tuple[Request, ...]:
    """The buffers of a file with the scopes they live in, in the interpreter's order.

    Raises:
        ModelError: a tensor whose type the interpreter cannot hold, a table of offsets for
            another number of tensors, or subgraphs that are missing or call themselves.
    """
    walk = _Scopes(model)
    walk.enter(0)
    table = offline_offsets(model)
    total = sum(len(graph.tensors or ()) for graph in model.subgraphs)
    if table is not None and len(table) != total:
        raise ModelError(f"the file places {len(table)} tensors, and has {total}")
    requests: list[Request] = []
    place = 0
    for number, graph in enumerate(model.subgraphs):
        for at, tensor in enumerate(graph.tensors or ()):
            offset = ONLINE if table is None else table[place]
            place += 1
            size = tensor_bytes(tensor)
            held = has_data(model, tensor) or (number, at) in walk.handles
            if held or (tensor.isVariable and offset == ONLINE) or size == 0:
                continue
            if size is None:
                raise ModelError("a tensor of a type the interpreter cannot hold", where=f"{at}")
            first, last = walk.first.get((number, at), -1), walk.last.get((number, at), -1)
            requests.append(Request(round_up(size, ALIGN), first, last, offset, number, at))
    for (number, at), (start, stop) in walk.scopes.items():
        requests += [
            Request(round_up(size, ALIGN), start, stop, ONLINE, number, operator=at)
            for size in scratch.get((number, at), ())
        ]
    return tuple(requests)


class _Scopes:
    """The walk over operators that numbers scopes."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.scope = 0
        self.first: dict[tuple[int, int], int] = {}
        self.last: dict[tuple[int, int], int] = {}
        self.scopes: dict[tuple[int, int], tuple[int, int]] = {}
        self.handles: set[tuple[int, int]] = set()
        self.open: set[int] = set()

    def enter(self, number: int) -> None:
        """Walk one subgraph in the current scope."""
        if not 0 <= number < len(self.model.subgraphs):
            raise ModelError(f"an operator calls subgraph {number}, which does not exist")
        if number in self.open:
            raise ModelError(f"subgraph {number} calls itself")
        self.open.add(number)
        graph = self.model.subgraphs[number]
        for tensor in indices(graph.inputs):
            self._create(number, tensor)
            self._use(number, tensor)
        for at, op in enumerate(graph.operators or ()):
            self.scope += 1
            start = self.scope
            self._operator(number, op)
            self.scopes[number, at] = (start, self.scope)
        for tensor in indices(graph.outputs):
            self._create(number, tensor)
            self._use(number, tensor)
        self.open.discard(number)

    def _operator(self, number: int, op: Any) -> None:
        results = indices(op.outputs)
        for tensor in results:
            self._create(number, tensor)
        if operator_name(self.model, op) == "VAR_HANDLE":  # its kernel keeps the handle itself
            self.handles.update((number, tensor) for tensor in results)
        for called in called_subgraphs(self.model, op):
            self.scope += 1
            self.enter(called)
        for tensor in (*indices(op.inputs), *results):
            if tensor >= 0:
                self._use(number, tensor)

    def _create(self, number: int, tensor: int) -> None:
        self.first.setdefault((number, tensor), self.scope)

    def _use(self, number: int, tensor: int) -> None:
        self.last[number, tensor] = self.scope


def place(requests: Sequence[Request]) -> tuple[int, ...]:
    """Offsets, by the interpreter's greedy.

    Example:
        >>> a, b = Request(32, 0, 1, -1, 0), Request(64, 1, 2, -1, 0)
        >>> place([a, b, Request(16, 0, 0, -1, 0)])
        (64, 0, 0)
    """
    fixed = [at for at, request in enumerate(requests) if request.offset != ONLINE]
    free = [at for at, request in enumerate(requests) if request.offset == ONLINE]
    free.sort(key=lambda at: (-requests[at].size, -at))
    offsets = [request.offset for request in requests]
    placed: list[tuple[int, int, int]] = []  # offset, turn, request: by offset, ties by turn
    for turn, at in enumerate(fixed + free):
        if requests[at].offset == ONLINE:
            offsets[at] = _lowest_gap(requests, placed, requests[at])
        bisect.insort(placed, (offsets[at], turn, at))
    return tuple(offsets)


def _lowest_gap(
    requests: Sequence[Request], placed: Sequence[tuple[int, int, int]], wanted: Request
) -> int:
    candidate = 0
    for offset, _, at in placed:
        other = requests[at]
        if other.first > wanted.last or wanted.first > other.last:
            continue
        if offset - candidate >= wanted.size:
            break
        candidate = max(candidate, offset + other.size)
    return candidate
