"""How much a search may do: steps decide the result, the clock only ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

from peakfold.errors import UsageError

# Steps that one second of a time limit buys. It is low enough for slow machines to get there
# before the clock does, so that the same limit gives the same result everywhere.
STEPS_PER_SECOND = 150_000
_LOOK = 2_000


class Effort:
    """A budget of steps (an op played in some state is one) and a time to end.

    Attributes:
        used: steps spent so far.
        late: whether the clock ended the search; its result may then differ from run to run.

    Raises:
        UsageError: a limit that is negative or not finite.
    """

    __slots__ = ("_limit", "_look", "_until", "late", "used")

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds < inf:
            raise UsageError(f"a time limit of {seconds} seconds is no limit", hint="give a number")
        self.used = 0
        self.late = False
        self._limit = int(seconds * STEPS_PER_SECOND)
        self._until = monotonic() + seconds
        self._look = 0

    @property
    def left(self) -> int:
        """Steps that may still be spent."""
        return 0 if self.late else max(self._limit - self.used, 0)

    def spend(self, steps: int) -> bool:
        """Record steps; false when there are none left."""
        self.used += steps
        if self.used >= self._look:
            self._look = self.used + _LOOK
            self.late = self.late or monotonic() > self._until
        return not self.late and self.used < self._limit

    @contextmanager
    def share(self, part: float) -> Iterator[Effort]:
        """At most a part of the steps that are left, between 0 and 1."""
        with self.at_most(int(self.left * part)):
            yield self

    @contextmanager
    def at_most(self, steps: int) -> Iterator[Effort]:
        """At most so many of the steps that are left."""
        limit = self._limit
        self._limit = min(limit, self.used + steps)
        try:
            yield self
        finally:
            self._limit = limit
