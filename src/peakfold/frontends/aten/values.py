"""Values of an ATen program as the builder sees them, whoever captured it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from peakfold.ir import AttrValue, DType, Role, Shape, Tensor

MAX_LIST = 64
"""Longer lists are data, not op semantics."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor value of a captured program.

    Attributes:
        key: who it is: an fx node, or the identity of a tensor object that is kept alive.
        tensor: its metadata (fake or real; values are never read).
    """

    key: Hashable
    tensor: Any


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a storage that a tensor can reach.

    Attributes:
        storage: identity of the storage.
        start, stop: first byte, and first byte behind; `None` while they depend on symbols.
        layout: shape and strides: two places with equal bytes and layout are one value.
    """

    storage: int
    start: int | None
    stop: int | None
    layout: tuple[object, ...]

    def moved(self, storage: int, shift: int) -> Place:
        """The same bytes as part of another storage, which begins `shift` bytes before."""
        start = None if self.start is None else self.start + shift
        stop = None if self.stop is None else self.stop + shift
        return Place(storage, start, stop, self.layout)

    def overlaps(self, other: Place) -> bool:
        """Whether a write to one can be seen through the other (unknown ranges overlap)."""
        if None in (self.start, self.stop, other.start, other.stop):
            return True
        return (self.start or 0) < (other.stop or 0) and (other.start or 0) < (self.stop or 0)


def reach(
    storage: int,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
    width: int,
    dtype: object,
) -> Place:
    """The bytes that a tensor of known sizes reaches.

    Args:
        storage: identity of its storage.
        shape: sizes.
        strides: in elements.
        offset: in elements.
        width: bytes of an element.
        dtype: its element type: another one makes it another value.

    Example:
        >>> reach(1, (2, 3), (6, 2), 4, 2, "float16").stop
        30
    """
    elements = 0
    if 0 not in shape:
        elements = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    start = offset * width
    layout = (tuple(shape), tuple(strides), dtype)
    return Place(storage, start, start + elements * width, layout)


def made_of(name: str, dtype: DType, shape: Shape, role: Role, view: Place | None) -> Tensor:
    """The IR tensor; a view with gaps or repetition states the bytes that it reaches.

    Args:
        name: its name in the graph.
        dtype: its element type.
        shape: its sizes.
        role: what it is for.
        view: where it lies, when that is in another tensor's bytes.
    """
    made = Tensor(name, dtype, shape, role)
    if view is None or view.start is None or view.stop is None:
        return made
    if made.nbytes == view.stop - view.start:
        return made
    return Tensor(name, dtype, shape, role, view.stop - view.start)


def plain_attribute(value: object, inner: Callable[[object], AttrValue | None]) -> AttrValue | None:
    """An argument as an attribute; `None` when semantics cannot need it.

    Args:
        value: the argument, a plain value.
        inner: reads an item of a list.

    Example:
        >>> plain_attribute(True, bool), plain_attribute([1, 2.5], lambda item: item)
        (1, (1.0, 2.5))
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, list | tuple) and 0 < len(value) <= MAX_LIST:
        items = [inner(item) for item in value]
        if all(isinstance(item, int) for item in items):
            return tuple(item for item in items if isinstance(item, int))
        if all(isinstance(item, int | float) for item in items):
            return tuple(float(item) for item in items if isinstance(item, int | float))
    return None
