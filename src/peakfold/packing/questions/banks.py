"""Several banks of memory: fast and small first, the rest spilled at a price."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peakfold.arguments import real, shown, whole
from peakfold.errors import DoesNotFit, UsageError
from peakfold.packing.heuristics.orders import lifetime
from peakfold.packing.heuristics.sections import sections
from peakfold.packing.problem import Int64, Problem, Search, need_problem
from peakfold.packing.questions.infeasible import subproblem
from peakfold.packing.solve import CapacityTooSmall, pack
from peakfold.units import parse_size

_BANK = re.compile(r"([^=@,\s]+)(?:=([^=@,]+))?(?:@([0-9]{1,9}(?:\.[0-9]{1,9})?))?")


@dataclass(frozen=True, slots=True)
class Bank:
    """One memory.

    Attributes:
        name: for messages.
        capacity: bytes; None = as much as needed.
        cost: price of one unit of a buffer's traffic that is served from here.
    """

    name: str
    capacity: int | None
    cost: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UsageError(f"the name of a bank is no text: {shown(self.name)}")
        if self.capacity is not None:
            whole(self.capacity, f"the capacity of bank {self.name!r}")
        real(self.cost, f"the cost of bank {self.name!r}")


def parse_banks(text: str) -> tuple[Bank, ...]:
    """Banks as a user writes them: ``NAME[=SIZE][@COST]``, separated by commas.

    Without a size a bank takes what comes; without a cost it is the bank's place in the list,
    so that the first is the cheapest.

    Raises:
        UsageError: a bank that cannot be read, or a name given twice.

    Example:
        >>> parse_banks("SRAM=256KiB,DRAM@10")
        (Bank(name='SRAM', capacity=262144, cost=1.0), Bank(name='DRAM', capacity=None, cost=10.0))
    """
    found: list[Bank] = []
    for place, word in enumerate(text.split(","), start=1):
        match = _BANK.fullmatch(word.strip())
        if match is None:
            raise UsageError(f"{word!r} is no bank", hint="write NAME=SIZE@COST, as SRAM=256KiB@1")
        name, size, cost = match.groups()
        if any(bank.name == name for bank in found):
            raise UsageError(f"bank {name!r} is given twice")
        found.append(Bank(name, None if size is None else parse_size(size), float(cost or place)))
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where every buffer lives.

    Attributes:
        bank: (n,) index of the bank.
        offsets: (n,) byte offset inside that bank.
        heights: bytes used of each bank.
        cost: sum of traffic times the cost of its bank.
        search: what ended the search of some bank, if anything did.
    """

    bank: Int64
    offsets: Int64
    heights: tuple[int, ...]
    cost: float
    search: Search = "complete"


