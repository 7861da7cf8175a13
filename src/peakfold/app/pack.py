"""What `peakfold pack` answers: one document for three questions, and the same for people.

`decide` packs one block and judges a capacity, `spread` fills several banks, `stay` keeps near
an old packing.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
from rich.text import Text

from peakfold.errors import ModelError
from peakfold.packing.csv_format import Table
from peakfold.packing.problem import FREE, Int64, Problem
from peakfold.packing.questions.banks import pack_banks, parse_banks
from peakfold.packing.questions.capacity import INFEASIBLE, SOLVED, TIMEOUT, Verdict, judge_capacity
from peakfold.packing.questions.infeasible import Culprits
from peakfold.packing.questions.replan import replan
from peakfold.packing.solve import CapacityTooSmall
from peakfold.printable import shorten
from peakfold.reports.records import BankRecord, CulpritsRecord, PackDocument, schema_name
from peakfold.reports.text.tables import DEFAULT_WIDTH, render
from peakfold.units import format_bytes


@dataclass(frozen=True, slots=True, eq=False)
class PackAnswer:
    """A document, and what a file of offsets needs.

    Attributes:
        document: output of ``pack --json``.
        offsets: (n,) byte offsets, None without a packing.
        banks: (n,) name of each buffer's bank, None with one block.
    """

    document: PackDocument
    offsets: Int64 | None
    banks: list[str] | None = None


def decide(problem: Problem, **search: Any) -> PackAnswer:  # noqa: ANN401 - passed on
    """One block; keyword arguments of `judge_capacity`."""
    found = judge_capacity(problem, **search)
    offsets = None if found.packing is None else found.packing.offsets
    return PackAnswer(_document(problem, found), offsets)


def spread(problem: Problem, banks: str, **effort: Any) -> PackAnswer:  # noqa: ANN401 - passed on
    """Several banks, as `parse_banks` reads them; more keyword arguments of `pack_banks`.

    Raises:
        UsageError: banks that cannot be read.
        DoesNotFit: no room found for some buffer.
    """
    began = monotonic()
    given = parse_banks(banks)
    found = pack_banks(problem, given, **effort)
    counts = np.bincount(found.bank, minlength=len(given)).tolist()
    rows = [
        BankRecord(
            name=bank.name,
            capacity_bytes=bank.capacity,
            cost=bank.cost,
            height_bytes=height,
            buffers=count,
        )
        for bank, height, count in zip(given, found.heights, counts, strict=True)
    ]
    document = PackDocument(
        schema=schema_name("pack"), buffers=problem.buffers, capacity_bytes=None,
        height_bytes=None, lower_bound_bytes=None, gap=None, optimal=False, status=SOLVED,
        missing_bytes=0, strategy="banks", seconds=round(monotonic() - began, 3), banks=rows,
        cost=found.cost, search=found.search,
    )  # fmt: skip
    return PackAnswer(document, found.offsets, [given[b].name for b in found.bank.tolist()])


def stay(
    problem: Problem,
    old: Table,
    *,
    capacity: int | None,
    max_moves: int | None,
    **effort: Any,  # noqa: ANN401 - passed on
) -> PackAnswer:
    """Near an old packing, buffers matched by id; `timeout` if that takes too many moves.

    More keyword arguments are those of `replan`.

    Raises:
        ModelError: the old file holds no offsets.
        UsageError: pins that contradict each other.
    """
    began = monotonic()
    if not (old.problem.fixed != FREE).any():
        raise ModelError("holds no offsets", where="old packing", hint="its offset column is empty")
    before = dict(zip(old.problem.names, old.problem.fixed.tolist(), strict=True))
    past = np.array([before.get(problem.name(b), FREE) for b in range(problem.buffers)], np.int64)
    try:
        found = replan(problem, past, capacity=capacity, max_moves=max_moves, **effort)
    except CapacityTooSmall as error:
        missing, seconds = error.bound - error.capacity, monotonic() - began
        proof = Verdict(INFEASIBLE, None, error.bound, capacity, missing, None, seconds)
        return PackAnswer(_document(problem, proof), None)
    packing, moved = found.packing, np.flatnonzero(found.moved).tolist()
    missing = 0 if capacity is None else max(packing.height - capacity, 0)
    few = max_moves is None or len(moved) <= max_moves
    verdict = Verdict(
        SOLVED if few and not missing else TIMEOUT,
        packing,
        packing.lower_bound,
        capacity,
        missing,
        None,
        monotonic() - began,
    )
    names = [problem.name(b) for b in moved]
    return PackAnswer(_document(problem, verdict, names), packing.offsets)


def _document(problem: Problem, found: Verdict, moved: list[str] | None = None) -> PackDocument:
    best = found.packing
    return PackDocument(
        schema=schema_name("pack"),
        buffers=problem.buffers,
        capacity_bytes=found.capacity,
        height_bytes=None if best is None else best.height,
        lower_bound_bytes=found.bound,
        gap=found.gap,
        optimal=best is not None and best.optimal,
        status=found.status,
        missing_bytes=found.missing,
        strategy=None if best is None else best.strategy,
        seconds=round(found.seconds, 3),
        culprits=_culprits(problem, found.culprits),
        moved=moved,
        search="complete" if best is None else best.search,
    )


def _culprits(problem: Problem, found: Culprits | None) -> CulpritsRecord | None:
    if found is None:
        return None
    return CulpritsRecord(
        buffers=[problem.name(b) for b in found.buffers],
        bound_bytes=found.bound,
        irreducible=found.irreducible,
        reason=found.reason,
        time=found.time,
    )


def pack_text(answer: PackDocument, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
    """The document for people."""
    lines = [f"{answer.buffers} buffers"]
    if answer.height_bytes is not None:
        proof = "proven minimal" if answer.optimal else f"{answer.gap:.2%} above the bound"
        lines.append(f"height       {_size(answer.height_bytes)}, {proof}")
    if answer.lower_bound_bytes is not None:
        lines.append(f"lower bound  {_size(answer.lower_bound_bytes)}")
    if answer.capacity_bytes is not None:
        lines.append(f"capacity     {_size(answer.capacity_bytes)}: {_verdict(answer)}")
    if answer.moved is not None:
        who = f": {', '.join(map(shorten, answer.moved))}" if answer.moved else ""
        lines.append(f"moved        {len(answer.moved)} buffers{who}")
    for bank in answer.banks or []:
        room = "" if bank.capacity_bytes is None else f" of {format_bytes(bank.capacity_bytes)}"
        name = f"{shorten(bank.name)}: "
        lines.append(f"{name}{_size(bank.height_bytes)}{room}, {bank.buffers} buffers")
    if answer.cost is not None:
        lines.append(f"cost         {answer.cost:.15g}")
    if answer.culprits is not None:
        kind = "irreducible" if answer.culprits.irreducible else "not fully reduced"
        who = ", ".join(map(shorten, answer.culprits.buffers))
        lines.append(f"cannot fit together ({len(answer.culprits.buffers)}, {kind}): {who}")
    if answer.search != "complete":
        lines.append(f"search ended by the {answer.search}: with more it may be less")
    lines.append(f"{answer.strategy or answer.status}, {answer.seconds:.2f} s")
    return render(map(Text, lines), width=width, color=color)


def pack_miss(answer: PackDocument) -> str | None:
    """Why the exit code is not 0, in a sentence; `None` when it is."""
    if answer.status == INFEASIBLE:
        return (
            f"does not fit: proven that {_size(answer.lower_bound_bytes or 0)} or more are needed, "
            f"the capacity is {_size(answer.capacity_bytes or 0)}"
        )
    if answer.status != TIMEOUT:
        return None
    if answer.missing_bytes:
        return (
            f"not decided: the best packing found is {answer.missing_bytes} bytes above the "
            "capacity (a longer --time-limit may help)"
        )
    return f"{len(answer.moved or ())} buffers must move, more than --max-moves allows"


def _size(count: int) -> str:
    return f"{format_bytes(count)} ({count} bytes)"


def _verdict(answer: PackDocument) -> str:
    if answer.status == INFEASIBLE:
        return f"cannot fit, {answer.missing_bytes} bytes missing at least"
    if answer.missing_bytes:
        return f"unknown, the best found is {answer.missing_bytes} bytes above"
    return "fits"
