"""What `peakfold.inspect` and `cost` return: results whose `repr` is the report."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.analysis import Cost, OpCost, Total
from peakfold.reports.breakdown import Breakdown
from peakfold.reports.cost_rows import CostRow, cost_rows, selected, to_csv
from peakfold.reports.cost_tables import html_table, markdown_table
from peakfold.reports.cost_text import cost_text
from peakfold.reports.inspect_text import ModelFacts, TableChoice, inspect_text
from peakfold.reports.text import DEFAULT_WIDTH


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InspectReport:
    """Cost and memory by role and by op; printing it shows the report.

    Attributes:
        model: name, format and sizes.
        breakdown: bytes by role and op.
        cost: operations, memory access and parameters.
        unsupported: kinds without a row in the registry, and how often they occur.
        notes: what the front end could not understand.
    """

    model: ModelFacts
    breakdown: Breakdown
    cost: Cost
    unsupported: dict[str, int]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return self.to_text().rstrip()

    def _repr_html_(self) -> str:
        return html_table(self.cost, self.model.name)

    @property
    def complete(self) -> bool:
        """Whether every figure of every op is known."""
        return not self.unsupported and not self.cost.total().lower_bounds

    def to_text(
        self, *, width: int = DEFAULT_WIDTH, color: bool = False,
        choice: TableChoice | None = None,
    ) -> str:  # fmt: skip
        """The report for a terminal; `choice` says which rows the cost table has."""
        return inspect_text(
            self.model, self.breakdown, self.cost, self.unsupported, self.notes,
            choice or TableChoice(), width=width, color=color,
        )  # fmt: skip

    def to_json(self, *, rate: float = 1.0) -> str:
        """The document that ``peakfold inspect --json`` prints."""
        from peakfold.reports.inspect_document import inspect_document
        from peakfold.reports.payload import to_json

        return to_json(
            inspect_document(
                self.model, self.breakdown, self.cost, self.unsupported, self.notes, rate
            )
        )

    def rows(self, choice: TableChoice | None = None) -> list[CostRow]:
        """The rows of the cost table."""
        choice = choice or TableChoice(top=None)
        return selected(cost_rows(self.cost, choice.by), choice.sort, choice.top)

    def to_csv(self, choice: TableChoice | None = None) -> str:
        """The cost table as CSV, every column."""
        return to_csv(self.rows(choice))

    def to_markdown(self, choice: TableChoice | None = None) -> str:
        """The headline and the cost table as Markdown."""
        choice = choice or TableChoice()
        return markdown_table(self.cost, self.model.name, self.rows(choice), choice.by)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CostReport:
    """What a model costs; printing it shows the totals and the costliest ops.

    Attributes:
        cost: the records.
        name: what reports call the model.
    """

    cost: Cost
    name: str = ""

    def total(self) -> Total:
        """Sums over the whole model."""
        return self.cost.total()

    def by_op(self) -> tuple[OpCost, ...]:
        """Every op, in the graph's order."""
        return self.cost.by_op()

    def by_scope(self) -> dict[str, Total]:
        """Sums per scope, each with what it contains; ``""`` is the whole model."""
        return self.cost.by_scope()

    def by_kind(self) -> dict[str, Total]:
        """Sums per op kind."""
        return self.cost.by_kind()

    def unsupported(self) -> dict[str, int]:
        """Kinds whose cost is not wholly known, and how often they occur."""
        return self.cost.unsupported()

    def __repr__(self) -> str:
        return cost_text(self.cost, self.name).rstrip()

    def _repr_html_(self) -> str:
        return html_table(self.cost, self.name)
