"""Which stored tensors are weights, and the op that reads each of them first.

A parameter count means what training adjusts, or would: weights and biases. BatchNorm
statistics, the scales of quantised tensors, indices and shape operands are stored as well and
take bytes, but are no parameters. A file does not say which is which, so use decides: a stored
tensor is a weight unless it holds int64 or bool, is a scalar, or every op that reads it during
the run reads it where no weight goes (`peakfold.ops.NOT_WEIGHTS`).

Exporters that store weights beside the graph write what they invent (the ones of a normalisation)
as `Constant` nodes, so where a layer reads a parameter, constants are none.

Folding makes new tensors out of stored ones (a transposed copy of a tied embedding). Such a
tensor stands for what it was made from, so a weight is counted once whatever folding did. One
made from nothing stored (zeros of some shape) is a weight only where a layer reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from peakfold.ir import Graph, Op, Role, Tensor
from peakfold.ops import NOT_WEIGHTS, VALUE_INPUTS, held_weights, lookup

Key = tuple[str, ...]
"""A stored tensor: the names of the ops whose bodies it lies in, then its own."""

_NEVER = frozenset({"int64", "uint64", "bool", "string", "opaque"})
_STORED = frozenset({Role.PARAMETER, Role.CONSTANT})
_BODIES = frozenset({"loop", "scan"})
_WEIGHT_USES = frozenset({"weight", "value"})  # operand of a layer, or of any other op


@dataclass(slots=True)
class Ledger:
    """The stored tensors of a graph, each counted at its first reader.

    Attributes:
        tensors: every stored tensor there was before folding.
        uses: what the run's ops take each of them for.
        held: weights in a tensor whose elements hold several each.
        generated: those that folding made from nothing stored.
        stated: whether the graph itself says which tensors are parameters.
        beside: whether layers read parameters, so that constants are what they are called.
        seen: those that an op has been charged for.
    """

    tensors: dict[Key, Tensor] = field(default_factory=dict)
    uses: dict[Key, set[str]] = field(default_factory=dict)
    held: dict[Key, int] = field(default_factory=dict)
    generated: set[Key] = field(default_factory=set)
    seen: set[Key] = field(default_factory=set)
    stated: bool = False
    beside: bool = False

    def what(self, key: Key) -> str:
        """``weight``, or what else a stored tensor is: see `NOT_WEIGHTS`."""
        tensor = self.tensors[key]
        if tensor.trainable is not None:
            return "weight"
        if self.beside and tensor.role is Role.CONSTANT:
            return "constant"
        uses = self.uses.get(key, set()) or {"value"}
        if tensor.dtype.name in _NEVER:
            return "index"
        if key in self.generated:
            return "weight" if "weight" in uses else "generated"
        if uses.isdisjoint(_WEIGHT_USES):
            return min(uses)
        return "scalar" if tensor.shape == () else "weight"

    def unread(self) -> int:
        """Elements of the parameters that no op reads, where the front end knows them as such."""
        unread = (t for key, t in self.tensors.items() if key not in self.seen)
        return sum(t.elements or 0 for t in unread if t.trainable is not None)

    def take(self, scope: Scope, op: Op) -> dict[str, int]:
        """Elements by what they are, of the stored tensors that this op is the first to read.

        Of the weights, ``frozen`` counts those that training leaves as they are.
        """
        found: dict[str, int] = {}
        for name in op.operands:
            for key in scope.sources.get(name, ()):
                if key not in self.seen:
                    self.seen.add(key)
                    tensor = self.tensors[key]
                    kinds = [self.what(key), *(["frozen"] if tensor.trainable is False else [])]
                    for what in kinds:
                        count = self.held.get(key, tensor.elements or 0)
                        found[what] = found.get(what, 0) + count
        return found


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of one graph, and the stored tensors that each static one was made from."""

    sources: Mapping[str, tuple[Key, ...]]
    bodies: Mapping[Key, tuple[Scope, ...]]


def place(op: Op) -> Key:
    """What an op is recognised by before and after folding."""
    return (op.name, *op.outputs)


