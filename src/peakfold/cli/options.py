"""Options that several verbs share, and the sizes and names they take.

The choices are written out here, because importing the planner for them would make ``--help``
slow; a test holds them against the planner's own lists.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peakfold.cli.group import traceback_option
from peakfold.cli.values import Lanes as Lanes
from peakfold.cli.values import Number as Number
from peakfold.cli.values import Size as Size
from peakfold.errors import UsageError

if TYPE_CHECKING:
    from peakfold.device import Device
    from peakfold.frontends.torch.training.step import StepOptions
    from peakfold.transform import Train

MODES = ("naive", "inplace", "share", "both", "arena")
ORDERS = ("file", "best")
SHARE = ("any", "equal", "nnvm")
APPLY_TO = ("tflite", "c", "csv")
RUNTIMES = ("tflm", "litert", "torch")
INPUTS = ("external", "pinned", "reusable")
OUTPUTS = ("pinned", "external")
BY = ("op", "scope", "kind")
SORTS = ("flops", "macs", "params", "bytes", "fused", "output", "intensity", "name", "file")
CAUSAL = ("full", "half")
ARENA_STRATEGIES = (
    "best", "by-size", "by-breadth", "by-load", "by-length", "by-area", "in-order", "by-death",
    "first-fit", "first-fit-length", "first-fit-in-order", "first-fit-shelf",
)  # fmt: skip
SHARE_STRATEGIES = (
    "best", "naive", "equality", "in-order", "by-breadth", "by-size", "improved",
    "min-cost-flow", "counter", "coloring", "path-coloring",
)  # fmt: skip

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad", "lion")
PROFILES = ("minimal", "mxnet")
PARAM_GRADS = ("dynamic", "static")
ROUTES = ("export", "trace", "run")
FORMS = ("default", "for-loop", "foreach", "fused")

_F = TypeVar("_F", bound=Callable[..., Any])


def lines(names: tuple[str, ...]) -> str:
    """Names as an indented paragraph of a help text."""
    return textwrap.fill(", ".join(names), 62, break_on_hyphens=False).replace(
        "\n", "\n" + " " * 15
    )


def verb(
    name: str, *, example: str, more: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with an example in its help and `--traceback`."""

    def make(function: Callable[..., Any]) -> click.Command:
        command = click.command(name, epilog=f"{more}\n\b\nExample:\n  {example}")(function)
        command.params.append(traceback_option())
        return command

    return make


