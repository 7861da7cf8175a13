"""What ``inspect`` adds on demand: advice (``--lint``) and effective counts (``--sparsity``)."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis.cost.sparsity import Effective
from peakfold.analysis.lint.rules import Lint
from peakfold.printable import clean
from peakfold.reports.text.tables import counted, heading, listed, plain_table, tell_apart
from peakfold.units import format_bytes, format_count

_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Results of the analyses that were asked for; `None` = not asked for."""

    lints: tuple[Lint, ...] | None = None
    sparsity: Effective | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LintRecord:
    """One piece of advice.

    Attributes:
        saves_bytes: memory access of a run, or where the message says so bytes kept per token or
            stored; `None` where no bytes are saved.
    """

    rule: str
    ops: list[str]
    message: str
    saves_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseOpRecord:
    """One op with weights: dense MACs, and those that each kind of sparsity leaves."""

    name: str
    kind: str
    elements: int
    zeros: int
    macs: int
    unstructured_macs: int
    two_four_macs: int
    structured_macs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparsityRecord:
    """Dense and effective MACs of the model; `unread` ops count as dense."""

    elements: int
    zeros: int
    macs: int
    unstructured_macs: int
    two_four_macs: int
    structured_macs: int
    ops: list[SparseOpRecord]
    unread: list[str]


def lint_records(extras: Extras) -> list[LintRecord] | None:
    """Advice as JSON records."""
    if extras.lints is None:
        return None
    return [
        LintRecord(rule=x.rule, ops=list(x.ops), message=x.message, saves_bytes=x.saves_bytes)
        for x in extras.lints
    ]


def sparsity_record(extras: Extras) -> SparsityRecord | None:
    """Effective counts as a JSON record."""
    found = extras.sparsity
    if found is None:
        return None
    return SparsityRecord(
        elements=found.elements,
        zeros=found.zeros,
        macs=found.macs,
        unstructured_macs=found.unstructured,
        two_four_macs=found.two_four,
        structured_macs=found.structured,
        ops=[
            SparseOpRecord(
                name=op.name,
                kind=op.kind,
                elements=op.elements,
                zeros=op.zeros,
                macs=op.macs,
                unstructured_macs=op.unstructured,
                two_four_macs=op.two_four,
                structured_macs=op.structured,
            )
            for op in found.ops
        ],
        unread=list(found.unread),
    )


def extras_part(extras: Extras, width: int) -> list[RenderableType]:
    """Both as parts of the text report."""
    parts: list[RenderableType] = []
    if extras.sparsity is not None:
        parts += [*_sparsity(extras.sparsity, width), ""]
    if extras.lints is not None:
        parts += [*_advice(extras.lints), ""]
    return parts


def _sparsity(found: Effective, width: int) -> list[RenderableType]:
    share = found.zeros / found.elements if found.elements else 0.0
    title = "Dense and effective MACs: no weights are at hand"
    if found.elements:
        title = (
            f"Dense and effective MACs: {share:.1%} of {format_count(found.elements)} weights are 0"
        )
    rows = [
        ("(all)", found.macs, found.unstructured, found.two_four, found.structured, share),
        *(
            (op.name, op.macs, op.unstructured, op.two_four, op.structured, op.zeros / op.elements)
            for op in sorted(found.ops, key=lambda op: op.unstructured - op.macs)[:_SHOWN]
        ),
    ]
    columns = [
        ("op", "left"),
        ("dense", "right"),
        ("no zeros", "right"),
        ("2:4", "right"),
        ("structured", "right"),
        ("zeros", "right"),
    ]
    labels = tell_apart([name for name, *_ in rows], max(width - 66, 12))
    table = plain_table(
        columns,
        [
            (label, *(format_count(value) for value in values), f"{zeros:.1%}")
            for label, (_, *values, zeros) in zip(labels, rows, strict=True)
        ],
    )
    body: list[RenderableType] = [heading(title), table]
    if found.unread:
        body.append(Text(f"not read, counted as dense: {listed(found.unread)}"))
    return body


def _advice(lints: tuple[Lint, ...]) -> list[RenderableType]:
    if not lints:
        return [heading("Advice"), Text("none")]
    body: list[RenderableType] = [heading(f"Advice, {counted(len(lints), 'finding')}")]
    for lint in lints[: 2 * _SHOWN]:
        saved = "" if lint.saves_bytes is None else f" ({format_bytes(lint.saves_bytes)})"
        body.append(Text(f"- {lint.rule}{saved}: {clean(lint.message)}; {listed(lint.ops, 3)}"))
    if len(lints) > 2 * _SHOWN:
        body.append(Text(f"and {len(lints) - 2 * _SHOWN} more (--json lists all)"))
    return body
