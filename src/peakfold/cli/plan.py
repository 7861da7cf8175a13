"""`peakfold plan`: before, after, the proof, and the plan as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peakfold.arguments import digits
from peakfold.cli import options as opt
from peakfold.cli.budgets import budget_options, only_budget
from peakfold.cli.group import say_error
from peakfold.cli.output import Outputs, color, emit, width, working
from peakfold.errors import DoesNotFit, UsageError

if TYPE_CHECKING:
    from peakfold.app.results import PlanReport
    from peakfold.reports.records import TrainingDocument
    from peakfold.transform import Split

_STRATEGIES = f"""\b
Strategies:
  arena        {opt.lines(opt.ARENA_STRATEGIES)}
  share, both  {opt.lines(opt.SHARE_STRATEGIES)}
"""


@opt.verb(
    "plan",
    example="peakfold plan model.onnx --dim batch=1 -o model.plan.json",
    more=_STRATEGIES,
)
@opt.model_argument
@opt.binding_options
@opt.target_option
@opt.choice("--mode", opt.MODES, "arena", "Which plan to write; the table shows all five.")
@click.option(
    "--strategy",
    default="best",
    show_default=True,
    metavar="S",
    help="Algorithm of the mode's family, listed below.",
)
@opt.choice(
    "--share", opt.SHARE, "any", "Who may follow whom in a shared object (modes share and both)."
)
@click.option("--inputs", type=click.Choice(opt.INPUTS), help="Where inputs live.")
@click.option("--outputs", type=click.Choice(opt.OUTPUTS), help="Where outputs live.")
@opt.align_option
@click.option("--no-inplace", is_flag=True, help="Never write a result over an input.")
@click.option("--no-views", is_flag=True, help="Copy where a reshape could alias.")
@click.option("--no-zero-copy", is_flag=True, help="Never build a concatenation in its place.")
@click.option("--no-overlap", is_flag=True, help="Never write a result over part of an input.")
@opt.choice(
    "--order", opt.ORDERS, "file", "Order of the ops: the file's, or one searched for a lower peak."
)
@click.option(
    "--lanes",
    type=opt.Lanes(),
    default="1",
    show_default=True,
    metavar="N|free",
    help="Ops that may run at once; free is safe in any run the graph allows.",
)
@click.option(
    "--added-edges",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="K",
    help="Let a plan for several lanes add K ordering edges to save memory.",
)
@opt.fold_options
@opt.train_options
@opt.step_options
@click.option(
    "--capture",
    type=click.Choice(("eager", "joint")),
    help="Of a torch step: its graph as it runs, or exported as one program [eager].",
)
@click.option(
    "--eager", is_flag=True, help="Of module:callable: memory of a forward pass as PyTorch runs it."
)
@click.option("--device", metavar="D", help="Of a torch step: whose memory it should fit.")
@click.option("--snapshot", metavar="FILE", help="Of a torch step: for PyTorch's memory viewer.")
@click.option(
    "--split", metavar="TENSOR=N", help="Compute everything up to a tensor in N bands of rows."
)
@budget_options
@opt.time_limit(5.0, "Time for the search after the fast strategies.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of randomised search.")
@click.option("--profile", metavar="FILE", help="Measured scratch, from measure --scratch.")
@click.option("--trace", is_flag=True, help="Show the counters and the free box step by step.")
@click.option("--svg", metavar="FILE", help="Write the 2-D memory map, before and after.")
@click.option("--png", metavar="FILE", help="The same as a PNG (needs matplotlib).")
@click.option(
    "-o",
    "--output",
    metavar="PLAN",
    help="Write the plan as JSON; - is stdout. "
    "FILE.csv, in torch: the storages of a run, for pack.",
)
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(  # one parameter a flag
    model: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    svg: str | None,
    png: str | None,
    output: str | None,
    snapshot: str | None,
    as_json: bool,
    force: bool,
    quiet: bool,
    **flags: Any,  # noqa: ANN401
) -> int:
    """Plan the memory of MODEL, and show before, after and what is proven.

    MODEL is a file (.onnx, .tflite, .pt2, or .pf, peakfold's text form) or
    package.module:callable, which returns a torch module and its inputs.
    """
    outputs = Outputs(
        {"plan": output, "svg": svg, "png": png, "snapshot": snapshot},
        force=force,
        inputs=(model,),
        json=as_json,
    )
    if png is not None:
        from peakfold.reports.pictures.memory_png import need_matplotlib

        need_matplotlib()
    from peakfold.app import plan as face
    from peakfold.frontends import Bindings, load

    step, device = opt.take_step(flags), flags.pop("device")
    capture = flags.pop("capture")
    if flags.pop("eager"):
        return _eager(model, dims, shapes, flags, step, outputs, as_json=as_json, quiet=quiet)
    if flags["train"] and opt.is_callable(model):
        return _training(
            model,
            dims,
            shapes,
            flags,
            step,
            device,
            outputs,
            as_json=as_json,
            joint=capture == "joint",
            quiet=quiet,
        )
    if step or device or capture or outputs.wants("snapshot"):
        raise UsageError("options of a torch step", hint="they go with module:callable --train")
    with working("planning", quiet=quiet):
        report = face.plan(load(model, Bindings.parse(dims, shapes)), **_options(flags))
        contents = _contents(report, outputs)
    if as_json:
        emit(report.to_json())
    elif outputs.to_stdout is None:
        emit(report.to_text(width=width(), color=color()))
    outputs.write(contents, quiet=quiet)
    return _verdict(report)


def _training(
    model: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    flags: dict[str, Any],
    step: dict[str, Any],
    device: str | None,
    outputs: Outputs,
    *,
    as_json: bool,
    joint: bool,
    quiet: bool,
) -> int:
    """A training step of a torch module, captured and planned."""
    from peakfold.app.train import plan_training
    from peakfold.device import load_device
    from peakfold.frontends import Bindings
    from peakfold.planning import PlanOptions, encode_plan

    optimizer, loss = flags["optimizer"], flags["loss"]
    if flags["grad_reads"] or flags["input_grad"] or flags["param_grads"]:
        raise UsageError(
            "a torch step is differentiated by torch itself",
            hint="--grad-reads, --input-grad, --param-grads are of files",
        )
    if shapes or outputs.wants("svg") or outputs.wants("png"):
        raise UsageError(
            "--shape, --svg and --png are not for a torch step",
            hint="--dim sets a dimension, --snapshot draws it",
        )
    budget = only_budget(flags)
    chip = None if device is None else load_device(device)
    target = opt.torch_target(flags["target"], step, chip)
    flags |= {"train": False, "optimizer": None, "loss": None, "target": target}
    options = PlanOptions(**_options(flags))
    with working("running a step on tensors without memory", quiet=quiet):
        bound = Bindings.parse(dims, ())
        wanted = opt.step_of(optimizer, loss, step, target)
        report = plan_training(model, wanted, options, bound.dims, chip, joint=joint)
    if as_json:
        emit(report.to_json())
    elif outputs.to_stdout is None:
        emit(report.to_text(width=width(), color=color()))
    table = outputs.names.get("plan", "").endswith(".csv")
    make = {
        "plan": report.to_csv if table else lambda: encode_plan(report.result.plan),
        "snapshot": report.to_snapshot,
    }
    outputs.write({k: build() for k, build in make.items() if outputs.wants(k)}, quiet=quiet)
    return _step_verdict(report.document, budget)


def _eager(
    model: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    flags: dict[str, Any],
    step: dict[str, Any],
    outputs: Outputs,
    *,
    as_json: bool,
    quiet: bool,
) -> int:
    """A forward pass of a torch module, followed as PyTorch runs it."""
    from peakfold.app.eager import eager_report
    from peakfold.app.train import to_table
    from peakfold.frontends import Bindings
    from peakfold.reports.text.budget import short_of

    drawn = any(outputs.wants(what) for what in ("svg", "png", "snapshot"))
    if not opt.is_callable(model) or flags["train"] or shapes or drawn:
        raise UsageError(
            "--eager follows a forward pass of module:callable",
            hint="--dim sets a dimension, -o FILE.csv writes storages",
        )
    if outputs.wants("plan") and not outputs.names["plan"].endswith(".csv"):
        raise UsageError("a forward pass has no plan", hint="-o FILE.csv writes its storages")
    budget = only_budget(flags)
    with working("running it on tensors without memory", quiet=quiet):
        options = opt.step_of(None, None, step, flags["target"])
        report = eager_report(model, options, Bindings.parse(dims, ()).dims)
    if as_json:
        emit(report.to_json())
    elif outputs.to_stdout is None:
        emit(report.to_text(width=width(), color=color()))
    if outputs.wants("plan"):
        outputs.write({"plan": to_table(report.run)}, quiet=quiet)
    if budget is not None and report.run.peak > budget:
        say_error(short_of("the forward pass", report.run.peak, budget))
        return DoesNotFit.exit_code
    return 0


def _step_verdict(document: TrainingDocument, budget: int | None) -> int:
    """0, or 3 with the reason when the budget or the device is too small for a step."""
    from peakfold.reports.text.budget import short_of

    need = max(document.first.peak_bytes, document.steady.peak_bytes)
    if budget is not None and need > budget:
        say_error(short_of("the step", need, budget))
        return DoesNotFit.exit_code
    if document.fits is False:
        say_error(short_of("the step", document.need_bytes or need, document.have_bytes or 0))
        return DoesNotFit.exit_code
    return 0


def _options(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags as fields of `PlanOptions`: ``--no-x`` becomes ``x=False``."""
    train, split = opt.take_training(flags), _take_split(flags)
    return {"train": train, "split": split} | {
        (name.removeprefix("no_")): (not value if name.startswith("no_") else value)
        for name, value in flags.items()
    }


def _take_split(flags: dict[str, Any]) -> Split | None:
    """The split that a flag asks for; takes it out of `flags`.

    Raises:
        UsageError: it is not TENSOR=N.
    """
    text = flags.pop("split")
    if text is None:
        return None
    from peakfold.transform import Split

    name, _, count = text.rpartition("=")
    number = digits(count)
    if not name or number is None:
        raise UsageError(f"--split {text!r} is not TENSOR=N", hint="for example --split relu4=3")
    return Split(name, number)


def _contents(report: PlanReport, outputs: Outputs) -> dict[str, bytes]:
    from peakfold.planning import encode_plan

    make = {
        "plan": lambda: encode_plan(report.plan),
        "svg": lambda: report.to_svg().encode(),
        "png": report.to_png,
    }
    return {what: build() for what, build in make.items() if outputs.wants(what)}


def _verdict(report: PlanReport) -> int:
    """0, or 3 with the reason when the budget is missed: the plan is out by then."""
    from peakfold.reports.text.budget import budget_miss

    miss = budget_miss(report.result)
    if miss is None:
        return 0
    say_error(miss)
    return DoesNotFit.exit_code
