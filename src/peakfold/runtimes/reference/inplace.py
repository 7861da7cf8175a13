"""Writing a result over an operand, so that a wrong in-place plan shows in the numbers.

numpy makes a copy where operands overlap a result in a harmful way, which is just what a judge
must not do. So `into` kernels run only where overlapping operands lie exactly under the result,
and everything else is written in two passes with the kernel run anew in between: what the
second pass reads has already been half overwritten. An op that really is element-wise does not
notice; any other does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakfold.judges.placement import Location
from peakfold.runtimes.reference.kernels import Args, Array, Kernel

Mask = NDArray[np.bool_]


def first_half(out: Location, itemsize: int, others: Sequence[Location]) -> Mask:
    """Which elements to overwrite first: those that other operands lie under.

    Args:
        out: the result.
        itemsize: bytes of one element.
        others: operands that overlap the result, but not element on element.

    Returns:
        A flat mask; every second element where the overlap singles out none.

    Example:
        >>> here = Location(-1, 0, 16, 0)
        >>> first_half(here, 4, [Location(-1, 8, 4, 0)])
        array([False, False,  True, False])
        >>> first_half(here, 4, [])
        array([ True, False,  True, False])
    """
    mask = np.zeros(out.nbytes // itemsize, np.bool_)
    for other in others:
        low = max(out.address, other.address) - out.address
        high = min(out.address + out.nbytes, other.address + other.nbytes) - out.address
        mask[low // itemsize : -(-high // itemsize)] = True
    if not mask.any() or mask.all():
        mask[0::2], mask[1::2] = True, False
    return mask


def overwrite(kernel: Kernel, args: Args, out: Array, first: Mask) -> tuple[Any, ...]:
    """Run a kernel whose result 0 lies over an operand; gives its other results.

    Args:
        kernel: the kernel.
        args: operands, as views into the memory that is overwritten.
        out: the result, as a view.
        first: mask of `first_half`.
    """
    mask = first[: out.size].reshape(out.shape)
    results = kernel.run(args)
    np.copyto(out, results[0], where=mask, casting="same_kind")
    again = kernel.run(args)
    np.copyto(out, again[0], where=~mask, casting="same_kind")
    return results[1:]
