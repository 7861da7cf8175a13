"""What a plan needs of each memory: one total, used by every report and every verdict.

The total is about the memory that the arena lies in. A term that nobody models is `None`, never 0,
and is named; what is known of it still counts for the lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from peakfold.planning.options import PlanOptions

COUNTED: Final = "tensors, weights, inputs, outputs; no kernel scratch"
"""What the total of a target is that names no runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Bytes of the memory that holds the arena, by use; each `None` where it is not known.

    Attributes:
        arena: the planned arena, with whatever scratch is planned in it.
        static: weights, constants and state that lie in the same memory.
        input: inputs beside the arena.
        output: outputs beside the arena.
        scratch: kernel scratch beside the arena.
        runtime: what the runtime keeps for itself.
        context: what is taken before any tensor.
    """

    arena: int | None
    static: int | None
    input: int | None
    output: int | None
    scratch: int | None
    runtime: int | None
    context: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a plan needs.

    Attributes:
        total: by use.
        arena: bytes of the planned arena, also where its total may be wrong.
        at_least: their sum, of a term that is not known the known part; bytes.
        flash: bytes of the model in flash; `None` where all of it lies in the arena's memory.
        unknown: what takes more than was counted, or may be wrong, in words.
        sizes: those of it by which sizes in the arena may be wrong, larger or smaller.
    """

    total: Total
    arena: int
    at_least: int
    flash: int | None = None
    unknown: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int | None:
        """The total; `None` where a term is not known."""
        return None if self.unknown else self.at_least

    @property
    def sure(self) -> Need:
        """What is surely needed: where sizes may be wrong, all but the arena."""
        if not self.sizes:
            return self
        return replace(self, arena=0, at_least=self.at_least - self.arena)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Bytes there are; `None` = not asked.

    Attributes:
        total: for everything that shares the arena's memory.
        arena: for the arena alone.
        flash: for what lies in flash.
    """

    total: int | None = None
    arena: int | None = None
    flash: int | None = None

    @classmethod
    def of(cls, options: PlanOptions) -> Budgets:
        """Those that a plan was asked to meet."""
        return cls(total=options.budget, arena=options.arena_budget, flash=options.flash)

    def over(self, need: Need) -> int:
        """Bytes by which the arena or the total misses its budget most; at most 0 = neither does.

        Example:
            >>> Budgets(total=10).over(alone(12)), Budgets(arena=12).over(alone(12))
            (2, 0)
        """
        pairs = ((need.at_least, self.total), (need.arena, self.arena))
        return max((has - most for has, most in pairs if most is not None), default=0)

    def verdict(self, need: Need) -> bool | None:
        """Whether a need is met; `None` where that hangs on what is not known, or nobody asked.

        Example:
            >>> from dataclasses import replace
            >>> Budgets(total=12).verdict(alone(12)), Budgets(total=11).verdict(alone(12))
            (True, False)
            >>> doubtful = replace(alone(12), unknown=("scratch of svdf",))
            >>> Budgets(total=12).verdict(doubtful), Budgets(total=11).verdict(doubtful)
            (None, False)
            >>> wrong = replace(alone(12), unknown=("y",), sizes=("y",))
            >>> Budgets(arena=12).verdict(wrong), Budgets(arena=11).verdict(wrong)
            (None, None)
        """
        if self == Budgets():
            return None
        if self.over(need.sure) > 0:
            return False
        if self.flash is not None and need.flash is not None and need.flash > self.flash:
            return False
        return None if self.doubts(need) else True

    def doubts(self, need: Need) -> tuple[str, ...]:
        """What is not known of the memories that were asked about: an arena holds no records."""
        if self.total is not None or (self.arena is not None and need.total.scratch is None):
            return need.unknown
        return need.sizes if self.arena is not None else ()


def alone(arena: int) -> Need:
    """The need of an arena with nothing beside it."""
    total = Total(arena=arena, static=0, input=0, output=0, scratch=0, runtime=0, context=0)
    return Need(total=total, arena=arena, at_least=arena)