def open_ledger(graph: Graph, original: Graph | None = None) -> tuple[Ledger, Scope]:
    """A ledger for a graph.

    Args:
        graph: the graph whose ops will be charged.
        original: the same before folding, when it was folded.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[4]\\nparameter w: float32[4]\\n"
        ...                 "y: float32[4] = add(x, w)\\nz: float32[4] = mul(y, w)\\noutput z")
        >>> ledger, scope = open_ledger(g)
        >>> [ledger.take(scope, op) for op in g.ops]
        [{'weight': 4}, {}]
    """
    tensors = (original or graph).tensors
    ledger = Ledger(stated=any(tensor.trainable is not None for tensor in tensors))
    scope = _enter(ledger, graph, original or graph, (), {})
    layers = (ledger.tensors[key] for key, uses in ledger.uses.items() if "weight" in uses)
    ledger.beside = any(tensor.role is Role.PARAMETER for tensor in layers)
    return ledger, scope


def _enter(
    ledger: Ledger, graph: Graph, original: Graph, path: Key, outer: Mapping[str, tuple[Key, ...]]
) -> Scope:
    sources: dict[str, tuple[Key, ...]] = {}
    for tensor in original.tensors:
        if tensor.name in outer:
            sources[tensor.name] = outer[tensor.name]
        elif tensor.role in _STORED and tensor.name not in original.inputs:
            sources[tensor.name] = _own(ledger, path, tensor)
    run = {place(op): op for op in graph.ops}
    bodies: dict[Key, tuple[Scope, ...]] = {}
    for op in original.ops:
        kept = run.get(place(op))
        if kept is None:
            made_from = _weights_behind(ledger, op, sources)
            for name in op.results:
                sources[name] = made_from or _own(ledger, path, original[name])
                if not made_from:
                    ledger.generated.update(sources[name])
            continue
        for name, use in _uses(op):
            for key in sources.get(name, ()):
                ledger.uses.setdefault(key, set()).add(use)
        _unpack(ledger, op, sources)
        bodies[place(op)] = tuple(
            _enter(
                ledger,
                now.graph,
                before.graph,
                (*path, *place(op)),
                {name: sources[name] for name in before.captures if name in sources},
            )
            for now, before in zip(kept.regions, op.regions, strict=True)
        )
    return Scope(sources, bodies)


def _unpack(ledger: Ledger, op: Op, sources: Mapping[str, tuple[Key, ...]]) -> None:
    """Note the operands of an op whose elements hold several weights each."""
    for at, name in enumerate(op.inputs):
        keys = sources.get(name, ())
        if len(keys) == 1:
            stored = ledger.tensors[keys[0]].elements
            held = held_weights(op, at, stored)
            if held is not None and held != stored:
                ledger.held[keys[0]] = held


def _own(ledger: Ledger, path: Key, tensor: Tensor) -> tuple[Key, ...]:
    key = (*path, tensor.name)
    ledger.tensors[key] = tensor
    return (key,)


def _weights_behind(
    ledger: Ledger, op: Op, sources: Mapping[str, tuple[Key, ...]]
) -> tuple[Key, ...]:
    """The weights that a result of load time is made from; none if it is made from nothing."""
    found = dict.fromkeys(
        key
        for name, use in _uses(op)
        if use in _WEIGHT_USES
        for key in sources.get(name, ())
        if ledger.tensors[key].dtype.name not in _NEVER
    )
    return tuple(found)


def _uses(op: Op) -> Iterator[tuple[str, str]]:
    """Operands and what a stored tensor is that stands there; bodies see to their captures."""
    shapes, known = VALUE_INPUTS.get(op.kind, {}), NOT_WEIGHTS.get(op.kind, {})
    layer = lookup(op.kind).engine == "matrix" or "normalization" in op.kind
    other = "state" if op.kind in _BODIES else "weight" if layer else "value"
    for at, name in enumerate(op.inputs):
        if name:
            yield name, "index" if at in shapes else known.get(at, other)
