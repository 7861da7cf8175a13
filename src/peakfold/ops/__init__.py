"""The one registry of op semantics: a row per op kind answers every pass.

Rows live in topic modules as literal tuples; this module only gathers them. An op kind without
a row is answered by a conservative stand-in, so that nothing unknown is ever taken as free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from peakfold.ir.graph import Op, Tensor
from peakfold.ops import grad
from peakfold.ops.aten import linear as aten_linear
from peakfold.ops.aten import math as aten_math
from peakfold.ops.aten import storage as aten_storage
from peakfold.ops.complexes import in_reals
from peakfold.ops.contrib import attention as contrib_attention
from peakfold.ops.contrib import layers as contrib
from peakfold.ops.contrib import layouts as contrib_layouts
from peakfold.ops.contrib import others as contrib_others
from peakfold.ops.contrib import states as contrib_states
from peakfold.ops.inference import NOT_WEIGHTS, VALUE_INPUTS, held_weights
from peakfold.ops.rules import unknown
from peakfold.ops.spec import Context, CountRule, Engine, OpSpec, OutputType, ShapeRule, ViewRule
from peakfold.ops.standard import (
    attention,
    control,
    convolution,
    elementwise,
    generating,
    indexing,
    matmul,
    ml,
    normalization,
    pooling,
    quantized,
    recurrent,
    reduce,
    reshaping,
    slicing,
)
from peakfold.ops.tflite import control as tflite_control
from peakfold.ops.tflite import convolution as tflite_convolution
from peakfold.ops.tflite import custom as tflite_custom
from peakfold.ops.tflite import dense as tflite_dense
from peakfold.ops.tflite import elementwise as tflite_elementwise
from peakfold.ops.tflite import picking as tflite_picking
from peakfold.ops.tflite import slices as tflite_slices
from peakfold.ops.tflite import space as tflite_space
from peakfold.ops.tflite import stablehlo as tflite_stablehlo
from peakfold.ops.tflite.overlap import OVERLAPS

__all__ = [
    "CONTRIB_KINDS",
    "KINDS",
    "NOT_WEIGHTS",
    "REGISTRY",
    "VALUE_INPUTS",
    "Context",
    "CountRule",
    "Engine",
    "OpSpec",
    "OutputType",
    "ShapeRule",
    "ViewRule",
    "context",
    "held_weights",
    "lookup",
    "register",
]


def _gathered(*tables: Iterable[OpSpec]) -> Mapping[str, OpSpec]:
    rows = [
        replace(
            in_reals(row),
            grad=grad.GRADS.get(row.kind, row.grad),
            overlap=OVERLAPS.get(row.kind, row.overlap),
        )
        for table in tables
        for row in table
    ]
    found = {row.kind: row for row in rows}
    if len(found) != len(rows):
        raise ValueError("two rows of the registry have one kind")
    return MappingProxyType(found)


REGISTRY: Final[Mapping[str, OpSpec]] = _gathered(
    aten_linear.ROWS,
    aten_math.ROWS,
    aten_storage.ROWS,
    attention.ROWS,
    contrib.ROWS,
    contrib_attention.ROWS,
    contrib_layouts.ROWS,
    contrib_others.ROWS,
    contrib_states.ROWS,
    control.ROWS,
    convolution.ROWS,
    elementwise.ROWS,
    generating.ROWS,
    grad.ROWS,
    indexing.ROWS,
    matmul.ROWS,
    ml.ROWS,
    normalization.ROWS,
    pooling.ROWS,
    quantized.ROWS,
    recurrent.ROWS,
    reduce.ROWS,
    reshaping.ROWS,
    slicing.ROWS,
    tflite_control.ROWS,
    tflite_convolution.ROWS,
    tflite_custom.ROWS,
    tflite_dense.ROWS,
    tflite_elementwise.ROWS,
    tflite_picking.ROWS,
    tflite_slices.ROWS,
    tflite_space.ROWS,
    tflite_stablehlo.ROWS,
)

KINDS: Final[tuple[str, ...]] = tuple(sorted(REGISTRY))
"""Every op kind that has a row, sorted."""

CONTRIB_KINDS: Final[frozenset[str]] = frozenset(
    row.kind
    for table in (contrib, contrib_attention, contrib_layouts, contrib_others, contrib_states)
    for row in table.ROWS
)
"""Kinds that ONNX Runtime's own operator sets define."""


def register(
    table: Mapping[str, OpSpec],
    kind: str,
    spec: OpSpec | None = None,
    **answers: Any,  # noqa: ANN401 - fields
) -> Mapping[str, OpSpec]:
    """A table with one more row, or one row replaced; the table given stays as it is.

    Args:
        table: `REGISTRY`, or what this function returned.
        kind: the op kind; operators of an unknown domain are called ``domain::name``.
        spec: the whole row; or else give its fields.
        answers: fields of `OpSpec`.

    Example:
        >>> table = register(REGISTRY, "com.example::conv", macs=lambda ctx: 12)
        >>> table["com.example::conv"].macs(None), "com.example::conv" in REGISTRY
        (12, False)
    """
    row = OpSpec(kind, **answers) if spec is None else replace(spec, kind=kind, **answers)
    return MappingProxyType({**table, kind: row})


def lookup(kind: str, table: Mapping[str, OpSpec] = REGISTRY) -> OpSpec:
    """The row of an op kind.

    A kind without a row gets a stand-in that claims nothing: no alias, no in place, cost and
    scratch unknown, not to be folded, `known` false.

    Example:
        >>> lookup("add").inplace, lookup("conv").engine
        ((0, 1), 'matrix')
        >>> stranger = lookup("com.example::conv")
        >>> stranger.known, stranger.pure, stranger.inplace, stranger.views
        (False, False, (), None)
    """
    return table.get(kind) or OpSpec(
        kind, workspace=unknown, macs=unknown, other_ops=unknown, pure=False, known=False
    )


def context(op: Op, tensors: Mapping[str, Tensor]) -> Context:
    """The op with its tensors resolved, as row functions take it.

    Args:
        op: the op; `""` in its operands or results stands for one that is absent.
        tensors: tensors by name (`Graph.by_name`).

    Raises:
        KeyError: a name that `tensors` does not hold (the checker rules that out).

    Example:
        >>> from peakfold.ir.types import DTYPES
        >>> x = Tensor("x", DTYPES["float32"], (2, 3))
        >>> y = Tensor("y", DTYPES["float32"], None)
        >>> ctx = context(Op("n", "transpose", ("x",), ("y",)), {"x": x, "y": y})
        >>> [(str(t), shape) for t, shape in lookup("transpose").shape(ctx)]
        [('float32', (3, 2))]
    """
    return Context(
        op,
        tuple(tensors[name] if name else None for name in op.inputs),
        tuple(tensors[name] if name else None for name in op.outputs),
    )
