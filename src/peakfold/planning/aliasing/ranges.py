"""Who lies in which bytes of one storage, found by range."""

from __future__ import annotations

from bisect import bisect_left, insort


class Ranges:
    """Tensors by the bytes ``[start, stop)`` they take.

    Kept by length, in classes of powers of two and sorted in each: what overlaps a range begins,
    in a class, less than its longest length before the range. So a question costs no more than
    its answer, up to a logarithm.

    Example:
        >>> held = Ranges()
        >>> held.add(0, 64, 7), held.add(64, 128, 8), held.add(0, 128, 9)
        (None, None, None)
        >>> sorted(held.overlapping(70, 80))
        [8, 9]
    """

    def __init__(self) -> None:
        self._classes: dict[int, list[tuple[int, int, int]]] = {}

    def add(self, start: int, stop: int, tensor: int) -> None:
        """Note a tensor; one without bytes overlaps nothing."""
        if start < stop:
            rows = self._classes.setdefault((stop - start).bit_length(), [])
            insort(rows, (start, stop, tensor))

    def discard(self, start: int, stop: int, tensor: int) -> None:
        """Forget a tensor, if it is noted."""
        rows = self._classes.get((stop - start).bit_length(), [])
        at = bisect_left(rows, (start, stop, tensor))
        if rows[at : at + 1] == [(start, stop, tensor)]:
            del rows[at]

    def overlapping(self, start: int, stop: int) -> list[int]:
        """Tensors that share a byte with ``[start, stop)``."""
        if start >= stop:
            return []
        return [
            row[2]
            for bits, rows in self._classes.items()
            for row in rows[bisect_left(rows, (start - 2**bits,)) : bisect_left(rows, (stop,))]
            if row[1] > start
        ]

    def tensors(self) -> list[int]:
        """All that are noted."""
        return [row[2] for rows in self._classes.values() for row in rows]
