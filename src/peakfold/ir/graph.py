"""The graph: frozen records of tensors and ops, and nothing else.

A `Graph` is one region of straight-line code in file order. Names are unique inside a graph;
an op refers to tensors by name, `""` standing for an optional input that is not given.
Analyses never write results onto these records: they keep them in tables of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from peakfold.errors import ModelError, UsageError
from peakfold.ir.types import Dim, DType, Shape, element_count

AttrValue = int | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


class Role(StrEnum):
    """What a tensor is for; decides which account its bytes go to.

    Static roles (parameter, constant, state, optimizer_state) are allocated once and outlive
    the step; the others are dynamic. Inputs and outputs are accounted apart, because what
    holds them is the target's business.
    """

    INPUT = "input"
    PARAMETER = "parameter"
    CONSTANT = "constant"
    STATE = "state"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"

    @property
    def static(self) -> bool:
        """Whether a tensor of this role is allocated once, outside every arena."""
        return self in _STATIC


_STATIC = frozenset({Role.PARAMETER, Role.CONSTANT, Role.STATE, Role.OPTIMIZER_STATE})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value: name, element type, shape (`None` = unknown), role.

    `stated_bytes` overrides the size that dtype and shape give: the text form may state the
    bytes of an opaque value, and tests of published tables state them directly.
    `trainable` says whether training adjusts a parameter, where a front end knows.
    """

    name: str
    dtype: DType
    shape: Shape | None
    role: Role = Role.ACTIVATION
    stated_bytes: int | None = None
    trainable: bool | None = None

    @property
    def elements(self) -> int | None:
        """Number of elements, or `None` while the shape is unknown or symbolic."""
        return None if self.shape is None else element_count(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Exact bytes without padding, or `None` when they cannot be known yet.

        Example:
            >>> from peakfold.ir import DTYPES
            >>> Tensor("x", DTYPES["float32"], (2, 3)).nbytes
            24
        """
        if self.stated_bytes is not None:
            return self.stated_bytes
        count = None if self.shape is None else element_count(self.shape)
        return None if count is None else self.dtype.nbytes(count)


@dataclass(frozen=True, slots=True)
class ViewFact:
    """A stated alias: output `output` of an op is input `input`'s bytes from `offset` on."""

    output: int
    input: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class OverlapFact:
    """Output 0 may be written over input `input` if it starts `distance` bytes below it.

    Everything from that distance on is safe: by the time a byte is written, the input bytes
    that lay there have been read for the last time. The sizes need not be equal.
    """

    input: int
    distance: int


@dataclass(frozen=True, slots=True)
class Stated:
    """Semantics written down for one op in place of the registry's (the text form's overrides).

    `None` leaves the registry's answer; an empty tuple states that there is none.

    Attributes:
        inplace: positions of inputs that output 0 may be written over.
        views: aliases of inputs.
        overlap: inputs that output 0 may be written over at a distance.
        workspace: bytes of scratch that live during this op only.
    """

    inplace: tuple[int, ...] | None = None
    views: tuple[ViewFact, ...] | None = None
    overlap: tuple[OverlapFact, ...] | None = None
    workspace: int | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """One computation: `kind` is a key into the registry of op semantics.

    Attributes:
        inputs: tensor names; `""` is an optional input that is absent.
        outputs: tensor names; `""` is an optional output that nobody asked for.
        attrs: attribute values, only those that semantics need.
        regions: bodies of control flow, in the order the kind defines.
        reads, writes: `state` tensors (or named resources) read and written as effects.
        scope: module path, for roll-ups.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    scope: str = ""
    stated: Stated | None = None

    @property
    def operands(self) -> tuple[str, ...]:
        """Every tensor this op reads: given inputs, then what its regions capture."""
        given = tuple(filter(None, self.inputs)) if "" in self.inputs else self.inputs
        if not self.regions:
            return given
        captured = dict.fromkeys(name for region in self.regions for name in region.captures)
        return given + tuple(name for name in captured if name not in given)

    @property
    def results(self) -> tuple[str, ...]:
        """The outputs that exist."""
        return tuple(filter(None, self.outputs)) if "" in self.outputs else self.outputs


@dataclass(frozen=True, slots=True)
class Region:
    """A body of control flow, closed: what it captures is among its graph's inputs.

    Attributes:
        captures: inputs of the body that are outer tensors of the same name, not formal ones.
    """

    label: str
    graph: Graph
    captures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """Tensors and ops of one model or one region, in file order.

    Attributes:
        tensors: every tensor that an op, `inputs` or `outputs` names.
        inputs, outputs: names, in signature order.
        source: format the graph came from (``onnx``, ``pf``), for reports.
        notes: what the front end could not understand, one line each: shown in every report.
        doubts: those of the notes that figures rest on: where the file contradicts itself, or a
            size is only known to be at most so large. Nothing is called proven beside them.
        limits: those of the doubts that say how large a size is at most.
        bounded: tensors that may be smaller in a run, by shape; what is made of them, too.
    """

    name: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str = ""
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    bounded: frozenset[str] = frozenset()

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Doubts by which a size may be another one, larger or smaller."""
        return tuple(doubt for doubt in self.doubts if doubt not in self.limits)

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        """Tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def producer(self) -> dict[str, int]:
        """Position of the op that makes each tensor; inputs and static tensors are absent."""
        return {name: at for at, op in enumerate(self.ops) for name in op.results}

    def __getitem__(self, name: str) -> Tensor:
        """The tensor called `name`.

        Raises:
            ModelError: there is none.
        """
        try:
            return self.by_name[name]
        except KeyError:
            raise ModelError(f"no tensor {name!r}", where=f"graph {self.name!r}") from None

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Names of dimensions that are still symbols, sorted."""
        return tuple(sorted({d for t in self.tensors for d in t.shape or () if isinstance(d, str)}))

    def bind(self, dims: Mapping[str, int]) -> Graph:
        """The graph with symbols replaced by numbers, regions included.

        Raises:
            UsageError: a name that no dimension carries, or a negative number.
        """
        unknown = sorted(set(dims) - set(self.symbols))
        if unknown:
            known = ", ".join(self.symbols) or "none"
            raise UsageError(f"no dimension is called {unknown[0]!r}", hint=f"symbols: {known}")
        for symbol, value in dims.items():
            if value < 0:
                raise UsageError(f"dimension {symbol!r} cannot be {value}")
        return self._bound(dims) if dims else self

    def _bound(self, dims: Mapping[str, int]) -> Graph:
        def bind_dim(dim: Dim) -> Dim:
            return dims.get(dim, dim) if isinstance(dim, str) else dim

        def bind_op(op: Op) -> Op:
            if not op.regions:
                return op
            bodies = tuple(replace(r, graph=r.graph._bound(dims)) for r in op.regions)
            return replace(op, regions=bodies)

        tensors = tuple(
            t if t.shape is None else replace(t, shape=tuple(bind_dim(d) for d in t.shape))
            for t in self.tensors
        )
        return replace(self, tensors=tensors, ops=tuple(bind_op(op) for op in self.ops))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text form: the same graph has the same digest in every process."""
        from peakfold.ir.text import print_graph

        return hashlib.sha256(print_graph(self).encode()).hexdigest()


def unbound(graph: Graph) -> tuple[str, ...]:
    """Symbols in the shapes of a graph's inputs, in the order of the signature.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> unbound(parse_graph("peakfold-graph 1\\ninput x: int8[N,3,S]\\noutput x"))
        ('N', 'S')
    """
    shapes = (graph[name].shape or () for name in graph.inputs)
    return tuple(dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, str)))


def walk_regions(graph: Graph) -> Iterable[Graph]:
    """The graph and every region inside it, outermost first."""
    yield graph
    for op in graph.ops:
        for region in op.regions:
            yield from walk_regions(region.graph)
