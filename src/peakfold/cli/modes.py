"""`peakfold modes`: several networks in every mode, inference beside training."""

from __future__ import annotations

from typing import Any

import click

from peakfold.cli import options as opt
from peakfold.cli.output import Outputs, color, emit, width, working


@opt.verb("modes", example="peakfold modes alexnet.onnx vgg.onnx --train --chart modes.svg")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@opt.trust_option
@opt.binding_options
@opt.target_option
@opt.choice("--share", opt.SHARE, "any", "Who may follow whom in a shared object.")
@opt.align_option
@opt.fold_options
@opt.train_options
@opt.time_limit(1.0, "For the search of each arena.")
@click.option("--chart", metavar="FILE.svg", help="Write the bars as an SVG.")
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(
    models: tuple[str, ...],
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    chart: str | None,
    as_json: bool,
    force: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401 - click's values
) -> int:
    """Show what reuse saves: MODELs in the modes naive, inplace, share, both and arena.

    With --train every model has two rows, its forward pass and its training step.
    """
    outputs = Outputs({"chart": chart}, force=force, inputs=models, json=as_json)
    from peakfold.app.inspect import called
    from peakfold.frontends import Bindings, load
    from peakfold.planning import PlanOptions
    from peakfold.reports.pictures.bars import modes_document, modes_svg, modes_text
    from peakfold.reports.records import to_json

    train = opt.take_training(flags)
    options = PlanOptions(train=train, fold=not flags.pop("no_fold"), **flags)
    with working("planning", quiet=quiet):
        bindings = Bindings.parse(dims, shapes)
        graphs = [
            (called(loaded), loaded.graph) for name in models for loaded in (load(name, bindings),)
        ]
        document = modes_document(graphs, options)
    if as_json:
        emit(to_json(document))
    elif outputs.to_stdout is None:
        emit(modes_text(document, width=width(), color=color()))
    if outputs.wants("chart"):
        outputs.write({"chart": modes_svg(document).encode()}, quiet=quiet)
    return 0
