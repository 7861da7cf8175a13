"""`peakfold inspect`: where a model's memory goes."""

from __future__ import annotations

import click

from peakfold.cli import options as opt
from peakfold.cli.output import color, emit, width, working


@opt.verb("inspect", example="peakfold inspect model.onnx --dim batch=1")
@opt.model_argument
@opt.binding_options
@opt.target_option
@opt.fold_options
@click.option("--all", "every_op", is_flag=True, help="List every op, not only the largest.")
@opt.json_option
@opt.quiet_option
def command(
    model: str, dims: tuple[str, ...], shapes: tuple[str, ...], target: str, no_fold: bool,
    fold_weights: bool, every_op: bool, as_json: bool, quiet: bool,
) -> int:  # fmt: skip
    """Show where the memory of MODEL goes, by role and by op.

    MODEL is a .onnx or .tflite file, or a .pf file (peakfold's text form). Nothing is planned:
    these are the bytes before any reuse.
    """
    from peakfold.frontends import Bindings, load
    from peakfold.reports import face

    with working("reading the model", quiet=quiet):
        report = face.inspect(
            load(model, Bindings.parse(dims, shapes)), target=target, fold=not no_fold,
            fold_weights=fold_weights,
        )  # fmt: skip
    emit(
        report.to_json() if as_json
        else report.to_text(width=width(), color=color(), every_op=every_op)
    )  # fmt: skip
    return 0
