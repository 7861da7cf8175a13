"""What one row of the registry says about an op kind.

A row states mathematical facts only: which output elements depend on which input elements,
which outputs are a re-reading of an input's bytes, how many multiply-accumulates there are.
What a runtime's kernels allow on top or forbid is the target's business. Every fact a row
claims about aliasing is proven by a generated test that perturbs inputs element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from peakfold.ir.graph import AttrValue, Op, OverlapFact, Tensor, ViewFact
from peakfold.ir.types import DType, Shape, element_count

Engine = Literal["matrix", "vector", "copy", "none"]
OutputType = tuple[DType, Shape]


@dataclass(frozen=True, slots=True)
class Context:
    """An op with its tensors resolved: all that a row function may look at.

    Attributes:
        inputs: tensors by position; `None` for an absent optional input.
        outputs: tensors by position; `None` for an output nobody asked for. While shapes are
            being inferred there may be none, or they carry no shape yet: shape functions
            must not read them, and count outputs by `op.outputs`.
    """

    op: Op
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]

    def attr(self, name: str) -> AttrValue | None:
        """The attribute, or `None` when it is not given."""
        return self.op.attrs.get(name)

    def int_attr(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.op.attrs.get(name, default)
        return value if isinstance(value, int) else default

    def ints(self, name: str) -> tuple[int, ...] | None:
        """An integer-list attribute, or `None` when it is not given or not known."""
        value = self.op.attrs.get(name)
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            return None
        return tuple(int(v) for v in value)

    def shape(self, position: int) -> tuple[int, ...] | None:
        """The concrete shape of an input, or `None` when absent, unknown or symbolic."""
        return concrete(self.inputs[position]) if position < len(self.inputs) else None

    def out_shape(self, position: int = 0) -> tuple[int, ...] | None:
        """The concrete shape of an output, or `None` when absent, unknown or symbolic."""
        return concrete(self.outputs[position]) if position < len(self.outputs) else None


def concrete(tensor: Tensor | None) -> tuple[int, ...] | None:
    """A tensor's shape when every dimension is a number."""
    if tensor is None or tensor.shape is None or element_count(tensor.shape) is None:
        return None
    return cast(tuple[int, ...], tensor.shape)  # a symbol has no count


ShapeRule = Callable[[Context], tuple[OutputType | None, ...] | None]
ViewRule = Callable[[Context], tuple[ViewFact, ...]]
CountRule = Callable[[Context], int | None]
InplaceRule = Callable[[Context], tuple[int, ...]]
OverlapRule = Callable[[Context], tuple[OverlapFact, ...]]
MoveRule = Callable[[Context], tuple[int, int] | None]
MaskRule = Callable[[Context], tuple[int, int]]
EngineRule = Callable[[Context], Engine]


GradForm = Literal["pointwise", "pass", "slices", "other"]


@dataclass(frozen=True, slots=True)
class GradReads:
    """What computes the gradient of one operand.

    Attributes:
        tokens: ``dy`` (gradients of the results), ``y`` (result 0), ``y*`` (all results),
            ``oK`` (result K), ``xK`` (operand K), ``x*`` (all operands), ``others`` (all but
            this operand).
        form: ``pointwise`` (element k from element k of what is read), ``pass`` (the incoming
            gradient as it is, summed where the operand was broadcast), ``slices`` (cut out of
            it), ``other``.
    """

    tokens: tuple[str, ...]
    form: GradForm = "other"


