"""An example built without its memory, but with the values that may decide its course.

Parameters and all that is large lies on `meta`. Small tensors that a callable makes of numbers or
draws (ids, masks, lengths, tables) are real: what they hold decides sizes and branches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from peakfold.frontends.torch.unwatched.known_values import few

_META = torch.device("meta")
_BARE = frozenset({torch.empty, torch.empty_strided, torch.empty_permuted, torch.empty_quantized})
"""What these make holds nothing: parameters begin so."""


class Light(TorchFunctionMode):
    """New tensors are on `meta`, small ones that hold something on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self._makers = frozenset(_device_constructors()) - _BARE

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self._makers and func not in _BARE:
            return func(*args, **kwargs)
        where = kwargs.get("device")
        if where is not None and torch.device(where) != _META:
            return func(*args, **kwargs)
        made = func(*args, **{**kwargs, "device": _META})
        if func in self._makers and isinstance(made, torch.Tensor) and few(made):
            return func(*args, **{**kwargs, "device": "cpu"})
        return made


def stretched(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of another shape that goes on as the example's does, where that is small.

    Along each axis a row that grows by equal steps (positions, a mask of ones) goes on so; any
    other begins again.

    Args:
        tensor: the example's, real or on `meta`.
        shape: as many dimensions.

    Returns:
        A real tensor; one on `meta` where it would be large, or the example's has no values.

    Example:
        >>> [stretched(torch.tensor(row), (5,)).tolist() for row in ([0, 1, 2], [7, 1])]
        [[0, 1, 2, 3, 4], [7, 1, 7, 1, 7]]
    """
    bare = torch.empty(tuple(shape), dtype=tensor.dtype, device="meta")
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided
    if not plain or not few(bare) or not few(tensor) or not tensor.numel():
        return bare
    made = tensor.detach()
    for axis, size in enumerate(shape):
        made = _along(made, axis, size)
    return made


def _along(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    count = tensor.shape[axis]
    if size <= count:
        return tensor.narrow(axis, 0, size).clone()
    if tensor.dtype is not torch.bool and count > 1:
        step = tensor.narrow(axis, 1, 1) - tensor.narrow(axis, 0, 1)
        row = torch.arange(size).view(-1, *(1,) * (tensor.dim() - 1 - axis))
        grown = tensor.narrow(axis, 0, 1) + step * row.to(tensor.dtype)
        steps = set(step.flatten().tolist())
        shown = count > 2 or steps in ({0}, {1})  # any two rows have one step
        if shown and torch.equal(grown.narrow(axis, 0, count), tensor):
            return grown
    times = [math.ceil(size / count) if at == axis else 1 for at in range(tensor.dim())]
    return tensor.repeat(times).narrow(axis, 0, size).clone()
