"""What CPU kernels take for a while before they start: operands of another type, converted.

A kernel of one type converts operands of others first, a sum of bools is one of integers, and a
mask as index becomes positions. Scratch by rule, from types and sizes alone, so that it costs
nothing to tell; what else a kernel takes is measured (`runtimes/torch/scratch.py`).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from peakfold.frontends.torch_known import plainly
from peakfold.frontends.torch_modes import tensors_in

_aten = torch.ops.aten
_SUMS = frozenset({_aten.sum.default, _aten.sum.dim_IntList})
_AS_THEY_ARE = frozenset(
    {_aten.where.self, _aten.masked_fill.Scalar, _aten.masked_fill.Tensor, _aten.copy_.default}
)
INDEXED = frozenset({
    _aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default,
    _aten._index_put_impl_.default,
})  # fmt: skip
"""Operators that take positions or masks."""
_REDUCING = {
    _aten.mse_loss.default: 1, _aten.smooth_l1_loss.default: 1, _aten.soft_margin_loss.default: 2,
}  # fmt: skip
"""Losses that make a tensor of their operands' size before they reduce it, and how many."""
_CTC_GRADIENTS = frozenset({_aten._ctc_loss_backward.default, _aten._ctc_loss_backward.Tensor})
_MASKS = (torch.bool, torch.uint8)


def converted(func: Any, args: Any, kwargs: Any) -> int:
    """Bytes that a call converts before its CPU kernel starts.

    Args:
        func: an operator.
        args: its arguments; tensors may be fake.
        kwargs: its keyword arguments.

    Example:
        >>> mask = torch.ones(4, 8, dtype=torch.bool)
        >>> converted(torch.ops.aten.sum.default, (mask,), {})
        256
        >>> converted(torch.ops.aten.mul.Tensor, (torch.ones(4, 8), mask), {})
        128
    """
    if _as_it_is(func):
        return 0
    if func in _SUMS:
        x = args[0]
        counted = not x.is_floating_point() and not x.is_complex() and x.dtype != torch.int64
        return int(x.numel()) * 8 if counted and not kwargs.get("dtype") else 0
    if func in _REDUCING:
        x, reduced = args[0], len(args) < 3 or bool(args[2])
        return _REDUCING[func] * int(x.numel()) * int(x.element_size()) if reduced else 0
    if func in _CTC_GRADIENTS:  # a table of the other direction, as large as the saved one
        return int(args[6].numel()) * int(args[6].element_size())
    if func is _aten.masked_select.default:  # the mask is summed before there is a result
        x, mask = args[0], args[1]
        counted = int(mask.numel()) * 8 - chosen(mask) * int(x.element_size())
        return max(0, counted) if mask.dtype in _MASKS else 0
    if func in INDEXED:
        return positions(args[1])
    return _mixed(args) if _converts(func) else 0


@functools.cache
def _as_it_is(func: Any) -> bool:
    """Whether a call converts nothing, whatever its operands are."""
    rules = (_SUMS, _REDUCING, _CTC_GRADIENTS, INDEXED, (_aten.masked_select.default,))
    return not any(func in rule for rule in rules) and not _converts(func)


@functools.cache
def _converts(func: Any) -> bool:
    """Whether the kernel works element by element in one type, into a result of its own."""
    own = func not in _AS_THEY_ARE and not func._schema.is_mutable
    return own and torch.Tag.pointwise in func.tags


def _mixed(args: Any) -> int:
    """Operands whose type is not the common one; numbers (0-d tensors) are read as they are."""
    given = [t for t in tensors_in(args) if t.layout is torch.strided and t.dim()]
    if len(given) < 2 or all(t.dtype == given[0].dtype for t in given):
        return 0
    common = given[0].dtype
    for tensor in given[1:]:
        common = torch.promote_types(common, tensor.dtype)
    return sum(int(t.numel()) * common.itemsize for t in given if t.dtype != common)


def positions(indices: Any) -> int:
    """Bytes of the positions that masks among the indices of a call become."""
    return sum(_positions(index) for index in indices if index is not None)


def _positions(index: Any) -> int:
    """Where a mask is true, a row of int64 for each of its dimensions; none where unknown."""
    return chosen(index) * int(index.dim()) * 8


def chosen(mask: Any) -> int:
    """How many elements of a fake mask are true; 0 where that is not known, or it is no mask."""
    values = getattr(getattr(mask, "fake_mode", None), "values", None)
    if mask.dtype not in _MASKS or values is None:
        return 0
    real = values.of(mask)
    if real is None:
        return 0
    with plainly():
        return int(real.count_nonzero())
