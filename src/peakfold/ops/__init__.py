"""The one registry of op semantics: a row per op kind answers every pass.

Rows live in topic modules as literal tuples; this module only gathers them. An op kind without
a row is answered by a conservative stand-in, so that nothing unknown is ever taken as free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from peakfold.ir.graph import Op, Tensor
from peakfold.ops import (
    attention,
    contrib,
    contrib_attention,
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
from peakfold.ops.rules import unknown
from peakfold.ops.spec import Context, CountRule, Engine, OpSpec, OutputType, ShapeRule, ViewRule
from peakfold.ops.values import VALUE_INPUTS

__all__ = [
    "KINDS",
    "VALUE_INPUTS",
    "Context",
    "CountRule",
    "Engine",
    "OpSpec",
    "OutputType",
    "ShapeRule",
    "ViewRule",
    "context",
    "lookup",
]


def _gathered(*tables: Iterable[OpSpec]) -> Mapping[str, OpSpec]:
    rows = [row for table in tables for row in table]
    found = {row.kind: row for row in rows}
    if len(found) != len(rows):
        raise ValueError("two rows of the registry have one kind")
    return MappingProxyType(found)


_REGISTRY: Final[Mapping[str, OpSpec]] = _gathered(
    attention.ROWS,
    contrib.ROWS,
    contrib_attention.ROWS,
    control.ROWS,
    convolution.ROWS,
    elementwise.ROWS,
    generating.ROWS,
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
)

KINDS: Final[tuple[str, ...]] = tuple(sorted(_REGISTRY))
"""Every op kind that has a row, sorted."""


def lookup(kind: str) -> OpSpec:
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
    return _REGISTRY.get(kind) or OpSpec(
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
