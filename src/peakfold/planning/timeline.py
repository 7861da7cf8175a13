"""What a search chooses, and what those choices cost: the one referee of all searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from peakfold.analysis import Facts, Index, Policies, Schedule, make_schedule
from peakfold.analysis.graph.precedence import Precedence
from peakfold.packing import Problem
from peakfold.planning.aliasing.build import build_storages
from peakfold.planning.aliasing.live_ranges import Piece, storage_pieces
from peakfold.planning.aliasing.records import Aliasing, Storages
from peakfold.units import round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Everything a search may choose.

    Attributes:
        order: op ids in the order they run.
        aliasing: which sharing inside storages is wanted.
    """

    order: tuple[int, ...]
    aliasing: Aliasing = field(default_factory=Aliasing)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """One buffer to be packed: a storage, the scratch of an op, or the copy of an output.

    Attributes:
        storage: storage id, or -1.
        workspace: op id whose scratch this is, or -1; of several ops that share one place, the
            first.
        tied: those ops in the order they run, with one piece each; else empty.
        copy: tensor whose copy this is, or -1.
        size: padded bytes.
        pieces: when which bytes of it are alive.
    """

    size: int
    pieces: tuple[Piece, ...]
    storage: int = -1
    workspace: int = -1
    copy: int = -1
    tied: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """What a set of decisions does to memory.

    Attributes:
        schedule: order and lifetimes.
        storages: who shares bytes with whom.
        buffers: the buffers of the arena.
        live: (steps,) live bytes at each step, padding included.
    """

    schedule: Schedule
    storages: Storages
    buffers: tuple[Buffer, ...]
    live: np.ndarray

    @property
    def peak(self) -> int:
        """The most bytes alive at one step: no packing of these buffers is lower."""
        return int(self.live.max(initial=0))

    @property
    def peak_step(self) -> int:
        """The first step at which the peak is reached."""
        return int(self.live.argmax()) if len(self.live) else 0

    def alive_at(self, step: int) -> list[Buffer]:
        """Buffers alive at a step, largest first."""
        alive = [b for b in self.buffers if any(p.start <= step < p.stop for p in b.pieces)]
        return sorted(alive, key=lambda buffer: -buffer.size)

    def problem(self, align: int) -> Problem:
        """The buffers as pure geometry."""
        first = np.cumsum([0, *(len(buffer.pieces) for buffer in self.buffers)])
        pieces = [piece for buffer in self.buffers for piece in buffer.pieces]
        return Problem.of_pieces(
            size=[buffer.size for buffer in self.buffers],
            first=first,
            start=[piece.start for piece in pieces],
            stop=[piece.stop for piece in pieces],
            lower=[piece.lower for piece in pieces],
            upper=[piece.upper for piece in pieces],
            align=align,
        )

    def hulls(self, align: int) -> Problem:
        """The buffers as whole objects: alive from their first to their last step."""
        lives = [(p.start, p.stop) for b in self.buffers for p in (_hull(b.pieces),)]
        return Problem.of(
            [start for start, _ in lives],
            [stop for _, stop in lives],
            [buffer.size for buffer in self.buffers],
            align=align,
        )


def _hull(pieces: Sequence[Piece]) -> Piece:
    start = min((piece.start for piece in pieces), default=0)
    return Piece(start, max((piece.stop for piece in pieces), default=start), 0, 0)


def simulate(
    index: Index,
    decisions: Decisions,
    policies: Policies,
    facts: Sequence[Facts],
    precedence: Precedence | None = None,
) -> Timeline:
    """Play a schedule and its aliases through: who is alive when, in bytes.

    Args:
        index: the graph.
        decisions: the order and the sharing wanted.
        policies: where inputs and outputs live; the alignment.
        facts: per op, what the registry and the target allow.
        precedence: the partial order that ops in lanes keep; by default ops run one by one.

    Raises:
        ModelError: the order breaks an edge of the graph.
    """
    schedule = make_schedule(index, decisions.order, policies)
    storages = build_storages(index, schedule, policies, facts, decisions.aliasing, precedence)
    return make_timeline(index, schedule, storages, policies, facts)


def make_timeline(
    index: Index,
    schedule: Schedule,
    storages: Storages,
    policies: Policies,
    facts: Sequence[Facts],
) -> Timeline:
    """The timeline of storages that are already decided."""
    buffers = _buffers(index, schedule, storages, policies, facts)
    live = np.zeros(schedule.steps + 1, dtype=np.int64)
    for buffer in buffers:
        for piece in buffer.pieces:
            live[piece.start] += piece.upper - piece.lower
            live[piece.stop] -= piece.upper - piece.lower
    return Timeline(schedule, storages, tuple(buffers), np.cumsum(live)[:-1])


def _buffers(
    index: Index,
    schedule: Schedule,
    storages: Storages,
    policies: Policies,
    facts: Sequence[Facts],
) -> list[Buffer]:
    buffers: list[Buffer] = []
    for storage, members in enumerate(storages.members):
        if members and not storages.external[storage]:
            pieces = storage_pieces(index, schedule, storages, storage)
            buffers.append(_padded(storage, pieces, policies.align))
    end = schedule.steps
    for tensor in schedule.copied:
        size = round_up(index.nbytes[tensor], policies.align)
        buffers.append(Buffer(size, (Piece(end - 1, end, 0, size),), copy=tensor))
    rooms: dict[int, list[tuple[int, Piece]]] = {}
    for step, op in enumerate(schedule.order):
        size = round_up(facts[op].workspace or 0, policies.align)
        if size and facts[op].room >= 0:
            rooms.setdefault(facts[op].room, []).append((op, Piece(step, step + 1, 0, size)))
        elif size:
            buffers.append(Buffer(size, (Piece(step, step + 1, 0, size),), workspace=op))
    return buffers + [_room(*zip(*users, strict=True)) for users in rooms.values()]


def _room(ops: tuple[int, ...], pieces: tuple[Piece, ...]) -> Buffer:
    """One place for the scratch of several ops."""
    size = max(piece.upper for piece in pieces)
    return Buffer(size, pieces, workspace=ops[0], tied=ops)


def _padded(storage: int, pieces: list[Piece], align: int) -> Buffer:
    """The storage as a buffer; what lies at its end takes the padding along."""
    extent = max(piece.upper for piece in pieces)
    size = round_up(extent, align)
    grown = tuple(Piece(p.start, p.stop, p.lower, size) if p.upper == extent else p for p in pieces)
    return Buffer(size, grown, storage=storage)
