"""A time limit whose clock stands still while compiled kernels are made ready.

Numba compiles a kernel at its first call: once after an installation that takes longer than
most searches, and later runs still load it from the cache. That is no part of a search, and
were it counted, the same limit would give another packing at the first run than at the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Any

import numpy as np

from peakfold.errors import TimeLimit
from peakfold.packing.problem import Problem

Check = Callable[[], None]
"""Polled all along; ends what is done by raising."""


def endless() -> None:
    """The check of those who have all the time."""


@dataclass(slots=True, eq=False)
class Deadline:
    """When a search has to end.

    Attributes:
        stop: reading of the monotonic clock, in seconds; moves on while kernels are made ready.
        on_compile: called once, before a kernel is compiled for the first time on this machine.

    Example:
        >>> limit = Deadline.after(60)
        >>> limit.load_search()
        >>> limit.expired()
        False
    """

    stop: float
    on_compile: Callable[[], None] | None = None

    @classmethod
    def after(cls, seconds: float, on_compile: Callable[[], None] | None = None) -> Deadline:
        """The deadline so many seconds from now."""
        return cls(monotonic() + seconds, on_compile)

    @classmethod
    def never(cls) -> Deadline:
        """The deadline that does not come."""
        return cls(inf)

    def expired(self) -> bool:
        """Whether the time is up."""
        return monotonic() > self.stop

    def check(self) -> None:
        """Go on only while there is time.

        Raises:
            TimeLimit: the time is up; whoever has something to fall back on catches it.
        """
        if self.expired():
            raise TimeLimit("no packing was found in time")

    @property
    def left(self) -> float:
        """Seconds to go, 0 when the time is up."""
        return max(self.stop - monotonic(), 0.0)

    def share(self, part: float) -> Deadline:
        """An earlier deadline: after this part, between 0 and 1, of the time that is left."""
        now = monotonic()
        return replace(self, stop=now + part * max(self.stop - now, 0.0))

    def load_fit(self) -> None:
        """Make the kernel of first fit ready; costs nothing once it is."""
        with self._standing_still():
            from peakfold.packing.exact.kernels.fit import fit
            from peakfold.packing.large.compiled_first_fit import Fitter

            self._announce(fit)
            if not fit.signatures:
                Fitter(_tiny()).place(np.arange(3))

    def load_search(self) -> None:
        """Make the kernels of the exact search ready; costs nothing once they are."""
        with self._standing_still():
            from peakfold.packing.exact.kernels.search import search
            from peakfold.packing.exact.search import decide
            from peakfold.packing.exact.search_model import build

            self._announce(search)
            model = build(_tiny())
            if not search.signatures and model is not None:
                decide(model, model.unit * 9, nodes=1)

    def _announce(self, kernel: Any) -> None:  # noqa: ANN401 - numba's dispatcher has no public type
        from peakfold.packing.exact.kernels.compiled import must_compile

        if self.on_compile is not None and must_compile(kernel):
            self.on_compile()
            self.on_compile = None

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        began = monotonic()
        try:
            yield
        finally:
            self.stop += monotonic() - began


def _tiny() -> Problem:
    """Three buffers in 9 units of 8 bytes: enough for every kernel to be called once."""
    return Problem.of([0, 1, 2], [2, 3, 4], [16, 8, 64])
