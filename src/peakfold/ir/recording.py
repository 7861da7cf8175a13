"""A `Run` as it is written down: births and deaths of blocks, told by whoever observes them.

Observers differ in how they know a block: a dispatch mode by its storage, the profiler and an
allocation hook by its address. What is made of their words is the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from peakfold.ir.run import Run, Storage


@dataclass(slots=True, eq=False)
class _Block:
    nbytes: int
    born: int
    phase: str
    op: str
    scope: str
    stream: int
    frames: tuple[str, ...]
    died: int | None = None
    role: str = ""


class Recording:
    """Writes one run down. A key names a block while it lives and may name another afterwards.

    Example:
        >>> made = Recording()
        >>> made.existing("w", 64, "parameter")
        >>> made.begin("forward")
        >>> made.born("y", 16, op="relu")
        >>> made.died("y")
        >>> made.run().peak, made.run().phase_peaks()
        (80, {'forward': 80})
    """

    def __init__(self) -> None:
        self._phase = "before"
        self._phases: list[tuple[str, int]] = []
        self._live: dict[Hashable, _Block] = {}
        self._all: list[_Block] = []
        self._event = 0
        self._scratch: list[tuple[int, str, int]] = []
        self._results: set[int] = set()

    def begin(self, phase: str) -> None:
        """A phase begins: forward, backward, optimizer, after."""
        self._phase = phase
        self._phases.append((phase, self._event))

    def existing(self, key: Hashable, nbytes: int, role: str) -> None:
        """A block that is there now and not of the run; one that is known gets the role."""
        if self.size(key) != nbytes:
            self._add(key, nbytes, "", "", 0, ())
        self._live[key].role = role

    def born(
        self,
        key: Hashable,
        nbytes: int,
        *,
        op: str = "",
        scope: str = "",
        stream: int = 0,
        frames: tuple[str, ...] = (),
    ) -> None:
        """A block is made; whatever the key named before is gone."""
        self.died(key)
        self._event += 1
        self._add(key, nbytes, op, scope, stream, frames)

    def died(self, key: Hashable, *, role: str = "") -> None:
        """A block is given back; a key that names none is passed over.

        Args:
            key: of the block.
            role: what its death shows it was for, where nobody has said it.
        """
        found = self._live.pop(key, None)
        if found is not None:
            self._event += 1
            found.died = self._event
            found.role = found.role or role

    def size(self, key: Hashable) -> int | None:
        """Bytes of the living block of this name."""
        found = self._live.get(key)
        return None if found is None else found.nbytes

    def scratch(self, op: str, nbytes: int) -> None:
        """An operator that runs now holds this much besides."""
        self._scratch.append((self._event, op, nbytes))

    def mark(self, keys: Iterable[Hashable], role: str) -> None:
        """Say what living blocks of the run are for."""
        for found in self._of_the_run(keys):
            found.role = role

    def mark_saved(self) -> None:
        """What the forward pass made and has not let go of is saved for the backward pass."""
        for found in self._live.values():
            if found.phase == "forward" and not found.role:
                found.role = "saved"

    def returned(self, keys: Iterable[Hashable]) -> None:
        """Remember what the module returned."""
        self._results.update(map(id, self._of_the_run(keys)))

    def run(self, *, results_kept: bool = False) -> Run:
        """What was recorded so far.

        Args:
            results_kept: as if what the module returned were held to the end of the step.
        """
        kept = self._results if results_kept else frozenset()
        storages = tuple(
            Storage(b.nbytes, b.born, None if id(b) in kept else b.died, b.role or "temporary",
                    b.phase, b.op, b.scope, b.stream, b.frames)
            for b in self._all
        )  # fmt: skip
        return Run(storages, tuple(self._phases), self._event, tuple(self._scratch))

    def _add(
        self, key: Hashable, nbytes: int, op: str, scope: str, stream: int, frames: tuple[str, ...]
    ) -> None:
        made = _Block(nbytes, self._event, self._phase, op, scope, stream, frames)
        self._live[key] = made
        self._all.append(made)

    def _of_the_run(self, keys: Iterable[Hashable]) -> list[_Block]:
        found = (self._live.get(key) for key in keys)
        return [block for block in found if block is not None and block.born > 0]