def pack_banks(
    problem: Problem,
    banks: Sequence[Bank],
    *,
    traffic: ArrayLike | None = None,
    time_limit: float = 5.0,
    seed: int = 0,
    on_compile: Callable[[], None] | None = None,
) -> Placement:
    """Spread buffers over banks so that the cost is small, then pack each bank.

    Cheapest bank first. Buffers are admitted by traffic per byte and step, as long as the load
    of every section stays within the capacity (the rule of a fractional knapsack); what the
    packer cannot arrange is then given up again, least traffic first. A heuristic: it promises
    legal placements, not the least cost.

    Args:
        problem: the buffers.
        banks: at least one; the last ones take what is left.
        traffic: (n,) bytes read and written of each buffer; its size if not given.
        time_limit: seconds for the whole.
        seed: of the randomised parts.
        on_compile: as for `pack`.

    Raises:
        UsageError: no bank, or `traffic` of another length.
        DoesNotFit: the banks together are too small for this heuristic, or for a pin.

    Example:
        >>> p = Problem.of([0, 0, 0], [2, 2, 2], [16, 8, 64])
        >>> banks = [Bank("sram", 24, 1.0), Bank("dram", None, 10.0)]
        >>> found = pack_banks(p, banks, traffic=[100, 100, 10])
        >>> found.bank.tolist(), found.heights, found.cost
        ([0, 0, 1], (24, 64), 300.0)
    """
    need_problem(problem)
    if not isinstance(banks, Sequence) or not all(isinstance(bank, Bank) for bank in banks):
        raise UsageError(f"banks are no list of Bank: {shown(banks)}")
    if not banks:
        raise UsageError("no bank is given")
    moved = problem.size if traffic is None else _traffic(traffic, problem.buffers)
    time_limit = real(time_limit, "time_limit", endless=True)
    worth = moved / np.maximum(problem.size * np.maximum(lifetime(problem), 1), 1)
    bank = np.full(problem.buffers, -1, dtype=np.int64)
    offsets = np.zeros(problem.buffers, dtype=np.int64)
    heights = [0] * len(banks)
    effort = {"seed": seed, "on_compile": on_compile}
    search: Search = "complete"
    share = time_limit / len(banks)
    for number in sorted(range(len(banks)), key=lambda i: (banks[i].cost, i)):
        left = np.flatnonzero(bank < 0)
        inside, where, found = _fill(problem, left, worth, banks[number].capacity, share, effort)
        search = search if found == "complete" else found
        bank[inside], offsets[inside] = number, where
        part = subproblem(problem, inside)
        heights[number] = part.height(where)
    if (bank < 0).any():
        first, others = int(np.argmax(bank < 0)), int((bank < 0).sum()) - 1
        raise DoesNotFit(
            f"no room is found for buffer {problem.name(first)!r}"
            + (f" and {others} more" if others else ""),
            where="banks",
            hint="give the last bank no capacity",
        )
    cost = float(sum(moved[b] * banks[bank[b]].cost for b in range(problem.buffers)))
    return Placement(bank, offsets, tuple(heights), cost, search)


def _traffic(given: ArrayLike, count: int) -> NDArray[np.float64]:
    try:
        moved = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"traffic is no column of numbers: {shown(given)}") from None
    if moved.shape != (count,):
        raise UsageError(f"traffic of {count} buffers expected, got {moved.shape}")
    if not (np.isfinite(moved) & (moved >= 0)).all():
        raise UsageError("traffic must hold finite numbers from 0 on")
    return moved


def _fill(
    problem: Problem,
    left: Int64,
    worth: NDArray[np.float64],
    capacity: int | None,
    seconds: float,
    effort: dict[str, Any],
) -> tuple[Int64, Int64, Search]:
    """Buffers for one bank, their offsets in it, and what ended the search."""
    search: Search = "complete"
    order = left[np.argsort(-worth[left], kind="stable")]
    if capacity is None:
        chosen = np.sort(order)
        found = pack(subproblem(problem, chosen), time_limit=seconds, **effort)
        return chosen, found.offsets, found.search
    admitted = _admit(problem, order, capacity)
    tries = max(len(admitted), 1)
    while True:
        chosen = np.sort(np.array(admitted, dtype=np.int64))
        part = subproblem(problem, chosen)
        try:
            found = pack(
                part, capacity=capacity, minimize=False, time_limit=seconds / tries, **effort
            )
            if found.height <= capacity:
                return chosen, found.offsets, search
            search = found.search
        except CapacityTooSmall:
            pass
        # Give up a twentieth of the least worthy ones at a time.
        admitted = admitted[: len(admitted) - max(len(admitted) // 20, 1)]


def _admit(problem: Problem, order: Int64, capacity: int) -> list[int]:
    """In this order, whoever keeps the load of all its sections within the capacity."""
    found = sections(problem)
    load = np.zeros(found.count, dtype=np.int64)
    admitted = []
    for b in order.tolist():
        pieces = range(int(problem.first[b]), int(problem.first[b + 1]))
        spans = [
            (int(found.first[p]), int(found.last[p]), int(problem.upper[p] - problem.lower[p]))
            for p in pieces
        ]
        if all((load[a:z] + height <= capacity).all() for a, z, height in spans):
            for a, z, height in spans:
                load[a:z] += height
            admitted.append(b)
    return admitted