def stack(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Several options as one decorator, in the order of ``--help``."""

    def apply(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


def choice(flag: str, choices: tuple[str, ...], default: str, help: str) -> Callable[[_F], _F]:
    """An option that is one of a few words."""
    return click.option(
        flag, type=click.Choice(choices), default=default, show_default=True, help=help
    )


def time_limit(default: float, help: str) -> Callable[[_F], _F]:
    """The option ``--time-limit`` of a verb that searches."""
    return click.option(
        "--time-limit",
        type=Number(min=0, endless=True),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=help,
    )


def _trust(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from peakfold.boundary import trusting

        context.with_resource(trusting())


trust_option = click.option(
    "--trust",
    is_flag=True,
    expose_value=False,
    callback=_trust,
    help="Let PyTorch's own loader read a .pt2, which runs code of the file.",
)


def _strict(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from peakfold.boundary import being_strict

        context.with_resource(being_strict())


strict_option = click.option(
    "--strict",
    is_flag=True,
    expose_value=False,
    callback=_strict,
    help="Refuse a model of which anything is doubtful: exit code 1.",
)


def _route(context: click.Context, _: click.Parameter, asked: str | None) -> None:
    if asked:
        from peakfold.boundary import routed

        context.with_resource(routed(asked))


route_option = click.option(
    "--route",
    type=click.Choice(ROUTES),
    expose_value=False,
    callback=_route,
    help="How a torch module is followed: exported, traced, or run for real.",
)

model_argument = stack(
    click.argument("model", metavar="MODEL"), trust_option, strict_option, route_option
)

binding_options = stack(
    click.option(
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=N",
        help="Number for a symbolic dimension; repeatable.",
    ),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="TENSOR=AxBxC",
        help="Shape of an input or of any tensor the model leaves open; repeatable.",
    ),
)

fold_options = stack(
    click.option(
        "--no-fold", is_flag=True, help="Keep ops whose inputs are all known before the run."
    ),
    click.option(
        "--fold-weights",
        is_flag=True,
        help="Also fold casts and dequantisation of weights, which makes the weights larger.",
    ),
)

train_options = stack(
    click.option("--train", is_flag=True, help="Plan a training step: backward and optimizer."),
    click.option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        help="Update the parameters at the end [a file: none, a torch step: adamw].",
    ),
    click.option(
        "--loss",
        metavar="L",
        help="Of a file: external (gradients are given, default) or softmax-output. Of a torch "
        "step without its own: cross-entropy, mse, sum or module:function.",
    ),
    click.option(
        "--grad-reads",
        type=click.Choice(PROFILES),
        help="What backward ops read: the least, or what MXNet's layers did [minimal].",
    ),
    click.option("--input-grad", is_flag=True, help="Keep the gradients of the inputs, too."),
    click.option(
        "--param-grads",
        type=click.Choice(PARAM_GRADS),
        help="Gradients of parameters: made anew each step, or kept in holders.",
    ),
)


run_options = stack(
    click.option("--optimizer-form", type=click.Choice(FORMS),
                 help="Of a torch step: how the optimizer walks the parameters."),
    click.option("--accumulate", type=click.IntRange(min=1), metavar="N",
                 help="Of a torch step: batches before one update."),
    click.option("--autocast", type=click.Choice(("bfloat16", "float16")),
                 help="Of a torch step: element type of the forward pass."),
    click.option("--keep-result", is_flag=True,
                 help="Of a torch step: the loop holds the module's result until it is over."),
)  # fmt: skip

step_options = stack(
    run_options,
    click.option(
        "--kernels",
        type=click.Choice(("cpu", "cuda")),
        help="Of a torch step: whose kernels decide what is saved.",
    ),
    click.option(
        "--attention",
        type=click.Choice(("as-is", "fused", "math")),
        help="Of a torch step: which attention kernel.",
    ),
)


def take_step(flags: dict[str, Any]) -> dict[str, Any]:
    """The options of a torch step that flags give; takes them out of `flags`."""
    names = {
        "optimizer_form": "form",
        "accumulate": "accumulate",
        "autocast": "autocast",
        "kernels": "device",
        "attention": "attention",
        "keep_result": "keep_result",
    }
    taken = {field: flags.pop(name, None) for name, field in names.items()}
    return {field: value for field, value in taken.items() if value}


def torch_target(target: str, step: dict[str, Any], device: Device | None) -> str:
    """The target of a torch step: the one asked for, or else a GPU's when it runs on one."""
    if target == "generic" and "device" not in step and device is not None:
        return "torch-cuda" if device.kind == "gpu" else target
    return target


def step_of(
    optimizer: str | None, loss: str | None, given: dict[str, Any], target: str = "generic"
) -> StepOptions:
    """The torch step's options.

    Args:
        optimizer: its name; `None` = the step's default.
        loss: its name or ``module:function``, for a module that returns none.
        given: other fields of the options.
        target: whose kernels run, where it says so.

    Raises:
        UsageError: no such target, one that contradicts ``--kernels``, or no such loss.
    """
    from peakfold.target import load_target

    eager = load_target(target).eager
    if eager is not None:
        if given.get("device", eager.device) != eager.device:
            raise UsageError(
                f"--kernels {given['device']} contradicts --target {target}",
                hint="leave one of them out",
            )
        given = {"device": eager.device, "attention": eager.attention} | given
    import torch

    from peakfold.frontends.torch.training.step import StepOptions

    if "autocast" in given:
        given = given | {"autocast": getattr(torch, given["autocast"])}
    if loss is None or ":" not in loss:
        return StepOptions(optimizer=optimizer, loss=loss, **given)
    from peakfold.frontends.torch.load import load_function

    return StepOptions(optimizer=optimizer, loss=load_function(loss), **given)


def is_callable(model: str) -> bool:
    """Whether a model is ``package.module:callable``."""
    return ":" in model and not model.endswith((".onnx", ".tflite", ".pf", ".pt2"))


def take_training(flags: dict[str, Any]) -> Train | None:
    """The training step that flags ask for; takes them out of `flags`.

    Raises:
        UsageError: a flag of training without ``--train``.
    """
    asked = flags.pop("train")
    values = {
        "optimizer": flags.pop("optimizer"),
        "loss": flags.pop("loss"),
        "reads": flags.pop("grad_reads"),
        "input_grad": flags.pop("input_grad") or None,
        "param_grads": flags.pop("param_grads"),
    }
    given = {name: value for name, value in values.items() if value is not None}
    if not asked:
        if given:
            raise UsageError("options of training without --train", hint="add --train")
        return None
    from peakfold.transform import Train

    # MXNet kept gradients of parameters in arrays of their own, outside what it planned.
    held = {"param_grads": "static"} if given.get("reads") == "mxnet" else {}
    return Train(**(held | given))


align_option = click.option(
    "--align",
    type=click.IntRange(1, 2**30),
    metavar="BYTES",
    help="Alignment and padding of buffers, a power of two.",
)

target_option = click.option(
    "--target",
    default="generic",
    show_default=True,
    metavar="T",
    help="Runtime whose rules hold; `peakfold targets` lists them.",
)

device_option = click.option(
    "--device", metavar="D", help="Hardware to tell times for; `peakfold devices` lists it."
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
)
force_option = click.option("--force", is_flag=True, help="Overwrite files that exist.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No narration on stderr.")
