"""`peakfold fit`: does it fit, and what would make it fit."""

from __future__ import annotations

from typing import Any

import click

from peakfold.cli import options as opt
from peakfold.cli.budgets import budget_options, only_budget
from peakfold.cli.group import say_error
from peakfold.cli.output import color, emit, width, working
from peakfold.errors import DoesNotFit, UsageError


@opt.verb("fit", example="peakfold fit model.tflite --target tflm --budget 256KiB")
@opt.model_argument
@opt.binding_options
@opt.target_option
@click.option("--device", metavar="D", help="Take the memory of a device; `peakfold devices`.")
@budget_options
@opt.align_option
@opt.fold_options
@opt.train_options
@opt.step_options
@opt.time_limit(10.0, "For all levers; the search of each has a fifth.")
@opt.json_option
@opt.quiet_option
def command(
    model: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    device: str | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401
) -> int:
    """Say whether MODEL fits, and which lever closes the gap, in the order of cost.

    Free levers first (offsets, sharing, order of ops), then bands of rows, which cost work, then
    what-ifs that change the model. Exit code 3 when the model does not fit as it is, or when that
    is not known; bands of rows that would make it fit are named.
    """
    from peakfold.app.fit import fit_document, fit_text, room
    from peakfold.app.inspect import called
    from peakfold.app.runtime import advice, runtime_of
    from peakfold.device import load_device
    from peakfold.frontends import Bindings, load
    from peakfold.frontends.batches import rebatched
    from peakfold.planning import PlanOptions
    from peakfold.planning.fit.levers import fit
    from peakfold.planning.fit.needing import flash_roles
    from peakfold.planning.fit.total import Budgets
    from peakfold.planning.options import no_flash
    from peakfold.reports.records import to_json
    from peakfold.target import load_target

    step = opt.take_step(flags)
    if flags["train"] and opt.is_callable(model):
        return _training(model, dims, flags, step, device, as_json=as_json, quiet=quiet)
    if step:
        raise UsageError("options of a torch step", hint="they go with module:callable --train")
    train = opt.take_training(flags)
    fold = not flags.pop("no_fold")
    given = Budgets(
        total=flags.pop("budget"), arena=flags.pop("arena_budget"), flash=flags.pop("flash")
    )
    options = PlanOptions(train=train, fold=fold, **flags)
    chip = None if device is None else load_device(device)
    if given.flash is not None and not flash_roles(load_target(options.target), chip):
        raise no_flash(options.target)
    have = room(chip, given)
    with working("trying levers", quiet=quiet):
        loaded = load(model, Bindings.parse(dims, shapes))
        runtime = runtime_of(loaded, options)
        again = rebatched(model, dims, shapes)
        result = fit(loaded.graph, have, options, runtime, chip, again)
        document = fit_document(called(loaded), result, runtime, chip, advice(loaded, options))
    emit(to_json(document) if as_json else fit_text(document, width=width(), color=color()))
    if result.fits:
        return 0
    from peakfold.reports.text.budget import miss

    more = f"; it fits with {document.plan_flags}" if result.plan_fits else ""
    say_error(f"{miss('the model', result.need, have) or document.answer}{more}")
    return DoesNotFit.exit_code


def _training(
    model: str,
    dims: tuple[str, ...],
    flags: dict[str, Any],
    step: dict[str, Any],
    device: str | None,
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    """A training step of a torch module: levers and the largest batch, by real captures."""
    from peakfold.app.fit import room
    from peakfold.app.fit_training import fit_training, fit_training_text
    from peakfold.device import load_device
    from peakfold.frontends import Bindings
    from peakfold.planning.fit.total import Budgets
    from peakfold.reports.records import to_json
    from peakfold.reports.text.budget import short_of

    chip = None if device is None else load_device(device)
    have = room(chip, Budgets(total=only_budget(flags))).total or 0
    with working("running steps on tensors without memory", quiet=quiet):
        target = opt.torch_target(flags["target"], step, chip)
        wanted = opt.step_of(flags["optimizer"], flags["loss"], step, target)
        bound = Bindings.parse(dims, ())
        document = fit_training(model, wanted, have, bound.dims, chip)
    emit(
        to_json(document) if as_json else fit_training_text(document, width=width(), color=color())
    )
    if document.fits:
        return 0
    say_error(short_of("the model", document.need_bytes, document.have_bytes))
    return DoesNotFit.exit_code