@dataclass(frozen=True, slots=True)
class GradSpec:
    """The backward pass of an op kind.

    Attributes:
        wrt: per operand that has a gradient, what computes it; -1 = every operand of floats.
            Empty: no gradient flows through this kind.
        joint: one backward op makes all the gradients, since they share their work.
        mxnet: the profile of MXNet's layers, where it differs: one op, these reads.
        bilinear: operands in which the op is linear with multiply-accumulates; the gradient of
            each costs as many as the op.
        mask: position of a result that training adds: which elements survived (a byte each).
        statistics: position from which training adds a mean and a deviation per channel.
    """

    wrt: Mapping[int, GradReads]
    joint: bool = False
    mxnet: GradReads | None = None
    bilinear: tuple[int, ...] = ()
    mask: int | None = None
    statistics: int | None = None


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row: the answers of one op kind to every pass.

    Attributes:
        kind: the registry key, lower case with underscores.
        shape: output types from input types and attributes; `None` = cannot tell.
        inplace: positions of inputs whose element k is all that output 0's element k depends
            on among that input's elements, so output 0 may be written over it when shape and
            element width agree (`(-1,)` = every input, for variadic ops). True for every op
            of the kind; ask `inplace_inputs`, which adds `inplace_if` and expands `-1`.
        inplace_if: further such positions, true of some ops of the kind only (batch
            normalisation outside training).
        views: outputs that are byte ranges of an input (alias or copy is the planner's choice).
        parts: inputs that are byte ranges of output 0 (concatenation); `ViewFact.offset` is
            the byte offset of that input inside output 0.
        overlap: inputs that output 0 may be written over at a distance, and the smallest one,
            in the order in which the reference kernel of this kind reads and writes. Not a
            fact of mathematics: it holds for targets that name the kind.
        workspace: scratch bytes while the op runs; `None` = depends on the kernel, unknown.
        macs: multiply-accumulates (1 MAC = 1 multiply and 1 add = 2 FLOPs); `None` = unknown.
        other_ops: scalar operations that are not part of a MAC; `None` = unknown.
        bytes_moved: bytes read and bytes written by an op that touches its operands in part
            (a gather reads the rows it picks). Without it every operand is read once and every
            result written once. With `inplace` the rule holds while input 0 may be overwritten.
        masked: MACs and other operations of the positions that a causal mask hides, which
            `macs` and `other_ops` include.
        engine: which engine the time model charges.
        engine_if: the engine of ops of the kind that need another (depthwise convolution).
        pure: equal inputs give equal outputs and nothing else changes (may be folded).
        shape_only: the output's value follows from input shapes alone.
        widens: run at load time it would multiply the bytes of a weight (Cast, Dequantize).
        known: false only for the conservative stand-in of an unknown kind.
        grad: what the backward pass reads; `None` = not declared, so everything.
    """

    kind: str
    shape: ShapeRule | None = None
    inplace: tuple[int, ...] = ()
    inplace_if: InplaceRule | None = None
    views: ViewRule | None = None
    parts: ViewRule | None = None
    overlap: OverlapRule | None = None
    workspace: CountRule | None = None
    macs: CountRule | None = None
    other_ops: CountRule | None = None
    bytes_moved: MoveRule | None = None
    masked: MaskRule | None = None
    engine: Engine = "vector"
    engine_if: EngineRule | None = None
    pure: bool = True
    shape_only: bool = False
    widens: bool = False
    known: bool = True
    grad: GradSpec | None = None

    def inplace_inputs(self, ctx: Context) -> tuple[int, ...]:
        """Positions of the given inputs of this op that output 0 may be written over.

        Equal shape, equal element width and everything about lifetimes is the planner's
        business.

        Example:
            >>> from peakfold.ir.graph import Op, Tensor
            >>> from peakfold.ir.types import DTYPES
            >>> x = Tensor("x", DTYPES["float32"], (4,))
            >>> ctx = Context(Op("n", "sum", ("x", "", "x"), ("y",)), (x, None, x), (x,))
            >>> OpSpec("sum", inplace=(-1,)).inplace_inputs(ctx)
            (0, 2)
        """
        positions = tuple(range(len(ctx.inputs))) if self.inplace == (-1,) else self.inplace
        if self.inplace_if is not None:
            positions += self.inplace_if(ctx)
        return tuple(p for p in positions if p < len(ctx.inputs) and ctx.inputs[p] is not None)
