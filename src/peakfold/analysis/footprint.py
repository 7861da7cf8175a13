"""A run's storages as requests to an allocator: what it reserves, and a snapshot to look at."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from peakfold.analysis.cuda_allocator import CachingAllocator, Event, Footprint, replay
from peakfold.ir.run import Run


def requests(run: Run) -> Iterator[tuple[int, Event]]:
    """The event number and request of every birth and death, in order; static memory first."""
    at: list[tuple[int, int, Event]] = []
    for name, storage in enumerate(run.storages):
        at.append((storage.born, 1, Event(name, storage.nbytes)))
        if storage.died is not None:
            at.append((storage.died, 0, Event(name, 0)))
    for event, _, request in sorted(at, key=lambda item: item[:2]):
        if request.nbytes or request.name >= 0:
            yield event, request


def cuda_footprint(run: Run, capacity: int | None = None, *, expandable: bool = False) -> Footprint:
    """What PyTorch's caching allocator would make of a run on a GPU.

    Args:
        run: the storages; their sizes must be those of a GPU's kernels.
        capacity: bytes of the device.
        expandable: with expandable segments.

    Example:
        >>> from peakfold.ir.run import Storage
        >>> run = Run((Storage(700, 0, None, "parameter", "before"),), (), 0)
        >>> cuda_footprint(run).allocated
        1024
    """
    events = [request for _, request in requests(run)]
    return replay(events, capacity=capacity, expandable=expandable)


def snapshot(run: Run) -> bytes:
    """The run as a memory snapshot that PyTorch's own viewer draws.

    Addresses are those of the replayed caching allocator. The format is that of
    ``torch.cuda.memory._dump_snapshot``: a pickled dictionary of segments and traces.
    """
    allocator = CachingAllocator()
    trace: list[dict[str, Any]] = []
    for event, request in requests(run):
        storage = run.storages[request.name]
        if request.nbytes:
            allocator.allocate(request.name, request.nbytes)
            address, action = allocator.address(request.name), "alloc"
        elif storage.nbytes:
            address, action = allocator.address(request.name), "free_completed"
            allocator.free(request.name)
        else:
            continue
        place = storage.scope or storage.phase
        frames = [{"name": f"{storage.op or storage.role} ({storage.role})", "filename": place,
                   "line": 0}]  # fmt: skip
        entry = {"action": action, "addr": address, "size": storage.nbytes, "stream": 0,
                 "frames": frames, "time_us": event, "device": 0}  # fmt: skip
        if action == "free_completed":
            trace.append({**entry, "action": "free_requested"})
        trace.append(entry)
    return pickle.dumps({"segments": [], "device_traces": [trace], "allocator_settings": {}})
