"""TFLite's bodies, variables, tables and random numbers.

A handle is the number of a variable; the variable itself is a `state` tensor of the graph, which
the front end names as an effect of the ops that read or write it.
"""

from __future__ import annotations

from math import prod
from typing import Final

from peakfold.ir.types import DTYPES
from peakfold.ops.inference import CannotTell, dims, dtype, integer, ints, needed, sizes
from peakfold.ops.rules import Types, axis_of, count, per_input, tells, unknown, zero
from peakfold.ops.spec import Context, OpSpec, OutputType, ShapeRule
from peakfold.ops.standard.generating import transform_operations

_RESOURCE: Final = DTYPES["resource"]
_FLOAT: Final = DTYPES["float32"]
_INT32: Final = DTYPES["int32"]


def _results(ctx: Context, region: int) -> list[OutputType | None]:
    body = ctx.op.regions[region].graph
    found: list[OutputType | None] = []
    for name in body.outputs:
        tensor = body[name]
        found.append(None if tensor.shape is None else (tensor.dtype, tensor.shape))
    return found


@tells
def _while(ctx: Context) -> Types:
    # A carried value keeps its type only if the body gives back what it was given.
    made = _results(ctx, 1)
    return tuple(
        t if given is not None and t == (given.dtype, given.shape) else None
        for t, given in zip(made, ctx.inputs, strict=True)
    )


@tells
def _called(ctx: Context) -> Types:
    return tuple(_results(ctx, 0))


@tells
def _branches(ctx: Context) -> Types:
    first, *others = [_results(ctx, at) for at in range(len(ctx.op.regions))]
    return tuple(
        t if all(branch[at] == t for branch in others) else None for at, t in enumerate(first)
    )


@tells
def _handle(_ctx: Context) -> Types:
    return ((_RESOURCE, ()),)


@tells
def _table(_ctx: Context) -> Types:
    return ((_RESOURCE, (1,)),)


@tells
def _found(ctx: Context) -> Types:
    # The element type is the table's, which the file states.
    return ((dtype(ctx, 2), dims(ctx, 1)),)


@tells
def _table_size(_ctx: Context) -> Types:
    return ((DTYPES["int64"], (1,)),)


@tells
def _random(ctx: Context) -> Types:
    return ((_FLOAT, needed(ints(ctx, "shape"))),)


@tells
def _drawn(ctx: Context) -> Types:
    return ((DTYPES["int64"], (dims(ctx)[0], integer(ctx, "num_samples"))),)


@tells
def _suppressed(ctx: Context) -> Types:
    # Results are as long as the most boxes that may be kept; a count says how many were.
    most = integer(ctx, "max_output_size")
    picked, kept = (_INT32, (most,)), (_INT32, ())
    scores = (_FLOAT, (most,))
    return (picked, scores, kept) if ctx.op.kind.endswith("v5") else (picked, kept)


@tells
def _spectrum(ctx: Context) -> Types:
    *batch, _, _ = dims(ctx)
    rows, columns = needed(ints(ctx, "fft_length"))
    return ((DTYPES["complex64"], (*batch, rows, columns // 2 + 1)),)


@count
def _spectrum_other(ctx: Context) -> int:
    rows, columns = needed(ints(ctx, "fft_length"))
    return prod(sizes(ctx)[:-2]) * transform_operations(rows * columns, real=True)


@tells
def _any_of(ctx: Context) -> Types:
    shape, axes = dims(ctx), needed(ints(ctx, "axes"))
    gone = {axis_of(axis, len(shape)) for axis in axes}
    if integer(ctx, "keepdims", 0):
        return ((dtype(ctx), tuple(1 if at in gone else d for at, d in enumerate(shape))),)
    return ((dtype(ctx), tuple(d for at, d in enumerate(shape) if at not in gone)),)


def _region(kind: str, shape: ShapeRule) -> OpSpec:
    # Not pure: a body may touch variables. Its cost is in the body's ops.
    return OpSpec(
        kind, shape, workspace=zero, macs=unknown, other_ops=unknown, engine="none", pure=False
    )


def _stateful(kind: str, shape: ShapeRule | None) -> OpSpec:
    return OpSpec(kind, shape, workspace=zero, macs=zero, other_ops=zero, engine="copy", pure=False)


def _drawing(kind: str, shape: ShapeRule | None) -> OpSpec:
    # How many operations a random number costs is the generator's affair.
    return OpSpec(kind, shape, workspace=zero, macs=zero, other_ops=unknown, pure=False)


@tells
def _nothing(ctx: Context) -> Types:
    if ctx.op.outputs:
        raise CannotTell
    return ()


ROWS: Final = (
    _region("while", _while),
    _region("call", _called),
    _region("call_once", _nothing),
    _region("case", _branches),
    OpSpec(
        "var_handle", _handle, workspace=zero, macs=zero, other_ops=zero, engine="none", pure=False
    ),
    # The value's type is the variable's, which the file states.
    _stateful("read_variable", None),
    _stateful("assign_variable", _nothing),
    OpSpec(
        "hashtable", _table, workspace=zero, macs=zero, other_ops=zero, engine="none", pure=False
    ),
    OpSpec("hashtable_find", _found, workspace=zero, macs=zero, other_ops=unknown, pure=False),
    _stateful("hashtable_import", _nothing),
    _stateful("hashtable_size", _table_size),
    _drawing("random_standard_normal", _random),
    _drawing("tfl_random_uniform", _random),
    _drawing("tfl_multinomial", _drawn),
    _drawing("stablehlo_rng_bit_generator", None),
    OpSpec("non_max_suppression_v4", _suppressed, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("non_max_suppression_v5", _suppressed, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("rfft2d", _spectrum, workspace=unknown, macs=zero, other_ops=_spectrum_other),
    OpSpec("reduce_any", _any_of, workspace=unknown, macs=zero, other_ops=per_input()),
    OpSpec("reduce_all", _any_of, workspace=unknown, macs=zero, other_ops=per_input()),
)
