"""What `peakfold.inspect` and `cost` return: results whose `repr` is the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peakfold.analysis import Cost, OpCost, Total
from peakfold.analysis.cost.breakdown import Breakdown
from peakfold.errors import UsageError
from peakfold.reports.records.cost_rows import CostRow, cost_rows, selected, to_csv
from peakfold.reports.records.extras import Extras
from peakfold.reports.text.cost import cost_text
from peakfold.reports.text.cost_tables import html_table, markdown_table
from peakfold.reports.text.inspect import ModelFacts, TableChoice, inspect_text
from peakfold.reports.text.tables import DEFAULT_WIDTH

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peakfold.analysis.time.timing import Timing
    from peakfold.reports.pictures.roofline_plot import RooflinePlot


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InspectReport:
    """Cost and memory by role and by op; printing it shows the report.

    Attributes:
        model: name, format and sizes.
        breakdown: bytes by role and op.
        cost: operations, memory access and parameters.
        unsupported: kinds without a row in the registry, and how often they occur.
        notes: what the front end could not understand.
        doubts: where the model contradicts itself, or states a size that is only a bound.
        timing: time on the device that was named.
        measured_s: seconds of a run, as the caller measured them.
        batches: batch sizes to tell the bound at.
        extras: advice and effective counts, where they were asked for.
    """

    model: ModelFacts
    breakdown: Breakdown
    cost: Cost
    unsupported: dict[str, int]
    notes: tuple[str, ...]
    timing: Timing | None = None
    measured_s: float | None = None
    batches: tuple[int, ...] = ()
    extras: Extras = field(default_factory=Extras)
    doubts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.to_text().rstrip()

    def _repr_html_(self) -> str:
        return html_table(self.cost, self.model.name)

    @property
    def complete(self) -> bool:
        """Whether every figure of every op is known, and nothing is doubtful."""
        known = not self.unsupported and not self.cost.total().lower_bounds
        return known and not self.doubts and not self.breakdown.opaque

    def to_text(
        self,
        *,
        width: int = DEFAULT_WIDTH,
        color: bool = False,
        choice: TableChoice | None = None,
    ) -> str:
        """The report for a terminal; `choice` says which rows the cost table has."""
        choice = choice or TableChoice()
        return inspect_text(
            self.model,
            self.breakdown,
            self.cost,
            self.unsupported,
            self.notes,
            choice,
            width=width,
            color=color,
            time=self._time(width, choice.top),
            extras=self.extras,
        )

    def _time(self, width: int, top: int | None) -> list[RenderableType]:
        if self.timing is None:
            return []
        from peakfold.reports.text.timing import timing_part

        part = timing_part(
            self.timing,
            width=width,
            top=top,
            measured_s=self.measured_s,
            batches=self.batches,
            one_trip=self.cost.open_loops,
        )
        return [*part, ""]

    def to_json(self, *, rate: float = 1.0) -> str:
        """The document that ``peakfold inspect --json`` prints."""
        from peakfold.reports.records import to_json
        from peakfold.reports.records.inspect_document import inspect_document

        return to_json(
            inspect_document(
                self.model,
                self.breakdown,
                self.cost,
                self.unsupported,
                self.notes,
                rate,
                self.timing,
                self.measured_s,
                self.batches,
                self.extras,
            )
        )

    def to_roofline_svg(self) -> str:
        """The roofline plot: every op a point.

        Raises:
            UsageError: no device was named, or its bandwidth or peaks are not known.
        """
        from peakfold.reports.pictures.roofline_svg import svg_roofline

        return svg_roofline(self._plot())

    def to_roofline_png(self) -> bytes:
        """The same as a PNG.

        Raises:
            BackendMissing: matplotlib is not installed.
            UsageError: as `to_roofline_svg`.
        """
        from peakfold.reports.pictures.roofline_png import png_roofline

        return png_roofline(self._plot())

    def _plot(self) -> RooflinePlot:
        from peakfold.reports.pictures.roofline_plot import roofline_plot

        if self.timing is None:
            raise UsageError("a roofline is that of a device", hint="name one: --device t4")
        fitted = self.timing.estimate is not None
        return roofline_plot(
            self.timing.roofline,
            self.timing.device,
            title=f"{self.model.name or 'graph'} on {self.timing.device.title}",
            times=self.timing.task_seconds if fitted else None,
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
