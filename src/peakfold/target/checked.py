"""Which figures of a GPU a real card has confirmed: rows that ``make check-cuda`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

FILE = "cuda_checked.json"
SCHEMA = "peakfold.cuda-checked/1"
FIGURES = ("allocated", "reserved", "expandable reserved", "libraries", "context")
"""What reports tell of a GPU's memory; rows of other figures are kept, and no report waits for
them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of one case, predicted and measured.

    Attributes:
        figure: of `FIGURES`, or another.
        case: what ran.
        predicted, measured: bytes; of an attention kernel, tensors as large as the scores.
        holds: within the tolerance of the check.
    """

    figure: str
    case: str
    predicted: int
    measured: int
    holds: bool


@dataclass(frozen=True, slots=True)
class Card:
    """What one card said.

    Attributes:
        card: its name.
        torch, cuda: versions that ran.
        rows: in the order of the checks.
    """

    card: str
    torch: str
    cuda: str
    rows: tuple[Row, ...]


@cache
def checked() -> tuple[Card, ...]:
    """The cards of the data file."""
    text = resources.files("peakfold.target").joinpath(FILE).read_text("utf-8")
    return tuple(
        Card(c["card"], c["torch"], c["cuda"], tuple(Row(**row) for row in c["rows"]))
        for c in json.loads(text)["cards"]
    )


def unverified(cards: Iterable[Card] | None = None) -> tuple[str, ...]:
    """The figures that no card has confirmed, or that one has refuted.

    Args:
        cards: in place of those of the data file.

    Example:
        >>> rows = Row("context", "mlp", 8, 8, True), Row("reserved", "mlp", 4, 9, False)
        >>> unverified([Card("a card", "2.13", "12.8", rows)])
        ('allocated', 'reserved', 'expandable reserved', 'libraries')
    """
    rows = [row for card in (checked() if cards is None else cards) for row in card.rows]
    good = {row.figure for row in rows} - {row.figure for row in rows if not row.holds}
    return tuple(figure for figure in FIGURES if figure not in good)
