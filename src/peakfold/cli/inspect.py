"""`peakfold inspect`: what a model costs, and where its memory goes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from peakfold.arguments import digits
from peakfold.cli import options as opt
from peakfold.cli.group import say_error
from peakfold.cli.output import Outputs, color, emit, width, working
from peakfold.errors import ModelError, UsageError

if TYPE_CHECKING:
    from peakfold.reports.records.cost_results import InspectReport
    from peakfold.reports.text.inspect import TableChoice


@opt.verb("inspect", example="peakfold inspect model.onnx --dim batch=1 --by scope --top 20")
@click.argument("model", metavar="MODEL", required=False)
@click.option(
    "--op",
    "layer",
    metavar="LAYER",
    help='Compare layer types, without a model: "conv 3x3 64->128 @56".',
)
@opt.trust_option
@opt.route_option
@opt.binding_options
@opt.target_option
@opt.fold_options
@opt.choice("--by", opt.BY, "op", "Rows of the cost table.")
@opt.choice("--sort", opt.SORTS, "file", "Their order; file keeps the model's.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="K",
    help="How many rows to show; 12 by default, and all of them in CSV and Markdown.",
)
@click.option("--all", "every_op", is_flag=True, help="Show every row.")
@opt.choice(
    "--causal", opt.CAUSAL, "full", "Count masked positions of causal attention, or leave them out."
)
@click.option(
    "--trips",
    multiple=True,
    metavar="LOOP=N",
    help="Trip count of a loop, by op name; repeatable.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Samples in a run, for figures per sample; default: the first input's leading dimension.",
)
@click.option(
    "--rate",
    type=opt.Number(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="R",
    help="Samples per second that the bandwidth is asked for.",
)
@opt.device_option
@click.option(
    "--precision",
    metavar="TYPE",
    help="Element type that floating-point ops run in on the device, such as float16.",
)
@click.option(
    "--measured",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time of a run as you measured it: how much of the device's peak it reached.",
)
@click.option(
    "--batches",
    metavar="N,...",
    help="Batch sizes to tell the bound on the device at, such as 1,8,64.",
)
@click.option("--roofline", metavar="FILE", help="Write the roofline plot: .svg, or .png.")
@click.option("--lint", is_flag=True, help="Add advice: ops and bytes that could be saved.")
@click.option(
    "--sparsity", is_flag=True, help="Read the weights, and count what their zeros leave."
)
@click.option(
    "--formulas", is_flag=True, help="Tell totals as formulas in the dimensions nobody bound."
)
@click.option("--strict", is_flag=True, help="Exit with 1 when anything is doubtful.")
@click.option("--csv", metavar="FILE", help="Write the cost table as CSV; - is stdout.")
@click.option("--markdown", metavar="FILE", help="The same as Markdown; - is stdout.")
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(  # one parameter a flag
    model: str | None,
    layer: str | None,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    csv: str | None,
    markdown: str | None,
    roofline: str | None,
    strict: bool,
    as_json: bool,
    force: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401 - click's values
) -> int:
    """Show what MODEL costs, and where its memory goes, by role and by op.

    MODEL is a file (.onnx, .tflite, .pt2, or .pf, peakfold's text form) or
    package.module:callable, which returns a torch module and its inputs. The first line has
    parameters, FLOPs, memory access and bandwidth. Nothing is planned: memory is shown before
    any reuse.
    """
    if layer is not None:
        return _layers(layer, model, as_json=as_json)
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    files = {"csv": csv, "markdown": markdown, "roofline": roofline}
    if roofline is not None and not roofline.endswith((".svg", ".png")) and roofline != "-":
        raise UsageError(f"--roofline {roofline!r} ends in neither .svg nor .png")
    outputs = Outputs(files, force=force, inputs=(model,), json=as_json)
    if flags["formulas"]:
        return _formulas(model, dims, shapes, flags, as_json=as_json, quiet=quiet)
    from peakfold.app import inspect as inspecting
    from peakfold.frontends import Bindings, load
    from peakfold.reports.text.inspect import TableChoice

    choice = TableChoice(by=flags["by"], sort=flags["sort"], rate=flags["rate"])
    whole = replace(choice, top=None if flags["every_op"] else flags["top"])  # what files hold
    if flags["every_op"] or flags["top"]:
        choice = whole
    with working("reading the model", quiet=quiet):
        report = inspecting.inspect(
            load(model, Bindings.parse(dims, shapes)),
            target=flags["target"],
            fold=not flags["no_fold"],
            fold_weights=flags["fold_weights"],
            device=flags["device"],
            precision=flags["precision"],
            measured_s=flags["measured"],
            batches=parse_batches(flags["batches"]),
            causal=flags["causal"],
            batch=flags["batch"],
            trips=parse_trips(flags["trips"]),
            lint=flags["lint"],
            sparsity=flags["sparsity"],
        )
    contents = _contents(report, outputs, whole)  # what cannot be drawn fails before any text
    if as_json:
        emit(report.to_json(rate=choice.rate))
    elif outputs.to_stdout is None:
        emit(report.to_text(width=width(), color=color(), choice=choice))
    outputs.write(contents, quiet=quiet)
    return _verdict(report) if strict else 0


def _layers(layer: str, model: str | None, *, as_json: bool) -> int:
    """``--op``: what a layer costs in each of its forms."""
    if model is not None:
        raise UsageError("--op needs no model", hint="leave MODEL out")
    _alone("--op", {"layer"})
    from peakfold.reports.text.layers import layers_document, layers_text

    document = layers_document(layer)
    if as_json:
        from peakfold.reports.records import to_json

        emit(to_json(document))
    else:
        emit(layers_text(document, width=width(), color=color()))
    return 0


def _alone(flag: str, taken: set[str]) -> None:
    """Refuse options that a flag would not heed.

    Raises:
        UsageError: the first of them.
    """
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "")
        heeded = {*taken, "model", "as_json", "quiet", "force"}
        if given is ParameterSource.COMMANDLINE and option.name not in heeded:
            raise UsageError(f"{flag} does not go with {option.opts[0]}", hint="leave one out")


def _formulas(
    model: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    flags: dict[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    """``--formulas``: totals in terms of the dimensions that nobody bound."""
    from peakfold.analysis import CostOptions
    from peakfold.app.formulas import formulas, formulas_text
    from peakfold.frontends import Bindings

    _alone("--formulas", {"formulas", "dims", "shapes", "no_fold", "causal", "trips"})
    options = CostOptions(causal=flags["causal"], trips=parse_trips(flags["trips"]))
    with working("counting at several sizes", quiet=quiet):
        document = formulas(model, Bindings.parse(dims, shapes), options, fold=not flags["no_fold"])
    if as_json:
        from peakfold.reports.records import to_json

        emit(to_json(document))
    else:
        emit(formulas_text(document, width=width(), color=color()))
    return 0


def parse_trips(words: tuple[str, ...]) -> dict[str, int]:
    """Trip counts by loop name.

    Raises:
        UsageError: not ``NAME=N``.
    """
    found: dict[str, int] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        count = digits(number)
        if not name or count is None:
            raise UsageError(f"--trips {word!r} is not NAME=N")
        found[name] = count
    return found


def parse_batches(words: str | None) -> tuple[int, ...]:
    """Batch sizes from ``1,8,64``.

    Raises:
        UsageError: not numbers from 1 on.
    """
    if words is None:
        return ()
    numbers = [digits(part.strip()) or 0 for part in words.split(",")]
    if not all(numbers):
        raise UsageError(f"--batches {words!r} are not numbers from 1 on, such as 1,8,64")
    return tuple(numbers)


def _contents(report: InspectReport, outputs: Outputs, choice: TableChoice) -> dict[str, bytes]:
    make = {"csv": report.to_csv, "markdown": report.to_markdown}
    found = {what: build(choice).encode() for what, build in make.items() if outputs.wants(what)}
    if outputs.wants("roofline"):
        png = outputs.names["roofline"].endswith(".png")
        found["roofline"] = report.to_roofline_png() if png else report.to_roofline_svg().encode()
    return found


def _verdict(report: InspectReport) -> int:
    """0, or 1 with what is not known."""
    if report.complete:
        return 0
    kinds = report.unsupported | report.cost.unsupported()
    named = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
    loops, sizes = (", ".join(n) for n in (report.cost.open_loops, report.breakdown.opaque))
    what = "; ".join(
        part
        for part in (
            f"no cost of {named}" if named else "",
            f"no trip count of {loops}" if loops else "",
            f"no size of {sizes}" if sizes else "",
            *report.doubts,
        )
        if part
    )
    say_error(f"--strict: {what}")
    return ModelError.exit_code
