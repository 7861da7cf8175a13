"""What `peakfold.plan`, `inspect` and `verify` return: results whose `repr` is the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from peakfold.arguments import path as need_path
from peakfold.planning import Plan, PlanResult, Summary, encode_plan
from peakfold.reports.files import write_files
from peakfold.reports.records import VerifyDocument, documents, to_json
from peakfold.reports.text import verbs as terminal
from peakfold.reports.text.tables import DEFAULT_WIDTH


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlanReport:
    """A plan with everything learnt on the way; printing it shows the report.

    Attributes:
        result: the planner's result.
        name: what reports call the model.
        advice: what else to tell.
    """

    result: PlanResult
    name: str = ""
    advice: tuple[str, ...] = ()

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
        return terminal.plan_text(
            self.result, name=self.name, width=width, color=color, advice=self.advice
        )

    def to_json(self) -> str:
        """The document that ``peakfold plan --json`` prints."""
        return to_json(documents.plan_document(self.result, self.advice))

    def to_svg(self) -> str:
        """The 2-D map, before and after."""
        from peakfold.reports.pictures.memory_svg import svg_map

        return svg_map(self.result, self.name)

    def to_png(self) -> bytes:
        """The 2-D map as a PNG.

        Raises:
            BackendMissing: matplotlib is not installed.
        """
        from peakfold.reports.pictures.memory_png import png_map

        return png_map(self.result, self.name)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the plan as JSON.

        Raises:
            UsageError: the file exists (without `force`) or cannot be written.
        """
        write_files({need_path(path, "path"): encode_plan(self.plan)}, force=force)


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
