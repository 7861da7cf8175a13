"""`peakfold compare`: several models, or one before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peakfold.cli import options as opt
from peakfold.cli.output import Outputs, color, emit, width, working
from peakfold.errors import UsageError

if TYPE_CHECKING:
    from peakfold.reports.pictures.bubbles import Chart
    from peakfold.reports.records.compare_rows import CompareDocument


@opt.verb("compare", example="peakfold compare a.onnx b.onnx --dim batch=1 --accuracy top1.csv")
@click.argument("models", metavar="MODEL...", nargs=-1)
@opt.trust_option
@opt.strict_option
@opt.binding_options
@opt.fold_options
@opt.device_option
@click.option(
    "--precision",
    metavar="TYPE",
    help="Element type that floating-point ops run in on the device, such as float16.",
)
@click.option("--ops", is_flag=True, help="Two models op by op: before and after a change.")
@click.option(
    "--sparsity", is_flag=True, help="Read the weights, and count what their zeros leave."
)
@click.option(
    "--no-peak", is_flag=True, help="Leave the planned peak out, which takes the most time."
)
@click.option(
    "--accuracy",
    metavar="FILE.csv",
    help="Accuracies by model name, columns model,accuracy.",
)
@click.option(
    "--growth",
    metavar="FILE.csv",
    help="Chart compute demand over time in place of models, columns name,year,flops[,params].",
)
@click.option(
    "--era",
    type=opt.Number(),
    metavar="YEAR",
    help="Where the large-scale era begins in that chart.",
)
@click.option(
    "--chart",
    metavar="FILE.svg",
    help="Write accuracy against parameters, or growth, as an SVG.",
)
@click.option("--csv", metavar="FILE", help="Write the table as CSV; - is stdout.")
@click.option("--markdown", metavar="FILE", help="The same as Markdown; - is stdout.")
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(  # one parameter a flag
    models: tuple[str, ...],
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    accuracy: str | None,
    growth: str | None,
    era: float | None,
    chart: str | None,
    csv: str | None,
    markdown: str | None,
    as_json: bool,
    force: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401 - click's values
) -> int:
    """Show MODELs side by side: parameters, MACs, FLOPs, memory access, planned peak, time.

    A model is a file (.onnx, .tflite, .pt2, .pf) or package.module:callable. A --dim that a model
    does not have is left out for it.
    """
    read = tuple(name for name in (*models, accuracy, growth) if name is not None)
    files = {"csv": csv, "markdown": markdown, "chart": chart}
    outputs = Outputs(files, force=force, inputs=read, json=as_json)
    if growth is not None:
        return _growth(growth, era, models, outputs, quiet=quiet)
    _check(models, accuracy, chart, ops=flags["ops"])
    from peakfold.app import compare as comparing
    from peakfold.reports.records import to_json
    from peakfold.reports.records.compare_rows import compare_csv, compare_markdown, compare_text

    with working("comparing", quiet=quiet):
        found = comparing.compare(
            models,
            dims=dims,
            shapes=shapes,
            fold=not flags["no_fold"],
            fold_weights=flags["fold_weights"],
            ops=flags["ops"],
            peak=not flags["no_peak"],
            accuracy=accuracy,
            device=flags["device"],
            precision=flags["precision"],
            sparsity=flags["sparsity"],
        )
        contents: dict[str, bytes] = {}
        if outputs.wants("csv"):
            contents["csv"] = compare_csv(found).encode()
        if outputs.wants("markdown"):
            contents["markdown"] = compare_markdown(found).encode()
        if outputs.wants("chart"):
            contents["chart"] = _svg(_accuracy_chart(found))
    if as_json:
        emit(to_json(found))
    elif outputs.to_stdout is None:
        emit(compare_text(found, width=width(), color=color()))
    outputs.write(contents, quiet=quiet)
    return 0


def _check(models: tuple[str, ...], accuracy: str | None, chart: str | None, *, ops: bool) -> None:
    if not models:
        raise click.UsageError("Missing argument 'MODEL...'.")
    if ops and len(models) != 2:
        raise UsageError(f"--ops compares two models, not {len(models)}")
    if chart is not None and accuracy is None:
        raise UsageError("a chart needs accuracies", hint="add --accuracy FILE.csv, or --growth")


def _growth(
    table: str, era: float | None, models: tuple[str, ...], outputs: Outputs, *, quiet: bool
) -> int:
    from peakfold.reports.pictures.bubbles import growth_chart

    if models or not outputs.wants("chart"):
        raise UsageError("--growth draws a chart of its table", hint="add --chart FILE.svg alone")
    outputs.write({"chart": _svg(growth_chart(table, era))}, quiet=quiet)
    return 0


def _accuracy_chart(found: CompareDocument) -> Chart:
    from peakfold.reports.pictures.bubbles import accuracy_chart

    return accuracy_chart(
        [
            (row.name, float(row.params), row.accuracy)
            for row in found.models
            if row.accuracy is not None and row.params
        ]
    )


def _svg(chart: Chart) -> bytes:
    from peakfold.reports.pictures.bubbles import svg_chart

    return svg_chart(chart).encode()
