"""Allocator truth on a CPU: every allocation that torch makes, scratch inside kernels included.

The profiler reports each allocation and each free of torch's CPU allocator. Their running sum is
what a step really takes above what was there before it; a storage tracker cannot see memory that
a kernel takes and gives back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile


def allocations(run: Callable[[], object]) -> list[int]:
    """Bytes of every allocation (positive) and free (negative) while `run` runs, in order.

    Example:
        >>> import torch
        >>> sum(allocations(lambda: torch.zeros(256)))
        0
    """
    with _quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    results: Any = seen.profiler
    found: list[tuple[int, int]] = []
    stack = list(results.kineto_results.experimental_event_tree())
    while stack:
        event = stack.pop()
        stack.extend(event.children)
        if event.tag == _EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    found.sort(key=lambda item: item[0])
    return [nbytes for _, nbytes in found]


def peak_of(changes: Sequence[int]) -> tuple[int, int]:
    """The highest running sum, and the last one.

    Example:
        >>> peak_of([4, 8, -4, 2, -8])
        (12, 2)
    """
    total = highest = 0
    for change in changes:
        total += change
        highest = max(highest, total)
    return highest, total


@contextmanager
def _quiet() -> Iterator[None]:
    """The profiler's native library writes to stderr; that is nobody's data."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
