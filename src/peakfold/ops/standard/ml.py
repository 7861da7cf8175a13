"""The ai.onnx.ml operators (classical machine learning), and the training preview.

Their input is ``[N, C]``; the number of classes or targets comes from their attributes.
"""

from __future__ import annotations

from typing import Final

from peakfold.ir.types import DTYPES, DType
from peakfold.ops.inference import CannotTell, dims, dtype, integer, ints, needed, operand, sizes
from peakfold.ops.rules import (
    FLOAT,
    INT64,
    Types,
    count,
    per_input,
    per_output,
    product,
    same,
    same_as,
    tells,
    unknown,
    zero,
)
from peakfold.ops.spec import Context, OpSpec

_STRING: Final = DTYPES["string"]


def _length(ctx: Context, *names: str) -> int:
    """Length of the first of these list attributes that is given."""
    for name in names:
        value = ctx.op.attrs.get(name)
        if isinstance(value, tuple) and value:
            return len(value)
    raise CannotTell


def _rows(ctx: Context) -> int | str:
    shape = dims(ctx)
    if len(shape) != 2:
        raise CannotTell
    return shape[0]


def _labels(ctx: Context) -> tuple[DType, int]:
    """Element type and number of a classifier's labels."""
    if ctx.op.attrs.get("classlabels_strings"):
        return _STRING, _length(ctx, "classlabels_strings")
    return INT64, _length(ctx, "classlabels_ints", "classlabels_int64s")


@tells
def _classifier(ctx: Context) -> Types:
    label, classes = _labels(ctx)
    rows = _rows(ctx)
    return ((label, (rows,)), (FLOAT, (rows, classes)))


@tells
def _svm_classifier(ctx: Context) -> Types:
    # The scores have one column per class, or per pair of classes: the mode decides.
    return ((_labels(ctx)[0], (_rows(ctx),)), None)


@count
def _linear_macs(ctx: Context) -> int:
    return sizes(ctx)[0] * _length(ctx, "coefficients")


@count
def _svm_macs(ctx: Context) -> int:
    # The kernel against every support vector, then their weighted sum; without support
    # vectors the coefficients are a linear model.
    vectors = ctx.op.attrs.get("support_vectors")
    held = len(vectors) if isinstance(vectors, tuple) else 0
    return sizes(ctx)[0] * (held + _length(ctx, "coefficients"))


@tells
def _linear_regressor(ctx: Context) -> Types:
    return ((FLOAT, (_rows(ctx), integer(ctx, "targets", 1))),)


@tells
def _svm_regressor(ctx: Context) -> Types:
    return ((FLOAT, (_rows(ctx), 1)),)


@tells
def _trees(ctx: Context) -> Types:
    element = dtype(ctx) if ctx.op.kind == "tree_ensemble" else FLOAT
    return ((element, (_rows(ctx), integer(ctx, "n_targets", 1))),)


@tells
def _feature_columns(ctx: Context) -> Types:
    data, picked = dims(ctx, 0), product(dims(ctx, 1))
    return ((dtype(ctx), (*((1,) if len(data) == 1 else data[:-1]), picked)),)


@tells
def _label_encoder(ctx: Context) -> Types:
    by_attribute = (("values_strings", _STRING), ("values_int64s", INT64), ("values_floats", FLOAT))
    for name, element in by_attribute:
        if ctx.op.attrs.get(name):
            return ((element, dims(ctx)),)
    raise CannotTell  # `values_tensor`: its type is not among the attributes


@tells
def _one_hot_encoder(ctx: Context) -> Types:
    return ((FLOAT, (*dims(ctx), _length(ctx, "cats_int64s", "cats_strings"))),)


@tells
def _feature_vectorizer(ctx: Context) -> Types:
    return ((FLOAT, (_rows(ctx), sum(needed(ints(ctx, "inputdimensions"))))),)


@tells
def _category_mapper(ctx: Context) -> Types:
    return ((INT64 if dtype(ctx) == _STRING else _STRING, dims(ctx)),)


@tells
def _gradient(ctx: Context) -> Types:
    # One gradient per name in `xs`, which are the first operands.
    return tuple((operand(ctx, at).dtype, dims(ctx, at)) for at in range(len(ctx.op.outputs)))


@tells
def _optimizer(ctx: Context) -> Types:
    # Operands are R, T, then the groups X, G and the state; outputs are the new X and state.
    groups = {"adagrad": 3, "momentum": 3, "adam": 4}[ctx.op.kind]
    each, left = divmod(len(ctx.inputs) - 2, groups)
    if left:
        raise CannotTell
    kept = [at for at in range(groups) if at != 1]
    return tuple(
        (dtype(ctx, 2 + at * each + n), dims(ctx, 2 + at * each + n))
        for at in kept
        for n in range(each)
    )


ROWS: Final = (
    OpSpec("array_feature_extractor", _feature_columns, workspace=zero, macs=zero,
           other_ops=zero, engine="copy"),
    OpSpec("binarizer", same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output()),
    OpSpec("imputer", same(), inplace=(0,), workspace=zero, macs=zero, other_ops=per_output()),
    OpSpec("scaler", same_as(0, FLOAT), inplace=(0,), workspace=zero, macs=zero,
           other_ops=per_output(2)),
    # Norm of each row, then a division.
    OpSpec("normalizer", same_as(0, FLOAT), workspace=unknown, macs=zero, other_ops=per_input(3)),
    OpSpec("label_encoder", _label_encoder, inplace=(0,), workspace=unknown, macs=zero,
           other_ops=unknown),
    OpSpec("category_mapper", _category_mapper, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("one_hot_encoder", _one_hot_encoder, workspace=zero, macs=zero, other_ops=unknown),
    OpSpec("feature_vectorizer", _feature_vectorizer, workspace=zero, macs=zero, other_ops=zero,
           engine="copy"),
    OpSpec("linear_classifier", _classifier, workspace=unknown, macs=_linear_macs,
           other_ops=unknown),
    OpSpec("linear_regressor", _linear_regressor, workspace=unknown, macs=_linear_macs,
           other_ops=per_output()),
    OpSpec("svm_classifier", _svm_classifier, workspace=unknown, macs=_svm_macs,
           other_ops=unknown),
    OpSpec("svm_regressor", _svm_regressor, workspace=unknown, macs=_svm_macs, other_ops=unknown),
    # How deep a row descends depends on its data.
    OpSpec("tree_ensemble", _trees, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("tree_ensemble_regressor", _trees, workspace=unknown, macs=zero, other_ops=unknown),
    OpSpec("tree_ensemble_classifier", _classifier, workspace=unknown, macs=zero,
           other_ops=unknown),
    # Maps have no stated size.
    *(
        OpSpec(kind, None, workspace=unknown, macs=zero, other_ops=unknown)
        for kind in ("cast_map", "dict_vectorizer", "zip_map")
    ),
    OpSpec("gradient", _gradient, workspace=unknown, macs=unknown, other_ops=unknown),
    # Not in place: the new state may need the old parameter after the new one is written.
    *(
        OpSpec(kind, _optimizer, workspace=zero, macs=zero, other_ops=unknown)
        for kind in ("adagrad", "adam", "momentum")
    ),
)  # fmt: skip
