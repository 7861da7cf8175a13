"""`peakfold.plan`, `cost`, `inspect`, `verify`: one call each, from a model to a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from peakfold.analysis.graph.workspace_profile import FILE_LIMIT as PROFILE_LIMIT
from peakfold.analysis.graph.workspace_profile import Profile, decode_profile
from peakfold.app.inspect import Model, called, cost, inspect, load, loaded_from
from peakfold.app.results import PlanReport, VerifyReport
from peakfold.app.runtime import advice, runtime_of
from peakfold.arguments import path as need_path
from peakfold.arguments import word
from peakfold.boundary import file_size, read_file
from peakfold.errors import InvalidPlan, PeakfoldError
from peakfold.frontends import FORMATS, Loaded
from peakfold.planning import Plan, PlanOptions, decode_plan, make_plan
from peakfold.planning.plan import FILE_LIMIT as PLAN_LIMIT
from peakfold.reports.records.documents import verify_document
from peakfold.units import parse_size

__all__ = ["Model", "cost", "inspect", "load", "plan", "read_plan", "verify"]


def plan(
    model: Model,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401 - the fields of PlanOptions, checked below
) -> PlanReport:
    """Plan a model's memory.

    Args:
        model: a path, a graph, or what `load` returned.
        dims: as `load` takes them; only with a path.
        shapes: likewise.
        options: fields of `peakfold.PlanOptions`; budgets may be written ``"256KiB"``.

    Returns:
        A report: `print` it, `save` its plan, read `summary`.

    Raises:
        UsageError: an unknown option, or a value that no option has.
        ModelError: the model cannot be read, or a size is not known.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\n"
        ...                 "y: int8[64] = relu(x)\\nz: int8[64] = relu(y)\\noutput z")
        >>> plan(g).summary.arena_bytes
        64
    """
    loaded = loaded_from(model, dims, shapes)
    known = {item.name for item in fields(PlanOptions)}
    for name in options:
        word(name, tuple(sorted(known)), "option")
    if isinstance(options.get("profile"), str | Path):
        options["profile"] = read_profile(options["profile"])
    for name in ("budget", "arena_budget", "flash"):
        if isinstance(options.get(name), str):
            options[name] = parse_size(options[name])
    asked = PlanOptions(**options)
    runtime = runtime_of(loaded, asked)
    result = make_plan(loaded.graph, asked, loaded.bindings, runtime)
    return PlanReport(result, called(loaded), (*runtime.notes, *advice(loaded, asked)))


def verify(
    model: Model,
    plan: Plan | PlanReport | str | Path,
    *,
    profile: Profile | str | Path | None = None,
    prove: float | None = None,
) -> VerifyReport:
    """Check a plan against its model, by code that shares nothing with the planner.

    Args:
        model: a path, a graph, or what `load` returned; a path is loaded with the numbers
            that the plan records.
        plan: a plan, a report, or a plan file.
        profile: measured scratch that the plan was made with, or its file.
        prove: seconds for each search that derives a bound again which only a search can.

    Raises:
        InvalidPlan: the file is no plan, or the plan belongs to another model.
        UsageError: a file does not exist.
        ModelError: the model cannot be read.
    """
    from peakfold.judges.plan import Check, Given, judge_plan

    record = plan.plan if isinstance(plan, PlanReport) else plan
    if not isinstance(record, Plan):
        record = read_plan(need_path(record, "plan"))
    measured = read_profile(profile) if isinstance(profile, str | Path) else profile
    if isinstance(model, str | Path):
        loaded = load_for(model, record)
        given = Given(profile=measured, bindings=loaded.bindings)
    else:
        loaded = loaded_from(model, None, None)
        given = Given(profile=measured)
    verdict = judge_plan(loaded.graph, record, given)
    checks, claims = list(verdict.checks), list(verdict.claims)
    if prove is not None and verdict.ok:
        from peakfold.judges.reprove import reproved

        open_fields = [claim.field for claim in claims]
        found = reproved(loaded.graph, record, open_fields, seconds=prove, profile=measured)
        if found:
            how = f"{', '.join(found)}: derived again by the planner's own search"
            checks.append(Check("search", True, how))
            claims = [claim for claim in claims if claim.field not in found]
    return VerifyReport(verify_document(checks, claims))


def load_for(model: str | Path, plan: Plan) -> Loaded:
    """A model with the numbers that a plan records.

    Raises:
        InvalidPlan: the model can be read, but not with these numbers: they are another's.
        UsageError: the file does not exist.
        ModelError: the model cannot be read at all.
    """
    dims, shapes = plan.bindings.dims, plan.bindings.shapes
    is_file = Path(model).suffix in FORMATS
    if is_file:
        file_size(Path(model))
    try:
        return load(model, dims=dims, shapes=shapes)
    except PeakfoldError as error:
        if not (dims or shapes):
            raise
        load(model)  # where the model itself is at fault, that is what is said
        raise InvalidPlan(
            f"the plan is for another model: {error}", where=plan.graph.name
        ) from None


def read_profile(path: str | Path) -> Profile:
    """Read a profile file.

    Raises:
        UsageError: it cannot be read, or is none.
        ModelError: it is absurdly large.
    """
    return decode_profile(read_file(Path(path), PROFILE_LIMIT, "a profile"), str(path))


def read_plan(path: str | Path) -> Plan:
    """Read a plan file.

    Raises:
        UsageError: the file cannot be read.
        InvalidPlan: it holds no plan of this version.
    """
    return decode_plan(read_file(Path(path), PLAN_LIMIT, "a plan"), str(path))
