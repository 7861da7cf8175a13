"""What CPU kernels take for a while before they start: operands of another type, converted.

A kernel of one type converts operands of others first, a sum of bools is one of integers, and a
mask as index becomes positions. Scratch by rule, from types and sizes alone, so that it costs
nothing to tell; what else a kernel takes is measured (`runtimes/torch/scratch.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from peakfold.frontends.torch.dispatch_modes import tensors_in
from peakfold.frontends.torch.unwatched.known_values import plainly

_aten = torch.ops.aten
_SUMS = frozenset({_aten.sum.default, _aten.sum.dim_IntList})
_AS_THEY_ARE = frozenset(
    {_aten.where.self, _aten.masked_fill.Scalar, _aten.masked_fill.Tensor, _aten.copy_.default}
)
INDEXED = frozenset(
    {
        _aten.index.Tensor,
        _aten.index_put.default,
        _aten.index_put_.default,
        _aten._index_put_impl_.default,
    }
)
"""Operators that take positions or masks."""
_REDUCING = {
    _aten.mse_loss.default: 1,
    _aten.smooth_l1_loss.default: 1,
    _aten.soft_margin_loss.default: 2,
}
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
    rule = _rule(func)
    return 0 if rule is None else rule(args, kwargs)


@functools.cache
def _rule(func: Any) -> Callable[[Any, Any], int] | None:
    """What tells the scratch of an operator; `None` for most, which convert nothing."""
    if func in _REDUCING:
        return functools.partial(_reduced, _REDUCING[func])
    for found, funcs in _RULES.items():
        if func in funcs:
            return found
    # Element by element in one type, into a result of its own.
    own = func not in _AS_THEY_ARE and not func._schema.is_mutable
    return _mixed if own and torch.Tag.pointwise in func.tags else None


def _summed(args: Any, kwargs: Any) -> int:
    x = args[0]
    counted = not x.is_floating_point() and not x.is_complex() and x.dtype != torch.int64
    return int(x.numel()) * 8 if counted and not kwargs.get("dtype") else 0


def _reduced(tensors: int, args: Any, _: Any) -> int:
    x, reduces = args[0], len(args) < 3 or bool(args[2])
    return tensors * int(x.numel()) * int(x.element_size()) if reduces else 0


def _other_direction(args: Any, _: Any) -> int:
    """A table of the other direction, as large as the saved one."""
    return int(args[6].numel()) * int(args[6].element_size())


def _selected(args: Any, _: Any) -> int:
    """The mask is summed before there is a result."""
    x, mask = args[0], args[1]
    counted = int(mask.numel()) * 8 - chosen(mask) * int(x.element_size())
    return max(0, counted) if mask.dtype in _MASKS else 0


def _mixed(args: Any, _: Any) -> int:
    """Operands whose type is not the common one; numbers (0-d tensors) are read as they are."""
    given = [t for t in tensors_in(args) if t.layout is torch.strided and t.dim()]
    if len(given) < 2 or all(t.dtype == given[0].dtype for t in given):
        return 0
    common = given[0].dtype
    for tensor in given[1:]:
        common = torch.promote_types(common, tensor.dtype)
    return sum(int(t.numel()) * common.itemsize for t in given if t.dtype != common)


def _indexed(args: Any, _: Any) -> int:
    return positions(args[1])


def positions(indices: Any) -> int:
    """Bytes of the positions that masks among the indices of a call become."""
    return sum(_positions(index) for index in indices if index is not None)


def _positions(index: Any) -> int:
    """Where a mask is true, a row of int64 for each of its dimensions."""
    return chosen(index) * int(index.dim()) * 8


def chosen(mask: Any) -> int:
    """How many elements of a mask are true: all that may be where that is not known."""
    if mask.dtype not in _MASKS:
        return 0
    real = _known(mask)
    if real is None:
        return int(mask.numel())
    with plainly():
        return int(real.count_nonzero())


def assumed(func: Any, args: Any) -> str:
    """What a call's scratch takes for granted, as a note; empty where it is nothing."""
    masks = [i for i in args[1] if i is not None and i.dtype in _MASKS] if func in INDEXED else ()
    unknown = any(_known(mask) is None for mask in masks)
    return "masks of unknown values as indices: their positions are counted at their most" * unknown


def _known(mask: Any) -> torch.Tensor | None:
    """A mask with its values; `None` where they are unknown."""
    mode = getattr(mask, "fake_mode", None)
    if mode is None:
        return mask if mask.device.type == "cpu" else None
    values = getattr(mode, "values", None)
    return None if values is None else values.of(mask)


_RULES: Mapping[Callable[[Any, Any], int], frozenset[Any]] = {
    _summed: _SUMS,
    _other_direction: _CTC_GRADIENTS,
    _indexed: INDEXED,
    _selected: frozenset({_aten.masked_select.default}),
}
