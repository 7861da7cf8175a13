"""Allocator truth on a CPU: every allocation that torch makes, scratch inside kernels included.

The profiler reports each allocation and each free of torch's CPU allocator, and the operators
around them. No mode and no subclass watches: what runs is a plain eager run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple

import torch
from torch._C._profiler import RecordScope, _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from peakfold.frontends.torch.scope import ScopeTracker
from peakfold.frontends.torch.sparse import parts
from peakfold.ir.recording import Recording
from peakfold.ir.run import Run

_MARK: Final = "peakfold mark "
# They only ask for memory: whoever calls them is the operator that made a block.
_BARE: Final = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "resize_",
                          "new_empty_strided", "empty_permuted"})  # fmt: skip


def allocations(run: Callable[[], object]) -> list[int]:
    """Bytes of every allocation (positive) and free (negative) while `run` runs, in order.

    Example:
        >>> import torch
        >>> sum(allocations(lambda: torch.zeros(256)))
        0
    """
    with _quiet(), _profiled() as seen:
        run()
    return [e.extra_fields.alloc_size for e, _ in _events(seen) if e.tag == _EventType.Allocation]


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


class AllocationTracker:
    """Records a run by the events of torch's allocator; a watcher of the run's phases.

    What the run says on its way (phases, roles, modules) becomes marks between the events. They
    hold addresses, never tensors.

    Args:
        scopes: names the modules of the run; active while it runs.

    Attributes:
        notes: nothing is assumed.

    Example:
        >>> layer = torch.nn.Linear(4, 3)
        >>> with ScopeTracker(layer) as scopes, AllocationTracker(scopes) as seen:
        ...     seen.existing(layer.parameters(), "parameter")
        ...     seen.begin("forward")
        ...     out = layer(torch.zeros(2, 4))
        >>> [(s.nbytes, s.op, s.died) for s in seen.run().storages if s.died is None]
        [(48, '', None), (12, '', None), (32, 'zeros', None), (24, 'addmm', None)]
    """

    def __init__(self, scopes: ScopeTracker) -> None:
        self._scopes = scopes
        self._told: list[tuple[str, Callable[[Recording], None]]] = []
        self._before: list[tuple[int, int, str]] = []
        self._profile = _profiled()
        self._recording = Recording()
        self._silence = _quiet()
        self.notes: dict[str, None] = {}

    def __enter__(self) -> AllocationTracker:
        self._silence.__enter__()
        self._profile.__enter__()
        self._scopes.changed = lambda: self._mark(_nothing)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scopes.changed = None
        self._profile.__exit__(kind, value, trace)
        self._silence.__exit__(kind, value, trace)
        if kind is None:
            self._replay()

    def existing(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Note what is there before the run."""
        held = (part.untyped_storage() for tensor in tensors for part in parts(tensor) or ())
        self._before += [(s.data_ptr(), s.nbytes(), role) for s in held]

    def begin(self, phase: str) -> None:
        """Enter a phase: forward, backward, optimizer, after."""
        self._mark(lambda made: made.begin(phase))

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Say what living tensors are for."""
        keys = _addresses(tensors)
        self._mark(lambda made: made.mark(keys, role))

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """Remember what the module returned."""
        keys = _addresses(tensors)
        self._mark(lambda made: made.returned(keys))

    def mark_saved(self) -> None:
        """What the forward pass made and has not let go of is saved for the backward pass."""
        self._mark(Recording.mark_saved)

    def run(self, *, results_kept: bool = False) -> Run:
        """What was recorded, once the run is over.

        Args:
            results_kept: as if what the module returned were held to the end of the step.
        """
        return self._recording.run(results_kept=results_kept)

    def _mark(self, tell: Callable[[Recording], None]) -> None:
        with record_function(f"{_MARK}{len(self._told)}"):
            self._told.append((self._scopes.scope, tell))

    def _replay(self) -> None:
        """Write down what the profiler saw, and what was said in between."""
        made, scope = self._recording, ""
        for address, nbytes, role in self._before:
            made.existing(address, nbytes, role)
        makers: dict[int, int] = {}
        forward: dict[int, str] = {}
        for event, place in _events(self._profile):
            if event.tag == _EventType.Allocation:
                address, nbytes = event.extra_fields.ptr, event.extra_fields.alloc_size
                if nbytes > 0:
                    at = scope if place.node < 0 else forward.get(place.node, "")
                    made.born(address, nbytes, op=place.op, scope=at)
                    makers[address] = place.call
                else:  # what a kernel takes and gives back is its scratch
                    inside = place.call >= 0 and makers.pop(address, -1) == place.call
                    made.died(address, role="workspace" if inside else "")
            elif event.tag != _EventType.TorchOp:
                continue
            elif event.name.startswith(_MARK):
                scope, tell = self._told[int(event.name[len(_MARK) :])]
                tell(made)
            elif place.node < 0 and not _backward(event):
                forward[event.extra_fields.sequence_number] = scope


class _Place(NamedTuple):
    """Where an event happened.

    Attributes:
        op: the operator, as autograd calls it; empty outside of all.
        call: which call of it; -1 outside of all.
        node: sequence number of the backward node that runs; -1 in none.
        recorded: autograd may record `op`: operators inside it are its own business.
    """

    op: str = ""
    call: int = -1
    node: int = -1
    recorded: bool = False

    def within(self, event: Any) -> _Place:
        """The place of what happens inside an event."""
        if event.tag != _EventType.TorchOp:
            return self
        fields, name = event.extra_fields, event.name
        if _backward(event):
            return _Place(name.rpartition(": ")[2], -1, max(fields.sequence_number, self.node))
        space, _, name = name.rpartition("::")
        if not space or space.startswith(("autograd", "torch::autograd")):
            return self
        recorded = fields.sequence_number >= 0
        if self.call >= 0 and (name in _BARE or self.recorded > recorded):
            return self
        return _Place(name, event.id, self.node, recorded)


def _backward(event: Any) -> bool:
    """Whether an operator's event is a node of a backward pass."""
    backward = event.extra_fields.scope == RecordScope.BACKWARD_FUNCTION
    return bool(backward) or event.name.startswith("autograd::")


def _profiled() -> Any:
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True)


def _events(seen: Any) -> list[tuple[Any, _Place]]:
    """All events in order of time, each with the place it happened in."""
    found: list[tuple[Any, _Place]] = []
    stack = [(e, _Place()) for e in seen.profiler.kineto_results.experimental_event_tree()[::-1]]
    while stack:
        event, place = stack.pop()
        found.append((event, place))
        inner = place.within(event)
        stack += [(child, inner) for child in event.children[::-1]]
    found.sort(key=lambda item: item[0].start_time_ns)
    return found


def _addresses(tensors: Iterable[torch.Tensor]) -> list[int]:
    held = (part for tensor in tensors for part in parts(tensor) or ())
    return [part.untyped_storage().data_ptr() for part in held]


def _nothing(_: Recording) -> None:
    """A mark for the module's sake."""


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
