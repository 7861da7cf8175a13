"""A run of a program as its memory: storages, when each was there, and what it was for.

Frameworks that run ops one by one take memory when a result is made and give it back when the
last reference dies. A `Run` is that history, whoever observed it: a run on tensors without
memory, a real one, or an allocator's log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Storage:
    """One block of memory.

    Attributes:
        nbytes: its size.
        born: event number of its birth; 0 = before the run.
        died: event number of its death; `None` = it outlives the run.
        role: parameter, state, input, optimizer_state, gradient (of a parameter), saved (made in
            the forward pass and still there when the backward pass begins), output, temporary.
        phase: in which it was born: before, forward, backward, optimizer or after.
        op: the operator that made it; empty for what was there before.
        scope: path of the module that ran.
        stream: of the device, on which it was asked for.
        frames: places in the program that asked for it, the innermost first, where the observer
            knows them.
    """

    nbytes: int
    born: int
    died: int | None
    role: str
    phase: str
    op: str = ""
    scope: str = ""
    stream: int = 0
    frames: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """The memory history of one step.

    Attributes:
        storages: in order of birth.
        phases: phase and the event number at which it began, in order.
        events: number of births and deaths; event n happens between n and n + 1.
        workspaces: event number at which an op ran, its name and the scratch it held then, for
            ops whose scratch is known.
        notes: what was assumed, and what could not be followed.
    """

    storages: tuple[Storage, ...]
    phases: tuple[tuple[str, int], ...]
    events: int
    workspaces: tuple[tuple[int, str, int], ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def curve(self) -> tuple[int, ...]:
        """Live bytes after each event; the first is what was there before."""
        change = [0] * (self.events + 1)
        for storage in self.storages:
            change[storage.born] += storage.nbytes
            if storage.died is not None:
                change[storage.died] -= storage.nbytes
        total, live = 0, []
        for step in change:
            total += step
            live.append(total)
        return tuple(live)

    def without_scratch(self) -> Run:
        """The run without what kernels take and give back, where an observer saw that."""
        kept = tuple(s for s in self.storages if s.role != "workspace")
        return replace(self, storages=kept, workspaces=())

    @property
    def static_bytes(self) -> int:
        """What was there before the step."""
        return sum(s.nbytes for s in self.storages if s.born == 0)

    @cached_property
    def peak_event(self) -> int:
        """The event with most live bytes, scratch included; the first of several."""
        loads = self.loads
        return loads.index(max(loads))

    @property
    def peak(self) -> int:
        """Most live bytes, scratch included."""
        return max(self.loads)

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """Live bytes at each event with the scratch of the op that runs there."""
        loads = list(self.curve)
        for event, _, nbytes in self.workspaces:
            loads[event] = max(loads[event], self.curve[event] + nbytes)
        return tuple(loads)

    def phase_peaks(self) -> dict[str, int]:
        """Most live bytes in each phase, scratch included.

        Example:
            >>> run = Run((Storage(8, 0, None, "parameter", "before"),
            ...            Storage(4, 1, 2, "temporary", "forward")), (("forward", 1),), 2)
            >>> run.phase_peaks(), run.peak, run.static_bytes
            ({'forward': 12}, 12, 8)
        """
        found: dict[str, int] = {}
        for phase, start, stop in self._spans():
            found[phase] = max(found.get(phase, 0), max(self.loads[start:stop], default=0))
        return found

    def _spans(self) -> Iterator[tuple[str, int, int]]:
        for at, (phase, start) in enumerate(self.phases):
            last = self.phases[at + 1][1] if at + 1 < len(self.phases) else self.events + 1
            yield phase, start, max(last, start + 1)

    def lives(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Birth, death and bytes of what the run itself makes: a packing problem's columns.

        Example:
            >>> run = Run((Storage(8, 0, None, "parameter", "before"),
            ...            Storage(4, 1, 2, "temporary", "forward")), (("forward", 1),), 2)
            >>> run.lives()
            ((1,), (2,), (4,))
        """
        made = [s for s in self.storages if s.born > 0]
        deaths = tuple(self.events + 1 if s.died is None else s.died for s in made)
        return tuple(s.born for s in made), deaths, tuple(s.nbytes for s in made)

    def alive(self, event: int) -> list[Storage]:
        """Storages that exist after an event."""
        return [s for s in self.storages if s.born <= event and (s.died is None or s.died > event)]

    def at_peak(self, by: str = "role") -> dict[str, int]:
        """Bytes alive at the peak by ``role``, ``scope`` or ``op``, largest first."""
        found: Counter[str] = Counter()
        for storage in self.alive(self.peak_event):
            found[str(getattr(storage, by))] += storage.nbytes
        scratch = self.peak - self.curve[self.peak_event]
        if scratch:
            found["workspace"] += scratch
        return dict(found.most_common())


@dataclass(frozen=True)
class Steps:
    """A training step twice: the first makes the optimizer's state, the second is steady.

    Attributes:
        notes: what was assumed: device profile, kernels, accumulation.
        loss, optimizer: what they are, in words.
        kept: bytes more that a loop needs which holds the result until the step is over.
    """

    first: Run
    steady: Run
    notes: tuple[str, ...] = ()
    loss: str = ""
    optimizer: str = ""
    kept: int = 0
