"""Ops on storage that ATen has and ONNX has not: strided views, copies, fills, partial writes.

A front end states for every torch op which results lie in which operand's bytes, because
strides decide that. The rows only say what such an op costs: nothing for a view, no arithmetic
for a copy.
"""

from __future__ import annotations

from typing import Final

from peakfold.ops.inference import given
from peakfold.ops.rules import elements, moves, per_output, same, size_of, unknown, zero
from peakfold.ops.spec import Context, CountRule, MoveRule, OpSpec, ShapeRule


def _moved(
    kind: str,
    shape: ShapeRule | None = None,
    other: CountRule = zero,
    moved: MoveRule | None = None,
) -> OpSpec:
    return OpSpec(
        kind, shape, workspace=zero, macs=zero, other_ops=other, bytes_moved=moved, engine="copy"
    )


@moves
def _picked(ctx: Context) -> tuple[int, int]:
    # Indices, then what they pick; no more of the data is read than there is.
    result = size_of(ctx.outputs[0])
    indices = sum(size_of(tensor) for tensor in ctx.inputs[1:] if tensor is not None)
    return indices + min(result, size_of(ctx.inputs[0])), result


@moves
def _filled(ctx: Context) -> tuple[int, int]:
    # Whatever lies there is only written over.
    return 0, size_of(ctx.outputs[0])


@moves
def _copied(ctx: Context) -> tuple[int, int]:
    # `copy_` names what it writes over first, and does not read it.
    return size_of(ctx.inputs[-1]), size_of(ctx.outputs[0])


@moves
def _placed(ctx: Context) -> tuple[int, int]:
    # Indices and values; what is added to is read as well.
    values = size_of(ctx.inputs[-1])
    indices = sum(size_of(tensor) for tensor in ctx.inputs[1:-1] if tensor is not None)
    combined = values if ctx.int_attr("accumulate", 0) else 0
    return indices + values + combined, values


def _put_other(ctx: Context) -> int | None:
    """One operation per value that is added to what it replaces; plain stores are free."""
    if not ctx.int_attr("accumulate", 0):
        return 0
    last = len(ctx.inputs) - 1
    return elements(ctx, last) if given(ctx, last) else None


ROWS: Final = (
    OpSpec("view", workspace=zero, macs=zero, other_ops=zero, engine="none"),
    # A tensor after one of its views was written: the bytes are there already.
    OpSpec("after_write", same(), workspace=zero, macs=zero, other_ops=zero, engine="none"),
    _moved("copy", moved=_copied),
    _moved("repeat"),
    _moved("stack"),
    _moved("roll"),
    _moved("filled", moved=_filled),
    _moved("index", moved=_picked),
    # Elements that are not written stay what they are, where they are. A backward pass puts a
    # slice into zeros that are no operand, so its shape is torch's to say.
    *(
        OpSpec(
            kind,
            shape,
            inplace=(0,),
            workspace=zero,
            macs=zero,
            other_ops=other,
            bytes_moved=_placed,
            engine="copy",
        )
        for kind, shape, other in (("index_put", same(), _put_other), ("put_slice", None, zero))
    ),
    _moved("windows"),
    _moved("sequence", None, per_output()),
    OpSpec("read_value", workspace=zero, macs=zero, other_ops=zero, engine="none"),
    OpSpec("nonzero_rows", workspace=unknown, macs=zero, other_ops=unknown, engine="copy"),
)
