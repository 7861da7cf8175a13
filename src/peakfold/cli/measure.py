"""`peakfold measure`: before and after, in a runtime that really executes the model."""

from __future__ import annotations

from typing import Any

import click

from peakfold.cli import options as opt
from peakfold.cli.group import say_error
from peakfold.cli.output import Outputs, color, emit, width, working
from peakfold.errors import InvalidPlan, UsageError


@opt.verb("measure", example="peakfold measure model.tflite --runtime tflm --self-check")
@opt.model_argument
@click.argument("plan", metavar="[PLAN]", required=False)
@opt.choice(
    "--runtime", opt.RUNTIMES, "tflm", "tflm obeys order and offsets; litert the order only."
)
@opt.choice("--order", opt.ORDERS, "best", "Of the plan that is made when none is given.")
@click.option("--fold-weights", is_flag=True, help="Widen half-precision weights first.")
@opt.time_limit(5.0, "Of the plan that is made when none is given.")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Runs compared, each on other inputs; default 3, and 20 for models that keep state.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the first run's inputs.",
)
@click.option("--train", is_flag=True, help="Of torch: a training step of module:callable.")
@click.option("--optimizer", type=click.Choice(opt.OPTIMIZERS), help="Of torch --train.")
@click.option("--loss", metavar="L", help="Of torch --train, as in plan.")
@opt.run_options
@click.option(
    "--device",
    type=click.Choice(("cpu", "cuda")),
    help="Of torch --train; by default where the example's tensors are.",
)
@click.option("--self-check", is_flag=True, help="Also run files that are wrong on purpose.")
@click.option("--scratch", is_flag=True, help="Measure the scratch of every op instead.")
@click.option("-o", "--output", metavar="FILE", help="Where --scratch writes the profile.")
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(
    model: str,
    plan: str | None,
    runtime: str,
    order: str,
    fold_weights: bool,
    time_limit: float,
    runs: int | None,
    seed: int,
    self_check: bool,
    scratch: bool,
    output: str | None,
    as_json: bool,
    force: bool,
    quiet: bool,
    train: bool,
    optimizer: str | None,
    loss: str | None,
    device: str | None,
    **flags: Any,  # noqa: ANN401 - a step's options
) -> int:
    """Run MODEL without and with PLAN, and say what was measured.

    Without PLAN the model is planned first, for the runtime's rules. Outputs, and the results of
    operators on the way, are compared bit for bit. Exit code 5: the plan was not obeyed, a
    result differs, the whole arena was predicted too low, or a wrong file was not rejected.
    """
    if output is not None and not scratch:
        raise UsageError("-o goes with --scratch", hint="stdout holds what was measured")
    step = opt.take_step(flags)
    if runtime == "torch":
        return _training(
            model, (optimizer, loss), step, device, train=train, as_json=as_json, quiet=quiet
        )
    if train or optimizer or loss or device or step:
        raise UsageError("a training step is measured in torch", hint="add --runtime torch")
    outputs = Outputs({"profile": output}, force=force, inputs=(model,), json=as_json)

    if scratch:
        from peakfold.app.measure_scratch import measure_scratch

        with working("measuring", quiet=quiet):
            profile = measure_scratch(model, runtime=runtime)
        if outputs.wants("profile"):
            outputs.write({"profile": profile.encode()}, quiet=quiet)
        if as_json or not outputs.wants("profile"):
            emit(profile.to_json() if as_json else profile.to_text(width=width(), color=color()))
        return 0
    from peakfold.app.measure import measure

    with working("running", quiet=quiet):
        report = measure(
            model,
            plan,
            runtime=runtime,
            order=order,
            fold_weights=fold_weights,
            time_limit=time_limit,
            runs=runs,
            seed=seed,
            self_check=self_check,
        )
    emit(report.to_json() if as_json else report.to_text(width=width(), color=color()))
    if not report.ok:
        low = ", and the whole arena was predicted too low" * report.document.arena_too_low
        say_error(f"{model}: the plan was not obeyed, a result differs, or a check failed{low}")
        return InvalidPlan.exit_code
    return 0


def _training(
    model: str,
    chosen: tuple[str | None, str | None],
    step: dict[str, Any],
    device: str | None,
    *,
    train: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """A training step, predicted and then run for real."""
    from peakfold.app.measure_training import measure_document, measure_text
    from peakfold.reports.records import to_json

    if not opt.is_callable(model):
        raise UsageError(
            "torch measures module:callable", hint="--train measures a training step of it"
        )
    if not train:
        return _forward(model, device, step or any(chosen), as_json=as_json, quiet=quiet)
    with working("predicting, then training", quiet=quiet):
        document = measure_document(model, opt.step_of(*chosen, step), device)
    emit(to_json(document) if as_json else measure_text(document, width=width(), color=color()))
    return _holds(model, obeyed=document.obeyed)


def _forward(
    model: str, device: str | None, training: object, *, as_json: bool, quiet: bool
) -> int:
    """A forward pass, predicted and then run for real."""
    from peakfold.app.eager import measure_forward_document, measure_forward_text
    from peakfold.reports.records import to_json

    if training:
        raise UsageError("options of a training step without --train", hint="add --train")
    with working("predicting, then running", quiet=quiet):
        document = measure_forward_document(model, device)
    text = (
        to_json(document)
        if as_json
        else measure_forward_text(document, width=width(), color=color())
    )
    emit(text)
    return _holds(model, obeyed=document.obeyed)


def _holds(model: str, *, obeyed: bool) -> int:
    if not obeyed:
        say_error(f"{model}: the prediction is off by more than it may be")
    return 0 if obeyed else InvalidPlan.exit_code
