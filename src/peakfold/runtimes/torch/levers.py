"""Changes of a training step that keep its result (autocast rounds it), and what each costs.

A lever is offered where it changes what is held: fused attention only where a module attends by
torch's function, another walk of the optimizer only where the device would take them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from peakfold.analysis.cost.cost_delta import Spent, spent
from peakfold.device import Device
from peakfold.frontends.torch.module import Example
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.step_graph import StepGraph, step_graph

_MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class Lever:
    """A change.

    Attributes:
        what: in words.
        options: of the changed step.
        dims: numbers of its named dimensions.
        whole: it changes how much is done at once, not what.
    """

    what: str
    options: StepOptions
    dims: Mapping[str, int]
    whole: bool = False


def levers(
    options: StepOptions,
    dims: Mapping[str, int],
    name: str,
    batch: int | None,
    device: Device | None = None,
) -> Iterator[Lever]:
    """Changes near enough to the step, in the order of their cost; each alone.

    Args:
        options: of the step.
        dims: numbers of named dimensions.
        name: of the batch; empty = none has a name.
        batch: how large it is; `None` = not known.
        device: whose rates choose the type of autocast: float16 where only that has one.
    """
    if options.form == "default":
        yield Lever("optimizer one parameter at a time", replace(options, form="for-loop"), dims)
    if options.attention == "as-is":
        yield Lever("fused attention", replace(options, attention="fused"), dims)
    if options.autocast is None:
        low = "bfloat16" if device is None or device.rated("bfloat16") else "float16"
        yield Lever(f"autocast to {low}", replace(options, autocast=getattr(torch, low)), dims)
    parts = 2
    while name and batch is not None and batch % parts == 0 and parts <= _MOST_PARTS:
        yield Lever(
            f"batch in {parts} parts, accumulated",
            replace(options, accumulate=parts * options.accumulate),
            {**dims, name: batch // parts},
            whole=True,
        )
        parts *= 2


def step_cost(
    example: Example, options: StepOptions, dims: Mapping[str, int], device: Device | None
) -> Spent:
    """What a step's ops ask for.

    Of accumulated passes two are recorded: the first makes the gradients, each later one adds to
    them. The second is counted as often as it runs.

    Args:
        example: the module and its inputs.
        options: of the step.
        dims: numbers of named dimensions.
        device: where it runs.
    """
    args, kwargs = example.resized(dims)
    passes = options.accumulate
    asked = replace(options, accumulate=min(passes, 2))
    step = step_graph(example.module, args, kwargs, asked)
    again = _second_pass(step)
    return spent(step.graph, device, lambda op: passes - 1 if op in again else 1)


def _second_pass(step: StepGraph) -> range:
    """Positions of the ops of the second forward and backward pass."""
    begins = [at for phase, at in step.phases if phase == "forward"]
    update = next(at for phase, at in step.phases if phase == "optimizer")
    return range(begins[1], update) if len(begins) > 1 else range(0)
