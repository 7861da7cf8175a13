"""Records of counts without a model's numbers: ``inspect --op`` and ``inspect --formulas``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One form of a layer.

    Attributes:
        macs_formula: its multiply-accumulates in letters.
        ratio: its MACs over those of the standard form.
    """

    name: str
    macs_formula: str
    params: int
    macs: int
    flops: int
    bytes_moved: int
    intensity: float | None
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersDocument:
    """Output of ``inspect --op TEXT --json``.

    Attributes:
        missing: forms that this layer does not have, and why.
    """

    schema: str
    layer: str
    rows: list[LayerRow]
    missing: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaTerm:
    """``coefficient`` (an integer or a fraction, as text) times dimensions to their powers."""

    coefficient: str
    powers: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaRecord:
    """One total.

    Attributes:
        name: as in `totals` of ``inspect --json``.
        formula: as text; `None` for the reason that `why_not` says.
        lower_bound: whether ops are left out whose figure is not known.
    """

    name: str
    formula: str | None
    terms: list[FormulaTerm] | None
    lower_bound: bool
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulasDocument:
    """Output of ``inspect --formulas --json``.

    Attributes:
        dims: the dimensions that nobody bound.
        multiple_of: what numbers the formulas were made from and checked at are multiples of.
        points: numbers that each dimension took for the counts they are laid through.
        checked: further numbers, a list for each dimension, where counts agreed.
    """

    schema: str
    model: str
    format: str
    dims: list[str]
    multiple_of: int
    points: list[int]
    checked: list[list[int]]
    totals: list[FormulaRecord]
    notes: list[str]
