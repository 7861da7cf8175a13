"""The arena a user must give the interpreter: the least in which nothing is refused or overlaps.

Some smaller arenas start, too: nobody looks whether what stays lies over temporaries, and some
kernels work on without the memory they were refused. Such an interpreter computes with its own
records overwritten, so no search for the smallest arena that starts can be trusted, and none is
made here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peakfold.runtimes.tflite.allocator import Scratch, loose_bytes
from peakfold.runtimes.tflite.schema import Model
from peakfold.runtimes.tflite.steps import ALIGN, Step, starting
from peakfold.target.arena import load_arena
from peakfold.units import round_up

WHEEL, DEVICE64, DEVICE32 = "wheel", "device64", "device32"
"""Builds of the interpreter in the target's table; the first is the one that runs here."""


@dataclass(frozen=True, slots=True)
class Arena:
    """An arena, in bytes.

    Attributes:
        head: shared by lifetimes.
        tail: kept.
        starting: the most at any step before the head is reserved: while an operator is
            prepared, or while the plan is made.
        loose: of the head, what tensors take that no operator of a run makes or reads.
        unknown: operators that may take more than was counted, by name; every figure but the
            head is then a lower bound.
    """

    head: int
    tail: int
    starting: int
    loose: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The arena to give, a multiple of 16.

        Example:
            >>> Arena(head=64, tail=1000, starting=1100).total
            1104
        """
        return round_up(max(self.head + self.tail, self.starting), ALIGN)


def predict_arena(model: Model, scratch: Scratch, build: str = WHEEL) -> Arena:
    """The arena of a file.

    Args:
        model: the parsed file.
        scratch: bytes of each scratch buffer per operator.
        build: of the interpreter, by its name in the target's table.

    Raises:
        ModelError: a tensor whose type the interpreter cannot hold, or a broken table of offsets.
    """
    start = starting(model, scratch, load_arena("tflm").builds[build])
    before, tail = _measured(start.steps)
    loose = loose_bytes(start.prediction)
    return Arena(start.prediction.head, tail, before, loose, start.unknown)


def after(step: Step, head: int, temp: int, tail: int) -> tuple[int, int, int, int]:
    """Both ends after a step, and the bytes in use at most during it.

    Args:
        step: what is taken.
        head: bytes from the arena's first to the end of what is resized.
        temp: the same to the end of temporaries.
        tail: bytes kept at its end.

    Example:
        >>> after(Step("hold", 64, 8), 192, 196, 500)
        (192, 264, 500, 764)
    """
    if step.what == "keep":
        tail = round_up(tail + step.size, step.align)
    elif step.what == "hold":
        temp = round_up(temp, step.align) + step.size
    elif step.what == "release":
        temp = head
    elif step.what == "plan":
        return head, temp, tail, round_up(temp, ALIGN) + step.size + round_up(tail, ALIGN)
    else:
        head = temp = step.size
    return head, temp, tail, max(head, temp) + tail


def _measured(steps: Iterable[Step]) -> tuple[int, int]:
    """The most in use before the head is reserved, and the tail at the end."""
    head = temp = tail = most = 0
    reserved = False
    for step in steps:
        reserved = reserved or step.what == "reserve"
        head, temp, tail, used = after(step, head, temp, tail)
        most = most if reserved else max(most, used)
    return most, tail
