"""TFLite's operators that pick, place and fill elements, and look them up in tables."""

from __future__ import annotations

from typing import Final

from peakfold.ir.types import DTYPES
from peakfold.ops.inference import CannotTell, dims, dtype, integer, ints, needed
from peakfold.ops.moving import copies
from peakfold.ops.rules import (
    Types,
    axis_of,
    broadcast,
    number,
    per_input,
    same,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec
from peakfold.ops.standard.indexing import picked, scatter, written_into


@tells
def _gather(ctx: Context) -> Types:
    data, picked = dims(ctx), dims(ctx, 1)
    axis, batch = axis_of(integer(ctx, "axis", 0), len(data)), integer(ctx, "batch_dims", 0)
    batch = batch + len(picked) if batch < 0 else batch
    if not 0 <= batch <= axis:
        raise CannotTell
    return ((dtype(ctx), (*data[:axis], *picked[batch:], *data[axis + 1 :])),)


@tells
def _scatter(ctx: Context) -> Types:
    return ((dtype(ctx, 1), needed(ints(ctx, "shape"))),)


@tells
def _to_dense(ctx: Context) -> Types:
    return ((dtype(ctx, 2), needed(ints(ctx, "output_shape"))),)


@tells
def _fill(ctx: Context) -> Types:
    return ((dtype(ctx, 1), needed(ints(ctx, "dims"))),)


@tells
def _rank(ctx: Context) -> Types:
    dims(ctx)
    return ((DTYPES["int32"], ()),)


@tells
def _broadcast_args(ctx: Context) -> Types:
    (left,), (right,) = dims(ctx), dims(ctx, 1)
    return ((dtype(ctx), (max(number(left), number(right)),)),)


@tells
def _broadcast_to(ctx: Context) -> Types:
    return ((dtype(ctx), broadcast(dims(ctx), needed(ints(ctx, "shape")))),)


@tells
def _diagonal(ctx: Context) -> Types:
    shape = dims(ctx)
    return ((dtype(ctx), (*shape, shape[-1])),)


@tells
def _segments(ctx: Context) -> Types:
    rank = len(dims(ctx, 1))
    return ((dtype(ctx), (integer(ctx, "num_segments"), *dims(ctx)[rank:])),)


@tells
def _looked_up(ctx: Context) -> Types:
    return ((dtype(ctx, 2), (*dims(ctx), *dims(ctx, 2)[1:])), (DTYPES["uint8"], dims(ctx)))


ROWS: Final = (
    copies("tfl_gather", _gather, moved=picked()),
    copies("tfl_scatter_nd", _scatter),
    copies("sparse_to_dense", _to_dense),
    # Stored sparse, used dense: at load time it would multiply a weight's bytes.
    OpSpec(
        "densify", same(), workspace=zero, macs=zero, other_ops=zero, engine="copy", widens=True
    ),
    copies("fill", _fill),
    copies("zeros_like", same()),
    OpSpec(
        "rank", _rank, workspace=zero, macs=zero, other_ops=zero, engine="none", shape_only=True
    ),
    copies("broadcast_args", _broadcast_args),
    copies("broadcast_to", _broadcast_to),
    copies("reverse_v2", same()),
    copies("matrix_diag", _diagonal),
    copies("matrix_set_diag", same()),
    scatter("dynamic_update_slice", moved=written_into),
    *(
        OpSpec(kind, _segments, workspace=zero, macs=zero, other_ops=per_input())
        for kind in (
            "unsorted_segment_max",
            "unsorted_segment_min",
            "unsorted_segment_prod",
            "unsorted_segment_sum",
        )
    ),
    # How many segments, elements or matches there are is known to the run only.
    OpSpec("segment_sum", None, workspace=zero, macs=zero, other_ops=per_input()),
    OpSpec("tfl_where", None, workspace=unknown, macs=zero, other_ops=per_input()),
    OpSpec("skip_gram", None, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("lsh_projection", None, workspace=unknown, macs=unknown, other_ops=unknown),
    copies("concat_embeddings", None),
    OpSpec("embedding_lookup_sparse", None, workspace=unknown, macs=unknown, other_ops=unknown),
    copies("hashtable_lookup", _looked_up),
)
