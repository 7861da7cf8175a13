"""Ops that make tensors out of little: constants, ranges, random numbers, windows, spectra."""

from __future__ import annotations

from math import ceil, log2, prod
from typing import Final

from peakfold.ir.types import DTYPES, DType
from peakfold.ops.inference import (
    CannotTell,
    dims,
    dtype,
    given,
    integer,
    ints,
    named_dtype,
    needed,
    numbers,
    sizes,
)
from peakfold.ops.rules import (
    FLOAT,
    INT64,
    Types,
    axis_of,
    count,
    number,
    per_output,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec, ShapeRule

_INT32: Final = DTYPES["int32"]


def _typed(ctx: Context, name: str, default: DType) -> DType:
    return named_dtype(ctx, name) or default


@tells
def _constant(ctx: Context) -> Types:
    attrs = ctx.op.attrs
    for name, element in (
        ("value_float", FLOAT),
        ("value_int", INT64),
        ("value_string", DTYPES["string"]),
    ):
        if name in attrs:
            return ((element, ()),)
        listed = attrs.get(f"{name}s")
        if isinstance(listed, tuple):
            return ((element, (len(listed),)),)
    element_type = named_dtype(ctx, "value_dtype")
    if element_type is None:
        raise CannotTell
    return ((element_type, needed(ints(ctx, "value_shape"))),)


@tells
def _constant_of_shape(ctx: Context) -> Types:
    element = named_dtype(ctx, "value_dtype")
    if element is None:
        raise CannotTell
    return ((element, needed(ints(ctx, "shape"))),)


@tells
def _range(ctx: Context) -> Types:
    start, limit, delta = (numbers(ctx, name) for name in ("start", "limit", "delta"))
    if not (start and limit and delta):
        raise CannotTell
    span, step = limit[0] - start[0], delta[0]
    # Integers divide exactly, however large; others as the specification writes it.
    exact = isinstance(span, int) and isinstance(step, int)
    steps = -(-span // step) if exact else ceil(span / step)
    return ((dtype(ctx), (max(int(steps), 0),)),)


@tells
def _eye_like(ctx: Context) -> Types:
    shape = dims(ctx)
    if len(shape) != 2:
        raise CannotTell
    return ((_typed(ctx, "dtype", dtype(ctx)), shape),)


@tells
def _random(ctx: Context) -> Types:
    return ((_typed(ctx, "dtype", FLOAT), needed(ints(ctx, "shape"))),)


@tells
def _random_like(ctx: Context) -> Types:
    return ((_typed(ctx, "dtype", dtype(ctx)), dims(ctx)),)


@tells
def _multinomial(ctx: Context) -> Types:
    batch, _ = dims(ctx)
    return ((_typed(ctx, "dtype", _INT32), (batch, integer(ctx, "sample_size", 1))),)


@tells
def _window(ctx: Context) -> Types:
    return ((_typed(ctx, "output_datatype", FLOAT), (integer(ctx, "size"),)),)


@tells
def _mel(ctx: Context) -> Types:
    bins = integer(ctx, "dft_length") // 2 + 1
    return ((_typed(ctx, "output_datatype", FLOAT), (bins, integer(ctx, "num_mel_bins"))),)


def _dft_axis(ctx: Context) -> int:
    rank = len(dims(ctx))
    # Version 17 counted from the front (1), version 20 from the back (-2): equal at rank 3.
    if "axis" not in ctx.op.attrs and rank != 3:
        raise CannotTell
    return axis_of(integer(ctx, "axis", 1), rank)


@tells
def _dft(ctx: Context) -> Types:
    shape, axis = list(dims(ctx)), _dft_axis(ctx)
    one_sided, inverse = integer(ctx, "onesided", 0), integer(ctx, "inverse", 0)
    length = ints(ctx, "dft_length")
    if one_sided and inverse:
        shape[axis] = 2 * (number(shape[axis]) - 1) if length is None else length[0]
        shape[-1] = 1
    else:
        size = shape[axis] if length is None else length[0]
        shape[axis] = number(size) // 2 + 1 if one_sided else size
        shape[-1] = 2
    return ((dtype(ctx), tuple(shape)),)


def transform_operations(length: int, *, real: bool = False) -> int:
    """Real operations of a transform of so many points: 5 n log2 n, as FFT benchmarks count.

    A butterfly is a complex product (6) and two complex additions (2 each) for two points. A
    transform from or to real numbers is half of it.

    Example:
        >>> transform_operations(8), transform_operations(8, real=True), transform_operations(1)
        (120, 60, 0)
    """
    whole = ceil(5 * length * log2(length)) if length > 1 else 0
    return whole // 2 if real else whole


@count
def _dft_other(ctx: Context) -> int:
    shape, axis = sizes(ctx), _dft_axis(ctx)
    asked = ints(ctx, "dft_length")
    backwards = bool(integer(ctx, "onesided", 0) and integer(ctx, "inverse", 0))
    own = 2 * (shape[axis] - 1) if backwards else shape[axis]
    lines = prod(shape[:-1]) // shape[axis] if shape[axis] else 0
    real = backwards or shape[-1] == 1
    return lines * transform_operations(own if asked is None else asked[0], real=real)


def _frames(ctx: Context) -> tuple[int, int]:
    """Number of frames and their length."""
    length = ints(ctx, "frame_length")
    size = length[0] if length is not None else sizes(ctx, 2)[0] if given(ctx, 2) else None
    if size is None:
        raise CannotTell
    return 1 + (number(dims(ctx)[1]) - size) // integer(ctx, "frame_step"), size


@tells
def _stft(ctx: Context) -> Types:
    frames, length = _frames(ctx)
    bins = length // 2 + 1 if integer(ctx, "onesided", 1) else length
    return ((dtype(ctx), (dims(ctx)[0], frames, bins, 2)),)


@count
def _stft_other(ctx: Context) -> int:
    frames, length = _frames(ctx)
    signal = sizes(ctx)
    real = len(signal) == 2 or signal[-1] == 1
    window = length * (2 - real) if given(ctx, 2) else 0
    return signal[0] * frames * (transform_operations(length, real=real) + window)


def _filled(kind: str, shape: ShapeRule, *, operations: int = 0) -> OpSpec:
    return OpSpec(
        kind, shape, workspace=zero, macs=zero, other_ops=per_output(operations), engine="copy"
    )


ROWS: Final = (
    OpSpec("constant", _constant, workspace=zero, macs=zero, other_ops=zero, engine="none"),
    _filled("constant_of_shape", _constant_of_shape),
    _filled("range", _range, operations=1),
    OpSpec("eye_like", _eye_like, workspace=zero, macs=zero, other_ops=zero, engine="copy"),
    # Random numbers are not pure. How many operations one costs is the generator's affair.
    *(
        OpSpec(kind, shape, workspace=zero, macs=zero, other_ops=unknown, pure=False)
        for kind, shape in (
            ("random_normal", _random),
            ("random_uniform", _random),
            ("random_normal_like", _random_like),
            ("random_uniform_like", _random_like),
            ("bernoulli", _random_like),
        )
    ),
    OpSpec(
        "multinomial", _multinomial, workspace=unknown, macs=zero, other_ops=unknown, pure=False
    ),
    *(
        _filled(kind, _window, operations=operations)
        for kind, operations in (("blackman_window", 6), ("hamming_window", 3), ("hann_window", 3))
    ),
    OpSpec("mel_weight_matrix", _mel, workspace=unknown, macs=zero, other_ops=unknown),
    # A fast transform has no multiply-accumulates of its own: all is in `other_ops`.
    OpSpec("dft", _dft, workspace=unknown, macs=zero, other_ops=_dft_other),
    OpSpec("stft", _stft, workspace=unknown, macs=zero, other_ops=_stft_other),
)
