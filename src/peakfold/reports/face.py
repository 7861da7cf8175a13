"""`peakfold.plan`, `cost`, `inspect`, `verify`: one call each, from a model to a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from peakfold.analysis.profile import Profile, decode_profile
from peakfold.arguments import path as need_path
from peakfold.arguments import word
from peakfold.boundary import file_size, read_file
from peakfold.errors import InvalidPlan, UsageError
from peakfold.frontends import FORMATS, Loaded
from peakfold.planning import Plan, PlanOptions, decode_plan, make_plan
from peakfold.reports.documents import verify_document
from peakfold.reports.inspecting import Model, called, cost, inspect, load, loaded_from
from peakfold.reports.results import PlanReport, VerifyReport
from peakfold.units import parse_size

_PROFILE_LIMIT = 1 << 26

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
        options: fields of `peakfold.PlanOptions`; `budget` may be written ``"256KiB"``.

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
    if isinstance(options.get("budget"), str):
        options["budget"] = parse_size(options["budget"])
    result = make_plan(loaded.graph, PlanOptions(**options), loaded.bindings)
    return PlanReport(result, called(loaded))


def verify(model: Model, plan: Plan | PlanReport | str | Path) -> VerifyReport:
    """Check a plan against its model, by code that shares nothing with the planner.

    Args:
        model: a path, a graph, or what `load` returned; a path is loaded with the numbers
            that the plan records.
        plan: a plan, a report, or a plan file.

    Raises:
        InvalidPlan: the file is no plan, or the plan belongs to another model.
        UsageError: a file does not exist.
        ModelError: the model cannot be read.
    """
    from peakfold.planning.verify import verify_plan

    record = plan.plan if isinstance(plan, PlanReport) else plan
    if not isinstance(record, Plan):
        record = read_plan(need_path(record, "plan"))
    if isinstance(model, str | Path):
        loaded = _load_for(model, record)
    else:
        loaded = loaded_from(model, None, None)
    return VerifyReport(verify_document(verify_plan(loaded.graph, record)))


def _load_for(model: str | Path, plan: Plan) -> Loaded:
    """The model with the plan's numbers; numbers it has no place for are another model's."""
    dims, shapes = plan.bindings.dims, plan.bindings.shapes
    is_file = Path(model).suffix in FORMATS
    if is_file:
        file_size(Path(model))
    try:
        return load(model, dims=dims, shapes=shapes)
    except UsageError as error:
        if is_file and (dims or shapes):
            raise InvalidPlan(
                f"the plan is for another model: {error}", where=plan.graph.name
            ) from None
        raise


def read_profile(path: str | Path) -> Profile:
    """Read a profile file.

    Raises:
        UsageError: it cannot be read, or is none.
        ModelError: it is larger than any profile.
    """
    return decode_profile(read_file(Path(path), _PROFILE_LIMIT, "a profile"), str(path))


def read_plan(path: str | Path) -> Plan:
    """Read a plan file.

    Raises:
        UsageError: the file cannot be read.
        InvalidPlan: it holds no plan of this version.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    return decode_plan(data, str(path))
