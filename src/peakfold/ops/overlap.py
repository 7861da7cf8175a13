"""How far below its own input a kernel may write: distances traced from the order of its loops.

A kernel that walks through its output in order writes byte w of it at some time, and reads
bytes of its input at or after that time. Let ``m(t)`` be the first input byte that is read at
time t or later, and ``w(t)`` the end of what has been written by then. With the output
starting d bytes below the input, a write destroys nothing that is still needed if
``w(t) - d <= m(t)`` for every t, so the smallest safe distance is ``max(w(t) - m(t))``. All
distances above it are safe, too. (This is the diagonal memory optimisation of P. Blacker,
C. Bridges and S. Hadfield, "Rapid prototyping of deep learning models on radiation hardened
CPUs", AHS 2019, and of later work with that name.)

The loops are those of TensorFlow Lite Micro's reference kernels: batch, row, column, channel;
each output element reads its window and is then written once. The trace goes row by row, since
the first column a window reads does not depend on the row. A distance is in bytes, never
negative: 0 says that the output may start where the input starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from peakfold.ops.inference import CannotTell

Starts = Sequence[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The access pattern of a kernel that makes an image out of windows of another.

    Attributes:
        batches: images, one after the other.
        rows: per output row, the first input row that its windows read; `None` = none.
        columns: the same for columns.
        in_image: (rows, columns) of the input.
        in_pixel, out_pixel: bytes of all channels of one position.
        reach: within one position, the most by which what has been written goes beyond the
            first byte of the window still to be read (see `channel_reach`); `None` = all
            reads of a position come before its only write.
    """

    batches: int
    rows: Starts
    columns: Starts
    in_image: tuple[int, int]
    in_pixel: int
    out_pixel: int
    reach: int | None


MAX_POSITIONS = 1 << 16
"""Rows, columns or channels of an image that are looked at one by one."""


def positions(count: int) -> int:
    """`count`, where so many positions may be looked at one by one.

    Raises:
        CannotTell: they are too many.
    """
    if count > MAX_POSITIONS:
        raise CannotTell
    return count


def window_distance(kernel: Windows) -> int:
    """The smallest safe distance of a kernel of windows.

    Args:
        kernel: what it reads, and when.

    Returns:
        Bytes by which the output must start below the input, at least.

    Example:
        A 3 x 3 window with stride 1 and zeros around a 4 x 5 image of 2 channels, channel by
        channel: position (y, x) reads from (y - 1, x - 1) on, so one row and one position of
        the input must still be there when it is written.

        >>> rows = window_starts(4, 4, kernel=3, stride=1, dilation=1, before=1)
        >>> columns = window_starts(5, 5, kernel=3, stride=1, dilation=1, before=1)
        >>> rows, columns
        ((0, 0, 1, 2), (0, 0, 1, 2, 3))
        >>> window_distance(Windows(batches=1, rows=rows, columns=columns, in_image=(4, 5),
        ...     in_pixel=2, out_pixel=2, reach=channel_reach((0, 1), 1)))
        12
    """
    positions(len(kernel.rows))
    image = len(kernel.rows) * len(kernel.columns) * kernel.out_pixel
    growth = image - prod(kernel.in_image) * kernel.in_pixel
    inner = _image_distance(kernel)
    first = _first_read(kernel)
    if inner is None or first is None:
        return 0
    found = [inner + max(0, (kernel.batches - 1) * growth)]
    if kernel.batches > 1:  # all of an image is written when the next one is read from
        found.append(max(growth, (kernel.batches - 1) * growth) - first)
    return max(0, *found)


def _first_read(kernel: Windows) -> int | None:
    rows = [row for row in kernel.rows if row is not None]
    columns = [column for column in kernel.columns if column is not None]
    if not rows or not columns:
        return None
    return (min(rows) * kernel.in_image[1] + min(columns)) * kernel.in_pixel


