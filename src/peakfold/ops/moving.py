"""What rows share that move elements and compute nothing: boxes, pieces, kept orders.

A box of a tensor is a view when its bytes are one run inside the whole. Offsets are bytes.
Elements narrower than a byte count only where a run starts and ends on a byte, since its
neighbour shares that byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from peakfold.ir.graph import ViewFact
from peakfold.ir.types import Dim, DType
from peakfold.ops.inference import CannotTell, dims, dtype, sizes, wanted
from peakfold.ops.rules import Types, number, whole, zero
from peakfold.ops.spec import Context, MoveRule, OpSpec, ShapeRule, ViewRule


def copies(
    kind: str,
    shape: ShapeRule | None,
    views: ViewRule | None = None,
    *,
    parts: ViewRule | None = None,
    moved: MoveRule | None = None,
) -> OpSpec:
    """A row without scratch or arithmetic, charged to the copy engine."""
    return OpSpec(
        kind,
        shape,
        views=views,
        parts=parts,
        workspace=zero,
        macs=zero,
        other_ops=zero,
        bytes_moved=moved,
        engine="copy",
    )


def scaled(dim: Dim, times: int) -> Dim:
    """A dimension repeated so many times; stops the rule at a symbol that would change."""
    return dim if times == 1 else number(dim) * times


def whole_bytes(element: DType, count: int) -> int:
    """Bytes of `count` elements, stopping the rule unless they end on a byte."""
    if element.bits is None or count * element.bits % 8:
        raise CannotTell
    return count * element.bits // 8


def run_offset(shape: tuple[int, ...], starts: tuple[int, ...], lengths: tuple[int, ...]) -> int:
    """Elements before a box inside a row-major tensor, when the box is one contiguous run.

    Args:
        shape: the whole tensor.
        starts: first position of the box, per axis.
        lengths: extent of the box, per axis (unit steps).

    Raises:
        CannotTell: the box is empty or has gaps.

    Example:
        >>> run_offset((4, 3), (2, 0), (1, 3)), run_offset((1, 6), (0, 2), (1, 2))
        (6, 2)
    """
    offset, full = 0, True
    stride = 1
    for size, start, length in zip(
        reversed(shape), reversed(starts), reversed(lengths), strict=True
    ):
        if length < 1 or (not full and length != 1):
            raise CannotTell
        offset += start * stride
        stride *= size
        full = full and length == size
    return offset


def box_view(
    element: DType, shape: tuple[int, ...], spans: Sequence[range], output: int = 0, source: int = 0
) -> tuple[ViewFact, ...]:
    """The view of an operand that a box of it is; none where steps leave gaps.

    Args:
        element: element type of both.
        shape: shape of the operand.
        spans: positions taken from each axis.
        output: position of the result that holds the box.
        source: position of the operand.

    Raises:
        CannotTell: the box is not one run of whole bytes.

    Example:
        >>> from peakfold.ir.types import DTYPES
        >>> box_view(DTYPES["float32"], (4, 3), (range(2, 3), range(3)))
        (ViewFact(output=0, input=0, offset=24),)
    """
    if any(len(span) > 1 and span.step != 1 for span in spans):
        return ()
    lengths = tuple(len(span) for span in spans)
    offset = run_offset(shape, tuple(span.start for span in spans), lengths)
    if lengths != shape:
        whole_bytes(element, prod(lengths))
    return (ViewFact(output, source, whole_bytes(element, offset)),)


def inside(shape: tuple[int, ...], spans: Sequence[range]) -> None:
    """Stop the rule where stated positions (steps forward) are not all inside a tensor."""
    if any(s.start < 0 or s.stop > size for s, size in zip(spans, shape, strict=True)):
        raise CannotTell


def cut_types(ctx: Context, source: int, axis: int, lengths: Sequence[int]) -> Types:
    """Types of an operand's pieces along an axis, counted from the front."""
    shape = dims(ctx, source)
    return tuple((dtype(ctx, source), (*shape[:axis], n, *shape[axis + 1 :])) for n in lengths)


def cut_views(ctx: Context, source: int, axis: int, lengths: Sequence[int]) -> tuple[ViewFact, ...]:
    """Views that an operand's pieces along an axis are, where they are and somebody wants them.

    A piece that is empty or off a byte boundary is no view; its neighbours still may be.
    """
    shape, element = sizes(ctx, source), dtype(ctx, source)
    found: list[ViewFact] = []
    start = 0
    for at, length in enumerate(lengths):
        spans = [range(size) for size in shape]
        spans[axis] = range(start, start + length)
        start += length
        if wanted(ctx, at):
            try:
                found += box_view(element, shape, spans, at, source)
            except CannotTell:
                continue
    return tuple(found)


def order_kept(ctx: Context, perm: Sequence[int]) -> tuple[ViewFact, ...]:
    """A transposition is a view when the axes longer than one keep their order."""
    shape = dims(ctx)
    moved = [at for at in perm if shape[at] != 1]
    return whole(ctx) if len(perm) == len(shape) and moved == sorted(moved) else ()
