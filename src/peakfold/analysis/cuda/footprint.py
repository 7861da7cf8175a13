"""A run's storages as requests to an allocator: what it reserves, and a snapshot to look at."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from peakfold.analysis.cuda.caching_allocator import CachingAllocator, Event, Footprint, replay
from peakfold.ir.run import Run, Storage
from peakfold.packing import Problem
from peakfold.target import Eager

# Operators that ask the library of matrix products, by the names autograd calls.
_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"})


@dataclass(frozen=True, slots=True)
class Bytes:
    """What an allocator handed out and what it took for that.

    Attributes:
        allocated: bytes of blocks in use.
        reserved: bytes of segments.
    """

    allocated: int
    reserved: int

    def __or__(self, other: Bytes) -> Bytes:
        """The larger of both, figure by figure."""
        return Bytes(max(self.allocated, other.allocated), max(self.reserved, other.reserved))


def with_libraries(run: Run, kept: Eager, *, first: bool) -> Run:
    """A run with the workspaces that the library of matrix products keeps.

    Args:
        run: a step's storages.
        kept: the device's facts.
        first: the workspaces are born in this step, at the first product of each thread (the
            caller's, and autograd's); otherwise they are there before it.

    Example:
        >>> from peakfold.ir.run import Storage
        >>> from peakfold.target import load_eager
        >>> run = Run((Storage(4, 1, None, "saved", "forward", "mm"),), (("forward", 0),), 1)
        >>> [s.nbytes for s in with_libraries(run, load_eager("cuda"), first=True).storages]
        [4, 8519680]
    """
    if not kept.product_workspace_bytes:
        return run
    products = [s for s in run.storages if s.op in _PRODUCTS]
    threads: dict[bool, int] = {}
    for storage in products:
        threads.setdefault(storage.phase == "backward", storage.born)
    born = sorted(threads.values())[: kept.product_threads]
    made = tuple(
        Storage(
            kept.product_workspace_bytes,
            at if first else 0,
            None,
            "workspace",
            "forward" if first else "before",
            "product workspace",
        )
        for at in born
    )
    return replace(run, storages=run.storages + made)


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


def problem_of(run: Run) -> Problem:
    """What a run makes as a packing problem, whoever observed the run: time is its events.

    What was there before the run is not in it.

    Example:
        >>> from peakfold.ir.run import Storage
        >>> run = Run((Storage(8, 0, None, "parameter", "before"),
        ...            Storage(4, 1, 2, "temporary", "forward", "relu")), (("forward", 1),), 2)
        >>> problem = problem_of(run)
        >>> problem.names, problem.start, problem.stop, problem.size
        (('0 relu',), array([1]), array([2]), array([4]))
    """
    names = (s.op or s.role for s in run.storages if s.born > 0)
    labels = tuple(f"{at} {name}" for at, name in enumerate(names))
    return Problem.of(*run.lives(), names=labels)


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


def phase_footprints(run: Run) -> dict[str, Bytes]:
    """The highest allocated and reserved bytes of each phase, its beginning included.

    Args:
        run: the storages; their sizes must be those of a GPU's kernels.

    Example:
        >>> from peakfold.ir.run import Storage
        >>> run = Run((Storage(700, 0, None, "parameter", "before"),
        ...            Storage(512, 1, 2, "saved", "forward")),
        ...           (("forward", 0), ("backward", 1)), 2)
        >>> {k: v.allocated for k, v in phase_footprints(run).items()}
        {'forward': 1536, 'backward': 1536}
    """
    allocator = CachingAllocator()
    found: dict[str, Bytes] = {}
    ahead = list(run.phases)
    phase = ""

    def note() -> None:
        now = Bytes(allocator.allocated, allocator.reserved)
        found[phase] = found.get(phase, now) | now

    for event, request in requests(run):
        while ahead and event > ahead[0][1]:
            phase = ahead.pop(0)[0]
            note()
        if request.nbytes:
            allocator.allocate(request.name, request.nbytes)
        else:
            allocator.free(request.name)
        note()
    for name, _ in ahead:
        phase = name
        note()
    found.pop("", None)
    return found


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
        frames = [
            {"name": f"{storage.op or storage.role} ({storage.role})", "filename": place, "line": 0}
        ]
        entry = {
            "action": action,
            "addr": address,
            "size": storage.nbytes,
            "stream": 0,
            "frames": frames,
            "time_us": event,
            "device": 0,
        }
        if action == "free_completed":
            trace.append({**entry, "action": "free_requested"})
        trace.append(entry)
    return pickle.dumps({"segments": [], "device_traces": [trace], "allocator_settings": {}})