def _image_distance(kernel: Windows) -> int | None:
    """The distance within one image; `None` if its input is never read."""
    width, row_bytes = len(kernel.columns), kernel.in_image[1] * kernel.in_pixel
    later_columns, later_rows = _from_here_on(kernel.columns), _from_here_on(kernel.rows)
    if not width or not kernel.rows or later_columns[0] is None or later_rows[0] is None:
        return None
    along: list[int] = []  # distances within a row, counted from its first bytes
    for at, column in enumerate(kernel.columns):
        if column is not None and kernel.reach is not None:
            along.append(at * kernel.out_pixel + kernel.reach - column * kernel.in_pixel)
        after = later_columns[at + 1]
        if after is not None:
            along.append((at + 1) * kernel.out_pixel - after * kernel.in_pixel)
    found: list[int] = []
    for at, row in enumerate(kernel.rows):
        begin = at * width * kernel.out_pixel
        if row is not None and along:
            found.append(begin + max(along) - row * row_bytes)
        below = later_rows[at + 1]
        if below is not None:
            first = below * row_bytes + later_columns[0] * kernel.in_pixel
            found.append(begin + width * kernel.out_pixel - first)
    return max(found, default=None)


def _from_here_on(starts: Starts) -> list[int | None]:
    """Per position and behind the last one, the least start from there on."""
    least: list[int | None] = [None]
    for start in reversed(starts):
        known = [value for value in (start, least[-1]) if value is not None]
        least.append(min(known, default=None))
    return least[::-1]


def channel_reach(starts: Sequence[int], width: int) -> int | None:
    """What the writes of one position reach into the rest of the window.

    Args:
        starts: per write, the first byte it reads, from the first byte of the window.
        width: bytes of one write.

    Returns:
        ``max((j + 1) * width - min(starts[j + 1:]))`` over all writes but the last, or `None`
        when there is only one.

    Example:
        A pointwise convolution of 4 filters reads everything for every filter; a depthwise
        one reads channel c for output c.

        >>> channel_reach((0, 0, 0, 0), 1), channel_reach((0, 1, 2, 3), 1)
        (3, 0)
    """
    positions(len(starts))
    least = _from_here_on(starts)
    reaches = [
        (at + 1) * width - after for at, after in enumerate(least[1:-1]) if after is not None
    ]
    return max(reaches, default=None)


def window_starts(
    size: int, count: int, *, kernel: int, stride: int, dilation: int, before: int
) -> tuple[int | None, ...]:
    """Per window along an axis, the first position inside the data that it reads.

    Args:
        size: positions of the input.
        count: windows.
        kernel: positions of the window.
        stride: positions from one window to the next.
        dilation: positions from one tap of the window to the next.
        before: positions of padding in front of the data.

    Example:
        A dilated window can step over all of the data.

        >>> window_starts(1, 3, kernel=2, stride=1, dilation=2, before=1)
        (None, 0, None)
    """
    return tuple(
        _first_inside(at * stride - before, size, kernel, dilation)
        for at in range(positions(count))
    )


def _first_inside(origin: int, size: int, kernel: int, dilation: int) -> int | None:
    skipped = max(0, -(origin // dilation)) if origin < 0 else 0
    first = origin + skipped * dilation
    return first if skipped < kernel and first < size else None


def elementwise_distance(count: int, in_width: int, out_width: int) -> int:
    """The distance of a kernel that reads and writes one element after the other.

    Args:
        count: elements.
        in_width: bytes of one that is read.
        out_width: bytes of one that is written.

    Example:
        Four int8 become four float32: the input lies at the end of the output, but for the
        three bytes by which the last element is wider.

        >>> elementwise_distance(4, 1, 4), elementwise_distance(4, 4, 1)
        (9, 0)
    """
    return max(0, (count - 1) * (out_width - in_width))


def padding_distance(
    shape: Sequence[int], before: Sequence[int], after: Sequence[int], width: int
) -> int:
    """The distance of a kernel that writes padding and elements in the order of the output.

    The output is furthest ahead when the last element is about to be read: by the padding
    that lies before it.

    Args:
        shape: of the input.
        before: padding per axis, in front.
        after: padding per axis, behind.
        width: bytes of an element.

    Example:
        >>> padding_distance((2, 2), (1, 1), (0, 1), 1)
        7
    """
    count = prod(shape)
    if not count:
        return 0
    last = 0
    for size, low, high in zip(shape, before, after, strict=True):
        last = last * (low + size + high) + low + size - 1
    return (last - (count - 1)) * width
