"""`peakfold apply`: a plan in a file that a runtime obeys."""

from __future__ import annotations

import click

from peakfold.cli import options as opt
from peakfold.cli.output import Outputs, color, emit, width, working


@opt.verb("apply", example="peakfold apply model.tflite model.plan.json --to tflite -o out.tflite")
@opt.model_argument
@click.argument("plan", metavar="[PLAN]", required=False)
@opt.choice(
    "--to",
    opt.APPLY_TO,
    "tflite",
    "A .tflite file with the plan's order and offsets, a C header, or a table.",
)
@click.option("-o", "--output", metavar="OUT", required=True, help="The new file; - is stdout.")
@click.option(
    "--fold-weights", is_flag=True, help="Without a plan, also widen half-precision weights."
)
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(
    model: str,
    plan: str | None,
    to: str,
    output: str,
    fold_weights: bool,
    as_json: bool,
    force: bool,
    quiet: bool,
) -> int:
    """Write PLAN into a copy of MODEL, or into a header, once the judges have passed it.

    Operators are reordered, offsets are written into the file, everything else is kept. Without
    PLAN a .tflite file is written anew and means the same. Exit code 5: a judge rejects the plan.
    """
    outputs = Outputs(
        {"file": output}, force=force, inputs=(model, *([plan] if plan else ())), json=as_json
    )
    from peakfold.app import apply as applying

    with working("applying", quiet=quiet):
        report = applying.apply(model, plan, to=to, fold_weights=fold_weights)
    outputs.write({"file": report.data}, quiet=quiet)
    if as_json:
        emit(report.to_json(output))
    elif outputs.to_stdout is None:
        emit(report.to_text(width=width(), color=color()))
    return 0
