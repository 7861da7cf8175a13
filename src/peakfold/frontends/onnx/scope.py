"""What is known of one ONNX graph while it is turned into an IR graph."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto

from peakfold.errors import ModelError
from peakfold.frontends.onnx.file import OnnxFile
from peakfold.frontends.onnx.names import onnx_kind
from peakfold.frontends.onnx.types import bound_type, dtype_and_shape, dtype_of, tensor_type
from peakfold.frontends.onnx.values import SHAPE_ARITHMETIC, Values
from peakfold.ir import DTYPES, MAX_RANK, OPAQUE, DType, Graph, Op, Role, Shape, Tensor
from peakfold.ir.bindings import Bindings
from peakfold.ops import lookup
from peakfold.ops.doubts import listed

Parsed = tuple[DType, Shape | None]
Signature = tuple[Hashable, ...]
"""All that onnx's shape rules see of a node (`onnx_infer._signature`)."""

MAX_VISITS = 5_000
"""How often nodes are walked beyond sixty times each: a body is walked again while the values it
carries change shape, and bodies inside it each time."""

RANDOM_STATE = "random_state"
"""The `state` tensor through which unseeded random ops keep their order."""


@dataclass(slots=True)
class Scope:
    """One ONNX graph on its way to an IR graph, chained to the scope around it.

    Attributes:
        bindings: one cell shared with all bodies; replaced as given shapes bind symbols.
        seen: names of all tensors of all scopes, shared.
        types: types of the tensors this scope defines.
        parsed: the same, as element types and shapes.
        inferred: types that onnx's rule gave for nodes of one signature, shared.
        stated: bytes of tensors that no one shape describes (If branches that differ).
        static: roles of tensors that no op makes.
        visits: one cell: how many more nodes may be walked, bodies again and again, shared.
        doubts: where the file contradicts itself, by tensor.
        limits: sizes that are only upper bounds, by tensor.
        bounded: tensors whose shape is only an upper bound, and what is made of them, shared.
        names: what an inlined branch calls a tensor -> what it is called here.
    """

    file: OnnxFile
    proto: GraphProto
    bindings: list[Bindings]
    notes: list[str]
    seen: set[str]
    outer: Scope | None = None
    types: dict[str, TypeProto] = field(default_factory=dict)
    parsed: dict[str, Parsed] = field(default_factory=dict)
    inferred: dict[Signature, tuple[Parsed, ...]] = field(default_factory=dict)
    stated: dict[str, int] = field(default_factory=dict)
    static: dict[str, Role] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    visits: list[int] = field(default_factory=lambda: [MAX_VISITS])
    values: Values = field(init=False)

    def __post_init__(self) -> None:
        parent = None if self.outer is None else self.outer.values
        self.values = Values(self.file, self.type_of, _foldable, _shape_only, self.bounded, parent)
        for tensor in self.proto.initializer:
            self.store(tensor.name, tensor, Role.PARAMETER)
        for sparse in self.proto.sparse_initializer:
            self._store_sparse(sparse.values, sparse.indices, tuple(sparse.dims))

    def body(self, proto: GraphProto) -> Scope:
        """A scope inside this one."""
        return Scope(
            self.file,
            proto,
            self.bindings,
            self.notes,
            self.seen,
            self,
            inferred=self.inferred,
            bounded=self.bounded,
            visits=self.visits,
        )

    def store(self, name: str, tensor: TensorProto, role: Role) -> None:
        """Take over a stored tensor; its bytes stay unread until a shape needs them."""
        dims = tuple(tensor.dims)
        require_sane(name, dims)
        self._set(name, dtype_of(tensor.data_type), dims)
        self.static[name] = role
        self.values.stored[name] = tensor

    def _store_sparse(self, values: TensorProto, indices: TensorProto, dims: Shape) -> None:
        dtype = dtype_of(values.data_type)
        self._set(values.name, dtype, dims)
        self.static[values.name] = Role.PARAMETER
        count, index = (int(np.prod(t.dims, dtype=object)) for t in (values, indices))
        self.stated[values.name] = (dtype.nbytes(count) or 0) + 8 * index

    def proto_of(self, name: str) -> TypeProto | None:
        """The type of a tensor of this scope or one around it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.types:
                return scope.types[name]
            scope = scope.outer
        return None

    def type_of(self, name: str) -> tuple[DType, Shape | None]:
        """Element type and shape of a tensor of this scope or one around it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.parsed:
                return scope.parsed[name]
            scope = scope.outer
        return OPAQUE, None

    def _set(self, name: str, dtype: DType, shape: Shape | None) -> None:
        self.types[name] = tensor_type(dtype, shape)
        self.parsed[name] = dtype, shape

    def defines(self, name: str) -> bool:
        """Whether the tensor belongs to this very scope."""
        return name in self.types

    def declare(self, name: str, proto: TypeProto | None) -> None:
        """Set a tensor's type, with the user's numbers put in.

        Raises:
            UsageError: the user's shape contradicts the model.
        """
        if proto is not None and proto.WhichOneof("value") not in (None, "tensor_type"):
            self.seen.add(name)
            self.types[name] = proto
            self.parsed[name] = OPAQUE, None
            return
        self.settle(name, *dtype_and_shape(proto))
        if proto is not None and self.parsed[name][1] is None:
            self.types[name] = bound_type(proto, self.bindings[0].dims)  # its rank, at least

    def settle(self, name: str, dtype: DType, shape: Shape | None) -> None:
        """Set the type of a value that is a tensor, or of which nothing is known.

        Raises:
            UsageError: the user's shape contradicts the model.
        """
        self.seen.add(name)
        require_sane(name, shape or ())
        bindings = self.bindings[0]
        merged, bound = bindings.merge_shape(name, shape)
        if bound:
            self.bindings[0] = bindings.with_dims(bound)
        given = bindings.shapes.get(name)
        if given is not None and given.dtype is not None and dtype.bits is None:
            dtype = given.dtype
        self._set(name, dtype, merged)

    def bound(self, name: str, dtype: DType, shape: Shape) -> None:
        """Set the largest shape that a tensor can have, and say so."""
        self.settle(name, dtype, shape)
        if name not in self.bindings[0].shapes:
            self.bounded.add(name)
            listed_ = ", ".join(map(str, shape))
            self.limits[name] = f"tensor {name!r}: at most {dtype}[{listed_}]; the run decides"

    def add(self, op: Op) -> None:
        """Append a finished op."""
        self.ops.append(op)
        self.made.extend(op.results)

    def tensor(self, name: str, role: Role) -> Tensor:
        """The IR tensor of a name."""
        dtype, shape = self.type_of(name)
        proto = self.proto_of(name) if dtype.bits is None else None
        if proto is not None and proto.WhichOneof("value") is not None:
            # An empty shape marks a value that is opaque by type, not one with a missing shape;
            # a string is opaque whatever its shape, and the next op reads that.
            opaque = proto.WhichOneof("value") != "tensor_type"
            shape = () if opaque and shape is None else shape
        return Tensor(name, dtype, shape, role, self.stated.get(name))

    def role_of(self, name: str) -> Role:
        """The role a tensor has where it is defined; what an op makes counts as an input."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.types:
                return scope.static.get(name, Role.INPUT)
            scope = scope.outer
        return Role.INPUT

    def close(self, name: str, captures: Sequence[str] = ()) -> Graph:
        """The finished graph; what it captures follows its formal inputs as further inputs."""
        tensors = [self.tensor(n, Role.INPUT) for n in self.inputs]
        tensors += [self.tensor(n, self.role_of(n)) for n in captures]
        tensors += [self.tensor(n, role) for n, role in self.static.items()]
        if any(RANDOM_STATE in op.writes for op in self.ops):
            tensors.append(Tensor(RANDOM_STATE, DTYPES["uint8"], (0,), Role.STATE))
        tensors += [self.tensor(n, Role.ACTIVATION) for n in self.made]
        outputs = tuple(info.name for info in self.proto.output)
        if self.outer is not None:
            self.outer.doubts |= self.doubts
            self.outer.limits |= self.limits
        mere = [line for at, line in self.limits.items() if at not in self.doubts]
        limits = () if self.outer is not None else listed(mere)
        doubts = () if self.outer is not None else (*listed(self.doubts.values()), *limits)
        notes = () if self.outer is not None else tuple(dict.fromkeys((*self.notes, *doubts)))
        return Graph(
            name,
            tuple(tensors),
            tuple(self.ops),
            (*self.inputs, *captures),
            outputs,
            "onnx",
            notes,
            doubts,
            limits,
            frozenset(t.name for t in tensors) & self.bounded,
        )


def require_sane(name: str, shape: Shape) -> None:
    """Refuse dimensions early: onnx's rules allocate by them, protobuf holds 64 bits.

    Raises:
        ModelError: one that is negative or absurd, or too many.
    """
    if len(shape) > MAX_RANK:
        raise ModelError(f"it has more than {MAX_RANK} dimensions", where=f"tensor {name!r}")
    for dim in shape:
        if isinstance(dim, int) and not 0 <= dim < 2**48:
            raise ModelError(f"dimension {dim} is negative or absurd", where=f"tensor {name!r}")


def _foldable(node: NodeProto) -> bool:
    return onnx_kind(node.op_type, node.domain) in SHAPE_ARITHMETIC


def _shape_only(node: NodeProto) -> bool:
    return lookup(onnx_kind(node.op_type, node.domain)).shape_only
