"""Control flow, sequences, optionals and strings.

The bodies of `if`, `loop` and `scan` are analysed where regions are; the rows here only pass on
what the bodies' own types say. Sequences, maps, optionals and strings have no stated size, so
most rows give no type at all: such values are counted and shown as unknown.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.graph import Tensor
from peakfold.ir.types import DTYPES, Dim, Shape
from peakfold.ops.inference import CannotTell, dims, integer, ints
from peakfold.ops.rules import BOOL, INT64, Types, broadcast, tells, unknown, zero
from peakfold.ops.spec import Context, OpSpec, OutputType, ShapeRule

_STRING: Final = DTYPES["string"]


def _type(tensor: Tensor) -> OutputType | None:
    opaque = tensor.dtype.name == "opaque"
    return None if tensor.shape is None or opaque else (tensor.dtype, tensor.shape)


def _results(ctx: Context, region: int) -> list[OutputType | None]:
    body = ctx.op.regions[region].graph
    return [_type(body[name]) for name in body.outputs]


@tells
def _if(ctx: Context) -> Types:
    first, *others = [_results(ctx, at) for at in range(len(ctx.op.regions))]
    return tuple(
        t if all(branch[at] == t for branch in others) else None for at, t in enumerate(first)
    )


def _carried(ctx: Context, given_at: int, made: OutputType | None) -> OutputType | None:
    """A carried value keeps its type only if the body gives back what it was given."""
    tensor = ctx.inputs[given_at] if given_at < len(ctx.inputs) else None
    return made if tensor is not None and _type(tensor) == made else None


@tells
def _loop(ctx: Context) -> Types:
    made = _results(ctx, 0)[1:]
    carried = len(ctx.inputs) - 2
    out = [_carried(ctx, at + 2, t) for at, t in enumerate(made[:carried])]
    # Without a known trip count and with a condition, the length is known to the run only.
    body = ctx.op.regions[0].graph
    unconditional = len(ctx.inputs) < 2 or ctx.inputs[1] is None
    untouched = body.outputs[0] == body.inputs[1]
    trips = ints(ctx, "m") if unconditional and untouched else None
    for element in made[carried:]:
        if trips is None or element is None:
            out.append(None)
        else:
            out.append((element[0], (max(trips[0], 0), *element[1])))
    return tuple(out)


@tells
def _scan(ctx: Context) -> Types:
    made, scans = _results(ctx, 0), integer(ctx, "num_scan_inputs")
    carried = len(ctx.inputs) - scans
    out = [_carried(ctx, at, t) for at, t in enumerate(made[:carried])]
    axes_in, axes_out = ints(ctx, "scan_input_axes"), ints(ctx, "scan_output_axes")
    length: Dim = dims(ctx, carried)[axes_in[0] if axes_in else 0]
    for at, element in enumerate(made[carried:]):
        axis = axes_out[at] if axes_out else 0
        out.append(None if element is None else (element[0], _put(element[1], axis, length)))
    return tuple(out)


def _put(shape: Shape, axis: int, length: Dim) -> Shape:
    axis = axis % (len(shape) + 1)
    return (*shape[:axis], length, *shape[axis:])


@tells
def _length(_ctx: Context) -> Types:
    return ((INT64, ()),)


@tells
def _has_element(_ctx: Context) -> Types:
    return ((BOOL, ()),)


@tells
def _string_concat(ctx: Context) -> Types:
    return ((_STRING, broadcast(dims(ctx, 0), dims(ctx, 1))),)


@tells
def _string_split(ctx: Context) -> Types:
    return (None, (INT64, dims(ctx)))


@tells
def _full_match(ctx: Context) -> Types:
    return ((BOOL, dims(ctx)),)


@tells
def _tf_idf(ctx: Context) -> Types:
    indexes, shape = ints(ctx, "ngram_indexes"), dims(ctx)
    if not indexes or len(shape) not in (1, 2):
        raise CannotTell
    return ((DTYPES["float32"], (*shape[:-1], max(indexes) + 1)),)


def _region(kind: str, shape: ShapeRule | None) -> OpSpec:
    # Not pure: a body may draw random numbers or touch state. Its cost is in the body's ops.
    return OpSpec(
        kind, shape, workspace=zero, macs=unknown, other_ops=unknown, engine="none", pure=False
    )


def _opaque(kind: str) -> OpSpec:
    return OpSpec(kind, None, workspace=unknown, macs=zero, other_ops=zero, engine="copy")


ROWS: Final = (
    _region("if", _if),
    _region("loop", _loop),
    _region("scan", _scan),
    _region("sequence_map", None),
    *(
        _opaque(kind)
        for kind in (
            "concat_from_sequence", "optional", "optional_get_element", "sequence_at",
            "sequence_construct", "sequence_empty", "sequence_erase", "sequence_insert",
            "split_to_sequence",
        )
    ),
    # What these do depends on the data.
    *(
        OpSpec(kind, None, workspace=unknown, macs=zero, other_ops=unknown, engine="copy")
        for kind in ("string_normalizer", "image_decoder")
    ),
    OpSpec("sequence_length", _length, workspace=zero, macs=zero, other_ops=zero, engine="none"),
    OpSpec("optional_has_element", _has_element, workspace=zero, macs=zero, other_ops=zero,
           engine="none"),
    OpSpec("string_concat", _string_concat, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("string_split", _string_split, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("regex_full_match", _full_match, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("tf_idf_vectorizer", _tf_idf, workspace=unknown, macs=zero, other_ops=unknown),
)  # fmt: skip
