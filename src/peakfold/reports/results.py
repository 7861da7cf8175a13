"""What `peakfold.plan`, `inspect` and `verify` return: results whose `repr` is the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from peakfold.analysis import Cost, OpCost, Total
from peakfold.planning import Plan, PlanResult, Summary, encode_plan
from peakfold.reports import documents, terminal
from peakfold.reports.breakdown import Breakdown
from peakfold.reports.cost_rows import CostRow, cost_rows, selected, to_csv
from peakfold.reports.cost_tables import html_table, markdown_table
from peakfold.reports.cost_text import cost_text
from peakfold.reports.files import write_files
from peakfold.reports.inspect_document import inspect_document
from peakfold.reports.payload import VerifyDocument, to_json
from peakfold.reports.text import DEFAULT_WIDTH


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlanReport:
    """A plan with everything learnt on the way; printing it shows the report.

    Attributes:
        result: the planner's result.
        name: what reports call the model.
    """

    result: PlanResult
    name: str = ""

    @property
    def plan(self) -> Plan:
        """The artefact."""
        return self.result.plan

    @property
    def summary(self) -> Summary:
        """Every figure by its contract name."""
        return self.result.summary

    def __repr__(self) -> str:
        return self.to_text().rstrip()

    def to_text(self, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
        """The report for a terminal of `width` characters."""
        return terminal.plan_text(self.result, name=self.name, width=width, color=color)

    def to_json(self) -> str:
        """The document that ``peakfold plan --json`` prints."""
        return to_json(documents.plan_document(self.result))

    def to_svg(self) -> str:
        """The 2-D map, before and after."""
        from peakfold.reports.svg import svg_map

        return svg_map(self.result, self.name)

    def to_png(self) -> bytes:
        """The 2-D map as a PNG.

        Raises:
            BackendMissing: matplotlib is not installed.
        """
        from peakfold.reports.png import png_map

        return png_map(self.result, self.name)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the plan as JSON.

        Raises:
            UsageError: the file exists (without `force`) or cannot be written.
        """
        write_files({Path(path): encode_plan(self.plan)}, force=force)


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

    model: terminal.ModelFacts
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
        choice: terminal.TableChoice | None = None,
    ) -> str:  # fmt: skip
        """The report for a terminal; `choice` says which rows the cost table has."""
        return terminal.inspect_text(
            self.model, self.breakdown, self.cost, self.unsupported, self.notes,
            choice or terminal.TableChoice(), width=width, color=color,
        )  # fmt: skip

    def to_json(self, *, rate: float = 1.0) -> str:
        """The document that ``peakfold inspect --json`` prints."""
        return to_json(
            inspect_document(
                self.model, self.breakdown, self.cost, self.unsupported, self.notes, rate
            )
        )

    def rows(self, choice: terminal.TableChoice | None = None) -> list[CostRow]:
        """The rows of the cost table."""
        choice = choice or terminal.TableChoice(top=None)
        return selected(cost_rows(self.cost, choice.by), choice.sort, choice.top)

    def to_csv(self, choice: terminal.TableChoice | None = None) -> str:
        """The cost table as CSV, every column."""
        return to_csv(self.rows(choice))

    def to_markdown(self, choice: terminal.TableChoice | None = None) -> str:
        """The headline and the cost table as Markdown."""
        choice = choice or terminal.TableChoice()
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VerifyReport:
    """What the judges said; true when every check passed.

    Attributes:
        document: the checks.
    """

    document: VerifyDocument

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return self.document.ok

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return self.to_text().rstrip()

    def to_text(self, *, width: int = DEFAULT_WIDTH, color: bool = False) -> str:
        """One line a check."""
        return terminal.verify_text(self.document, width=width, color=color)

    def to_json(self) -> str:
        """The document that ``peakfold verify --json`` prints."""
        return to_json(self.document)
