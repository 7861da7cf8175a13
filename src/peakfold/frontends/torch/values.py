"""Torch tensors as the IR sees them: element type, shape, and where in which storage they lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from peakfold.frontends.aten.values import Place, made_of, plain_attribute, reach
from peakfold.ir import DTYPES, OPAQUE, AttrValue, Dim, DType, Role, Tensor

_NAMES = {
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn_x2": "uint8",
    "quint8": "uint8",
    "qint8": "int8",
    "qint32": "int32",
    "quint4x2": "uint4",
    "quint2x4": "uint2",
}


def dtype_of(dtype: torch.dtype) -> DType:
    """The IR's element type; opaque for one it has not.

    Example:
        >>> str(dtype_of(torch.bfloat16)), str(dtype_of(torch.float8_e4m3fn))
        ('bfloat16', 'float8e4m3fn')
    """
    name = str(dtype).removeprefix("torch.")
    return DTYPES.get(_NAMES.get(name, name), OPAQUE)


def dim_of(size: Any) -> Dim:
    """A dimension: a number, or the text of its symbolic expression."""
    if isinstance(size, int):
        return size
    known = size.node.maybe_as_int()
    return int(known) if known is not None else str(size.node.expr)


def number_of(size: Any) -> int | None:
    """A size when it is a number."""
    dim = dim_of(size)
    return dim if isinstance(dim, int) else None


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """A tensor's storage; `None` where torch shows none and raises instead.

    So it does for layouts without strides (sparse, oneDNN's) and for what vmap wraps.

    Example:
        >>> storage_of(torch.zeros(3)).nbytes(), storage_of(torch.eye(2).to_sparse())
        (12, None)
    """
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # which of the two depends on the layout
        return None


def place_of(tensor: torch.Tensor) -> Place:
    """Where a tensor lies; a negative storage, its own, where torch shows none."""
    held = storage_of(tensor)
    if held is None:
        return Place(-id(tensor), None, None, (tuple(tensor.shape),))
    storage = held._cdata
    shape: Any = tuple(tensor.shape)
    strides: Any = tensor.stride()
    offset: Any = tensor.storage_offset()
    if not all(type(n) is int for n in (offset, *shape, *strides)):
        known = _numbers(shape), _numbers(strides), number_of(offset)
        if known[0] is None or known[1] is None or known[2] is None:
            layout = (tuple(map(str, shape)), tuple(map(str, strides)), tensor.dtype)
            return Place(storage, None, None, layout)
        shape, strides, offset = known
    return reach(storage, shape, strides, offset, tensor.element_size(), tensor.dtype)


def _numbers(sizes: Iterable[Any]) -> tuple[int, ...] | None:
    found = tuple(number_of(size) for size in sizes)
    return None if None in found else tuple(n for n in found if n is not None)


def tensor_of(
    name: str, tensor: torch.Tensor, role: Role = Role.ACTIVATION, *, view: bool = False
) -> Tensor:
    """The IR tensor; a view with gaps or repetition states the bytes that it reaches.

    Args:
        name: its name in the graph.
        tensor: the torch tensor, fake or real.
        role: what it is for.
        view: it lies in another tensor's bytes.
    """
    shape = tuple(dim_of(n) for n in tensor.shape)
    return made_of(name, dtype_of(tensor.dtype), shape, role, place_of(tensor) if view else None)


def attribute(value: object) -> AttrValue | None:
    """An argument as an attribute; `None` when semantics cannot need it."""
    if isinstance(value, torch.dtype):
        return str(dtype_of(value))
    if isinstance(value, torch.SymInt):
        return number_of(value)
    return plain_attribute(value, attribute)
