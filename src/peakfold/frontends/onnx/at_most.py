"""Results whose size the run decides: the most that it can be.

Detection models count what they find. A bound for each such operator gives them a plan that holds
for every run; what follows from one is a bound, too, as long as no value is made of it: whether a
branch runs, or what a subtraction of two counts gives, is not known (`Scope.bounded`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from peakfold.frontends.onnx.scope import Scope
from peakfold.ir import DTYPES, DType, Op, Shape, element_count

_INT64: Final = DTYPES["int64"]
_Types = Sequence[tuple[DType, Shape] | None]
NOT_MONOTONE: Final = frozenset({"split", "split_to_sequence"})
"""Kinds one of whose results may be larger where an operand is smaller."""


def at_most(scope: Scope, op: Op) -> dict[str, tuple[DType, Shape]]:
    """Types with the largest shapes that results of an op can have; empty where none is known.

    Example:
        ``NonZero`` of ``float32[5, 6]`` makes ``int64[2, 30]`` at most.
    """
    rule = _RULES.get(op.kind)
    if rule is None or (op.kind in _FOLLOWING and not scope.bounded.intersection(op.operands)):
        return {}
    dtype, shape = scope.type_of(op.inputs[0]) if op.inputs and op.inputs[0] else (_INT64, None)
    if shape is None or dtype.bits is None:
        return {}
    sizes = tuple(dim for dim in shape if isinstance(dim, int))
    if len(sizes) < len(shape):
        return {}
    types = rule(scope, op, dtype, sizes)
    return {
        name: kind
        for name, kind in zip(op.outputs, types, strict=False)
        if name and kind is not None
    }


def _axis(op: Op, rank: int) -> int | None:
    """The axis that is given, from the front; `None` where it is none of these."""
    axis = op.attrs.get("axis")
    return axis % rank if isinstance(axis, int) and -rank <= axis < rank else None


def _non_zero(_scope: Scope, _op: Op, _dtype: DType, sizes: tuple[int, ...]) -> _Types:
    return [(_INT64, (len(sizes), prod(sizes)))]


def _compress(scope: Scope, op: Op, dtype: DType, sizes: tuple[int, ...]) -> _Types:
    """As many as the condition is long, and no more than there are."""
    axis = _axis(op, len(sizes))
    if axis is None and "axis" in op.attrs:
        return []
    asked = scope.type_of(op.inputs[1])[1] if len(op.inputs) > 1 and op.inputs[1] else None
    longest = None if asked is None else element_count(asked)
    there = prod(sizes) if axis is None else sizes[axis]
    kept = there if longest is None else min(there, longest)
    return [(dtype, (kept,) if axis is None else (*sizes[:axis], kept, *sizes[axis + 1 :]))]


def _unique(_scope: Scope, op: Op, dtype: DType, sizes: tuple[int, ...]) -> _Types:
    axis = _axis(op, len(sizes))
    if axis is None and "axis" in op.attrs:
        return []
    kept = prod(sizes) if axis is None else sizes[axis]
    found = (kept,) if axis is None else sizes
    return [(dtype, found), *[(_INT64, (kept,))] * 3]


def _suppressed(scope: Scope, op: Op, _dtype: DType, sizes: tuple[int, ...]) -> _Types:
    """For each batch and class as many boxes as are asked for."""
    scores = scope.type_of(op.inputs[1])[1] if len(op.inputs) > 1 and op.inputs[1] else None
    count = None if scores is None else element_count(scores[:2])
    if len(sizes) != 3 or count is None:
        return []
    kept = 0
    if len(op.inputs) > 2 and op.inputs[2]:
        value = scope.values.get(op.inputs[2])
        asked = sizes[1] if value is None or value.size != 1 else max(int(value.item()), 0)
        kept = min(sizes[1], asked)
    return [(_INT64, (count * kept, 3))]


def _of_operand(_scope: Scope, op: Op, dtype: DType, sizes: tuple[int, ...]) -> _Types:
    """A part of the operand, which is cut by values that a count decides."""
    return [(dtype, sizes), (_INT64, sizes)][: len(op.outputs)]


_RULES: Final[Mapping[str, Callable[[Scope, Op, DType, tuple[int, ...]], _Types]]] = {
    "non_zero": _non_zero,
    "compress": _compress,
    "unique": _unique,
    "ms_unique": _unique,
    "non_max_suppression": _suppressed,
    "slice": _of_operand,
    "top_k": _of_operand,
}
_FOLLOWING: Final = frozenset({"slice", "top_k"})
"""Kinds that are only bounded behind another bound; alone, the user is asked."""
