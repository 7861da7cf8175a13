"""What rows share: shape arithmetic, byte ranges, and the counting conventions.

Every row function is wrapped by `tells`, `views_or_none` or `count`, so that a rule is written
for the case it understands and answers "cannot tell" (or "no alias") for all others,
malformed ops included: naming what is wrong with a graph is the checker's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from math import prod

from peakfold.ir.graph import Tensor, ViewFact
from peakfold.ir.types import DTYPES, Dim, DType, Shape
from peakfold.ops.inference import CannotTell, Misfit, dims, dtype, operand, produced
from peakfold.ops.spec import (
    Context,
    CountRule,
    MaskRule,
    MoveRule,
    OutputType,
    ShapeRule,
    ViewRule,
)

Types = tuple[OutputType | None, ...]

BOOL = DTYPES["bool"]
FLOAT = DTYPES["float32"]
INT64 = DTYPES["int64"]

# What a malformed op can provoke in a rule: a missing dimension, a zero stride, a bad count.
STOPS = (CannotTell, IndexError, ValueError, ZeroDivisionError, OverflowError)


def tells(rule: Callable[[Context], Types]) -> ShapeRule:
    """A shape rule that answers `None` where it cannot tell, one entry per output."""

    @wraps(rule)
    def told(ctx: Context) -> tuple[OutputType | None, ...] | None:
        try:
            types = rule(ctx)
        except STOPS:
            return None
        count = len(ctx.op.outputs)
        types = tuple(t if t is None or _sane(t[1]) else None for t in types)
        return (types + (None,) * count)[:count]

    return told


def _sane(shape: Shape) -> bool:
    return all(isinstance(dim, str) or dim >= 0 for dim in shape)


def views_or_none(rule: Callable[[Context], tuple[ViewFact, ...]]) -> ViewRule:
    """A view rule that claims nothing where it cannot tell, nor of tensors that are absent.

    A range that the tensors' own sizes contradict (a malformed op) is dropped as well.
    """

    @wraps(rule)
    def told(ctx: Context) -> tuple[ViewFact, ...]:
        try:
            facts = rule(ctx)
        except STOPS:
            return ()
        return tuple(
            f
            for f in facts
            if _fits(_at(ctx.outputs, f.output), _at(ctx.inputs, f.input), f.offset)
        )

    return told


def parts_or_none(rule: Callable[[Context], tuple[ViewFact, ...]]) -> ViewRule:
    """The same for a rule of parts, whose inputs lie inside the output and fill it.

    Nothing is claimed where a malformed model states a result that its operands do not fill.
    """

    @wraps(rule)
    def told(ctx: Context) -> tuple[ViewFact, ...]:
        try:
            facts = rule(ctx)
        except STOPS:
            return ()
        found = tuple(
            f
            for f in facts
            if _fits(_at(ctx.inputs, f.input), _at(ctx.outputs, f.output), f.offset)
        )
        pieces = [tensor.nbytes for f in found if (tensor := _at(ctx.inputs, f.input)) is not None]
        whole = _at(ctx.outputs, 0)
        total = None if whole is None else whole.nbytes
        known = sum(size for size in pieces if size is not None)
        return found if total is None or None in pieces or known == total else ()

    return told


def _at(tensors: tuple[Tensor | None, ...], position: int) -> Tensor | None:
    return tensors[position] if position < len(tensors) else None


def _fits(piece: Tensor | None, base: Tensor | None, offset: int) -> bool:
    if piece is None or base is None:
        return False
    inner, outer = piece.nbytes, base.nbytes
    if (inner is None) != (outer is None) and None in (piece.dtype.bits, base.dtype.bits):
        return False  # an opaque value is no range of bytes, nor are bytes a part of one
    return inner is None or outer is None or offset + inner <= outer


def count(rule: Callable[[Context], int]) -> CountRule:
    """A counting rule that answers `None` while shapes are not known."""

    @wraps(rule)
    def told(ctx: Context) -> int | None:
        try:
            return rule(ctx)
        except STOPS:
            return None

    return told


def moves(rule: Callable[[Context], tuple[int, int]]) -> MoveRule:
    """A rule of bytes read and written that answers `None` while sizes are not known."""

    @wraps(rule)
    def told(ctx: Context) -> tuple[int, int] | None:
        try:
            return rule(ctx)
        except STOPS:
            return None

    return told


def masks(rule: Callable[[Context], tuple[int, int]]) -> MaskRule:
    """A rule of masked work that discounts nothing where it cannot tell."""

    @wraps(rule)
    def told(ctx: Context) -> tuple[int, int]:
        try:
            return rule(ctx)
        except STOPS:
            return 0, 0

    return told


def size_of(tensor: Tensor | None) -> int:
    """Bytes of a tensor, 0 when it is absent; stops the rule while they are not known."""
    if tensor is None:
        return 0
    if tensor.nbytes is None:
        raise CannotTell
    return tensor.nbytes


def zero(_ctx: Context) -> int:
    """No scratch, no operations."""
    return 0


def unknown(_ctx: Context) -> None:
    """Depends on the kernel, or on values only the run knows."""
    return


def per_output(operations: int = 1) -> CountRule:
    """`operations` scalar operations per element of output 0.

    An element-wise function counts as one operation whatever it is (an exponential as much as
    an addition): the convention of published FLOP tables.

    Example:
        >>> from peakfold.ir.graph import Op, Tensor
        >>> from peakfold.ir.types import DTYPES
        >>> x = Tensor("x", DTYPES["float32"], (2, 3))
        >>> per_output(2)(Context(Op("n", "clip", ("x",), ("y",)), (x,), (x,)))
        12
    """
    return count(lambda ctx: operations * prod(produced(ctx)))


def per_input(operations: int = 1, position: int = 0) -> CountRule:
    """`operations` scalar operations per element of one input (reductions, norms)."""
    return count(lambda ctx: operations * elements(ctx, position))


def elements(ctx: Context, position: int = 0) -> int:
    """Number of elements of an input; stops the rule while it is not known."""
    found = operand(ctx, position).elements
    if found is None:
        raise CannotTell
    return found


def axis_of(axis: int, rank: int) -> int:
    """`axis` counted from the front.

    Raises:
        Misfit: it is out of range.

    Example:
        >>> axis_of(-1, 3)
        2
    """
    if not -rank <= axis < rank:
        raise Misfit(f"axis {axis} of {rank} dimensions")
    return axis % rank


def axes_of(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front.

    Raises:
        Misfit: one is out of range, or two are the same.

    Example:
        >>> axes_of((0, -1), 4)
        (0, 3)
    """
    found = tuple(axis_of(axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise Misfit("an axis is named twice")
    return found


def number(dim: Dim) -> int:
    """A dimension that is a number; stops the rule at a symbol."""
    if isinstance(dim, str):
        raise CannotTell
    return dim


def product(shape: Iterable[Dim]) -> Dim:
    """Product of dimensions: a number, or one symbol times ones.

    Raises:
        CannotTell: the product has no name (``2 * batch``).

    Example:
        >>> product((2, 3)), product((1, "batch", 1))
        (6, 'batch')
    """
    symbols = [dim for dim in shape if isinstance(dim, str)]
    size = prod(dim for dim in shape if isinstance(dim, int))
    if not symbols or size == 0:
        return size
    if len(symbols) == 1 and size == 1:
        return symbols[0]
    raise CannotTell


def quotient(whole: Iterable[Dim], known: Iterable[Dim]) -> Dim:
    """The dimension that times `known` gives `whole` (a Reshape's -1).

    Symbols cancel by name.

    Example:
        >>> quotient((2, 12), (4,)), quotient(("n", 6), (6,)), quotient(("n", 6), ("n", 2))
        (6, 'n', 3)
    """
    whole, known = list(whole), list(known)
    left = Counter(d for d in whole if isinstance(d, str))
    taken = Counter(d for d in known if isinstance(d, str))
    if taken - left:
        raise CannotTell
    size, divisor = (prod(d for d in part if isinstance(d, int)) for part in (whole, known))
    if divisor == 0 or size % divisor:
        raise CannotTell
    return product([*(left - taken).elements(), size // divisor])


def broadcast(*shapes: Shape) -> Shape:
    """The common shape of element-wise operands (numpy's rule, onnx "Broadcasting").

    A symbol against a number above 1 gives the number: the symbol is 1 or that number.

    Example:
        >>> broadcast((3, 1), ("n", 1, 4)), broadcast(("n",), (5,))
        (('n', 3, 4), (5,))
    """
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_common(set(column)) for column in zip(*padded, strict=True))


def _common(column: set[Dim]) -> Dim:
    rest = column - {1}
    if not rest:
        return 1
    sized = {dim for dim in rest if isinstance(dim, int)}
    if len(sized) == 1:
        return sized.pop()
    if len(rest) == 1:
        return rest.pop()
    if len(sized) > 1:
        listed = " and ".join(str(dim) for dim in sorted(sized))
        raise Misfit(f"sizes {listed} do not broadcast")
    raise CannotTell


def same() -> ShapeRule:
    """Output 0 has the type of input 0."""
    return tells(lambda ctx: ((dtype(ctx), dims(ctx)),))


def same_as(position: int, of: DType) -> ShapeRule:
    """Output 0 has the shape of one input and a fixed element type."""
    return tells(lambda ctx: ((of, dims(ctx, position)),))


@views_or_none
def whole(ctx: Context) -> tuple[ViewFact, ...]:
    """Output 0 is all of input 0's bytes."""
    source, result = ctx.inputs[0], ctx.outputs[0]
    if source is None or result is None or None in (source.nbytes, result.nbytes):
        return (ViewFact(0, 0, 0),)
    return (ViewFact(0, 0, 0),) if source.nbytes == result.nbytes else ()
