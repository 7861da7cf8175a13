"""`peakfold verify`: judges a plan against its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from peakfold.cli import options as opt
from peakfold.cli.output import color, emit, width, working
from peakfold.errors import InvalidPlan, UsageError

if TYPE_CHECKING:
    from peakfold.app.results import VerifyReport
    from peakfold.reports.records import CheckRecord


@opt.verb("verify", example="peakfold verify model.onnx model.plan.json")
@opt.model_argument
@click.argument("plan", metavar="[PLAN]", required=False)
@click.option(
    "--run",
    is_flag=True,
    help="Also run the model as planned, in one arena, and compare with an ordinary run.",
)
@click.option(
    "--profile",
    metavar="FILE",
    help="The measured scratch that the plan was made with; without it that is only claimed.",
)
@click.option(
    "--prove",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Search so long, twice at most, to derive bounds again that only a search can.",
)
@opt.json_option
@opt.quiet_option
def command(
    model: str,
    plan: str | None,
    run: bool,
    profile: str | None,
    prove: float | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check PLAN against MODEL, by code that shares nothing with the planner.

    MODEL is loaded with the numbers the plan records; the plan of another model is refused.
    What a plan says and no check derives is listed as claimed. Without PLAN the layout that a
    .tflite file carries is judged. Exit code 5 means that a check failed.
    """
    from peakfold.app import plan as face
    from peakfold.app.results import VerifyReport
    from peakfold.reports.records import CheckRecord, documents, to_json

    if plan is None:
        if run or profile is not None or prove is not None:
            raise UsageError(
                "--run, --profile and --prove follow a plan", hint="name the plan's file"
            )
        return _file(model, as_json=as_json, quiet=quiet)
    try:
        with working("checking", quiet=quiet):
            report = face.verify(model, plan, profile=profile, prove=prove)
        if run and report.ok:  # a plan that is wrong on paper is not run
            with working("running", quiet=quiet):
                checks = [*report.document.checks, _run(model, plan)]
            report = VerifyReport(documents.verify_document(checks, report.document.claimed))
    except InvalidPlan as error:
        if as_json:  # a refusal is a result, too
            refusal = CheckRecord(name="plan is for this model", ok=False, detail=str(error))
            emit(to_json(documents.verify_document([refusal])))
        raise
    return _say(report, as_json=as_json, where=plan)


def _file(model: str, *, as_json: bool, quiet: bool) -> int:
    """The layout a file carries itself."""
    from peakfold.app import handover

    with working("checking", quiet=quiet):
        report = handover.verify_file(model)
    return _say(report, as_json=as_json, where=model)


def _say(report: VerifyReport, *, as_json: bool, where: str) -> int:
    emit(report.to_json() if as_json else report.to_text(width=width(), color=color()))
    if not report.ok:
        failed = [check.name for check in report.document.checks if not check.ok]
        raise InvalidPlan(f"failed: {', '.join(failed) or 'nothing was checked'}", where=where)
    return 0


def _run(model: str, plan: str) -> CheckRecord:
    """Judge 3: the model run as planned."""
    from peakfold.app import plan as face
    from peakfold.reports.records import CheckRecord
    from peakfold.runtimes.reference import check_run

    record = face.read_plan(plan)
    loaded = face.load_for(model, record)
    check = check_run(model, loaded.graph, record)
    return CheckRecord(name=check.name, ok=check.ok, detail=check.detail)
