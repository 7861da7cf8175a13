"""The rectangles in time and address that a storage covers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from peakfold.analysis.graph.index import Index
from peakfold.analysis.graph.schedule import Schedule
from peakfold.interval import Interval, union
from peakfold.planning.aliasing.records import Storages


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``[lower, upper)`` of a storage that are alive during ``[start, stop)``."""

    start: int
    stop: int
    lower: int
    upper: int


def storage_pieces(
    index: Index, schedule: Schedule, storages: Storages, storage: int
) -> list[Piece]:
    """The rectangles a storage covers, byte range by byte range.

    The members' byte ranges cut the storage into strips; the life of a strip is the union of
    its members' lives. Neighbouring strips with equal lives are one piece.
    """
    members = storages.members[storage]
    windows = [Interval(storages.offset[t], storages.offset[t] + index.nbytes[t]) for t in members]
    lives = [_life(schedule, t) for t in members]
    if all(window == windows[0] for window in windows):
        return [_piece(life, windows[0]) for life in union(lives)]
    pieces: list[Piece] = []
    open_strips: dict[Interval, Interval] = {}
    for strip, inside in strips(windows):
        alive = union([lives[at] for at in inside])
        pieces += [_piece(life, w) for life, w in open_strips.items() if life not in alive]
        open_strips = {
            life: Interval(open_strips[life].start, strip.stop) if life in open_strips else strip
            for life in alive
        }
    return pieces + [_piece(life, window) for life, window in open_strips.items()]


def strips(windows: list[Interval]) -> Iterator[tuple[Interval, list[int]]]:
    """Stretches between neighbouring edges of windows, and which windows hold each.

    Args:
        windows: byte ranges; empty ones hold nothing.

    Example:
        >>> [(tuple(strip), held) for strip, held in strips([Interval(0, 2), Interval(0, 1)])]
        [((0, 1), [0, 1]), ((1, 2), [0])]
    """
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for at, window in enumerate(windows):
        begins.setdefault(window.start, []).append(at)
        ends.setdefault(window.stop, []).append(at)
    inside: dict[int, None] = {}
    for left, right in pairwise(sorted({*begins, *ends})):
        inside.update(dict.fromkeys(begins.get(left, ())))
        for at in ends.get(left, ()):
            inside.pop(at, None)
        yield Interval(left, right), list(inside)


def _piece(life: Interval, window: Interval) -> Piece:
    return Piece(life.start, life.stop, window.start, window.stop)


def _life(schedule: Schedule, tensor: int) -> Interval:
    last = schedule.last_use[tensor]
    return Interval(schedule.born[tensor], min(last + 1, schedule.steps))
