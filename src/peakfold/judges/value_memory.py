"""A model of memory that remembers which value each byte holds; used by the judges only.

A byte range holds a root value from some base address on: byte k of the root lies at
``base + k``. A view of the root is then recognised by value, not by trust.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

Root = str | tuple[str, str | int]
"""A value that some op really wrote: a tensor by name; a pair where it is no tensor, since a
file may call its tensors anything."""


@dataclass(frozen=True, slots=True)
class Part:
    """`length` bytes of the value `root`, from its byte `offset` on."""

    root: Root
    offset: int
    length: int


def cut(parts: list[Part], start: int, length: int) -> list[Part]:
    """Bytes ``[start, start + length)`` of a value that is written as parts.

    Example:
        >>> cut([Part("a", 0, 4), Part("b", 8, 4)], 2, 4)
        [Part(root='a', offset=2, length=2), Part(root='b', offset=8, length=2)]
    """
    found: list[Part] = []
    at = 0
    for part in parts:
        low, high = max(start, at), min(start + length, at + part.length)
        if low < high:
            found.append(Part(part.root, part.offset + low - at, high - low))
        at += part.length
    return found


class Memory:
    """One address space: disjoint segments sorted by address."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.segments: list[tuple[int, Root, int]] = []  # stop, root, base

    def write(self, start: int, length: int, root: Root) -> None:
        """Bytes ``[start, start + length)`` now hold `root` from its first byte on."""
        if length == 0:
            return
        stop = start + length
        first = bisect_right(self.starts, start) - 1
        if first < 0 or self.segments[first][0] <= start:
            first += 1
        last = bisect_left(self.starts, stop)
        keep: list[tuple[int, tuple[int, Root, int]]] = [(start, (stop, root, start))]
        if first < last:
            low, (_, low_root, low_base) = self.starts[first], self.segments[first]
            if low < start:
                keep.insert(0, (low, (start, low_root, low_base)))
            high_stop, high_root, high_base = self.segments[last - 1]
            if high_stop > stop:
                keep.append((stop, (high_stop, high_root, high_base)))
        self.starts[first:last] = [low for low, _ in keep]
        self.segments[first:last] = [segment for _, segment in keep]

    def under(self, start: int, length: int) -> Iterator[tuple[Root, int, int]]:
        """What lies in ``[start, start + length)``: each value and which of its bytes.

        Example:
            >>> memory = Memory()
            >>> memory.write(0, 4, "a")
            >>> list(memory.under(2, 8))
            [('a', 2, 4)]
        """
        index = max(bisect_right(self.starts, start) - 1, 0)
        while index < len(self.starts) and self.starts[index] < start + length:
            stop, root, base = self.segments[index]
            low, high = max(self.starts[index], start), min(stop, start + length)
            if low < high:
                yield root, low - base, high - base
            index += 1

    def wrong(self, start: int, part: Part) -> Root | None:
        """What lies in ``[start, start + part.length)`` in place of `part`; `None` if it does."""
        at, stop = start, start + part.length
        index = bisect_right(self.starts, start) - 1
        while at < stop:
            if index < 0 or index >= len(self.starts) or self.segments[index][0] <= at:
                return "nothing"
            if self.starts[index] > at:
                return "nothing"
            end, root, base = self.segments[index]
            if root != part.root or base != start - part.offset:
                return root
            at = end
            index += 1
        return None
