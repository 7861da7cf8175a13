"""Totals of a model as formulas in the dimensions that nobody bound: ``inspect --formulas``.

The model is read and counted at a few numbers, an exact polynomial is laid through the counts,
and more counts at larger numbers must agree with it, or no formula is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis import CostOptions, Total, cost_of
from peakfold.analysis.cost.formulas import Polynomial, grid, interpolate
from peakfold.errors import ModelError, UsageError
from peakfold.frontends import Bindings, load
from peakfold.ir import unbound
from peakfold.printable import clean
from peakfold.reports.records import FormulaRecord, FormulasDocument, FormulaTerm, schema_name
from peakfold.reports.text.tables import plain_table, render
from peakfold.transform import Fold

CHECKS = ((7, 5), (12, 9))
"""Where the formula is checked: a number for each dimension."""
FAR = (257, 130)
"""The same, for counts that are capped (rows of a table), unless the model refuses that size."""
DEGREE = 3
STAGES = ((1, (1, 2, 3, 4)), (1, (2, 3, 4, 5)), (32, (1, 2, 3, 4)))
"""Units, and where counts are taken in them, until all totals have a formula: a transposition of
one row is a view, and image networks take no small sizes and round the odd ones."""
MOST = 2
"""So many dimensions at most: the counts are points to the power of it."""
_FIGURES: dict[str, tuple[str, Callable[[Total], int | None], tuple[str, ...]]] = {
    "params": ("parameters", lambda total: total.params, ("params",)),
    "macs": ("MACs", lambda total: total.macs, ("macs",)),
    "flops": ("FLOPs", lambda total: total.flops, ("macs", "other_ops")),
    "bytes_moved": ("memory access, bytes", lambda total: total.bytes_moved, ("read", "written")),
    "fused_bytes_moved": (
        "memory access fused, bytes",
        lambda total: total.figures.fused_bytes,
        ("fused_read", "fused_written"),
    ),
    "activation_elements": (
        "activation elements",
        lambda total: total.figures.elements,
        ("elements",),
    ),
}


def formulas(
    path: str, bindings: Bindings, options: CostOptions, *, fold: bool = True
) -> FormulasDocument:
    """The totals of a model file in terms of its unbound dimensions.

    Args:
        path: a model file.
        bindings: numbers for the dimensions that stay what they are.
        options: how to count.
        fold: as in `inspect`.

    Raises:
        UsageError: every dimension is a number, or too many are none.
        ModelError: the model cannot be read at any of the numbers that are tried.
    """
    graph = load(path, bindings).graph
    dims = unbound(graph)
    if not dims:
        raise UsageError("every dimension is a number: there is nothing to give formulas in")
    if len(dims) > MOST:
        hint = "bind the others: " + " ".join(f"--dim {name}=1" for name in dims[MOST:])
        raise UsageError(f"formulas in {len(dims)} dimensions ({', '.join(dims)})", hint=hint)

    def count(values: Sequence[int]) -> Total:
        more = Bindings({**bindings.dims, **dict(zip(dims, values, strict=True))}, bindings.shapes)
        loaded = load(path, more).graph
        return cost_of(Fold()(loaded) if fold else loaded, options, original=loaded).total()

    best = _best(dims, count)
    return FormulasDocument(
        schema=schema_name("formulas"),
        model=Path(path).name,
        format=graph.source or "pf",
        dims=list(dims),
        multiple_of=best.step,
        points=list(best.points),
        checked=[list(check) for check in best.checks],
        totals=best.records,
        notes=list(graph.notes),
    )


@dataclass(frozen=True, slots=True)
class _Stage:
    """What counts at some points and checks tell."""

    step: int
    points: tuple[int, ...]
    checks: tuple[tuple[int, ...], ...]
    records: list[FormulaRecord]

    @property
    def told(self) -> int:
        return sum(record.formula is not None for record in self.records)


def _best(dims: tuple[str, ...], count: Callable[[Sequence[int]], Total]) -> _Stage:
    """The stage that tells most."""
    best: _Stage | None = None
    counted: dict[tuple[int, ...], Total] = {}
    refused: ModelError | None = None
    many = len(dims)
    for step, points in STAGES:
        checks = tuple(tuple(step * n for n in check[:many]) for check in (*CHECKS, FAR))
        taken = tuple(step * point for point in points)
        try:
            for values in (*grid(taken, many), *checks):
                counted[values] = counted.get(values) or count(values)
        except ModelError as error:
            refused = error
            if checks[-2] not in counted:
                continue
            checks = checks[:-1]
        records = [_record(name, dims, taken, checks, counted) for name in _FIGURES]
        stage = _Stage(step, taken, checks, records)
        if best is None or stage.told > best.told:
            best = stage
        if stage.told == len(_FIGURES):
            break
    if best is None:
        raise refused or ModelError("no formula could be made")
    return best


def _record(
    name: str,
    dims: tuple[str, ...],
    points: Sequence[int],
    checks: Sequence[tuple[int, ...]],
    counted: Mapping[tuple[int, ...], Total],
) -> FormulaRecord:
    _, figure, parts = _FIGURES[name]
    used = {at: counted[at] for at in (*grid(points, len(dims)), *checks)}
    lower = any(part in total.lower_bounds for total in used.values() for part in parts)
    values = {at: figure(total) for at, total in used.items()}
    known = {at: value for at, value in values.items() if value is not None}
    found: Polynomial | None = None
    why_not = "not known"
    if len(known) == len(values):
        why_not = ""
        found = interpolate(dims, points, [known[at] for at in grid(points, len(dims))])
        if any(found.at(at) != known[at] for at in checks):
            found, why_not = None, f"no polynomial of degree {DEGREE} or less agrees"
    terms = (
        None
        if found is None
        else [
            FormulaTerm(
                coefficient=str(factor),
                powers={d: p for d, p in zip(dims, powers, strict=True) if p},
            )
            for powers, factor in found.terms.items()
        ]
    )
    text = None if found is None else str(found)
    return FormulaRecord(name=name, formula=text, terms=terms, lower_bound=lower, why_not=why_not)


def formulas_text(document: FormulasDocument, *, width: int, color: bool) -> str:
    """The formulas as a table, with where they were checked."""
    rows = [
        [Text(_FIGURES[row.name][0]), Text(_cell(row), "bold" if row.formula else "")]
        for row in document.totals
    ]
    table = plain_table([("totals", "left"), ("", "left")], rows)
    table.columns[1].no_wrap, table.columns[1].overflow = False, "fold"
    dims = ", ".join(document.dims)
    checks = "; ".join(", ".join(map(str, check)) for check in document.checked)
    title = Text(clean(document.model), "bold")
    title.append(clean(f"  {document.format}, {dims} not bound"), "not bold")
    first, unit = document.points[0], document.multiple_of
    only = f", for multiples of {unit}," if unit > 1 else f", from {first} on," if first > 1 else ""
    said = f"Polynomials{only} through the counts at {', '.join(map(str, document.points))}"
    said += f"; equal to the counts at {clean(dims)} = {checks}."
    if not any(row.formula for row in document.totals if row.name != "params"):
        said = f"Bind {clean(dims)}: the counts at {', '.join(map(str, document.points))} and "
        said += f"{checks} lie on no such polynomial."
    bind = " ".join(f"--dim {name}=N" for name in document.dims)
    body: list[RenderableType] = [
        title,
        "",
        table,
        "",
        Text(said),
        *(Text(clean(note)) for note in document.notes),
        Text(f"Next: peakfold inspect MODEL {clean(bind)} tells everything at a number.", "dim"),
    ]
    return render(body, width=width, color=color)


def _cell(row: FormulaRecord) -> str:
    if row.formula is None:
        return row.why_not
    return clean(f">= {row.formula}" if row.lower_bound else row.formula)
