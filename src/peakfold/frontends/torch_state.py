"""An optimizer's state as its first update makes it."""

from __future__ import annotations

from typing import Any

import torch

from peakfold.frontends.torch_options import StepOptions
from peakfold.frontends.torch_phases import one_step
from peakfold.frontends.torch_storages import StorageTracker


def make_state(
    module: torch.nn.Module, inputs: tuple[Any, Any], options: StepOptions,
    optimizer: torch.optim.Optimizer,
) -> None:  # fmt: skip
    """The optimizer's state, which its first update makes.

    Any dense gradient does on fake tensors; an optimizer that refuses it gets those of a step.
    """
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)
    try:
        optimizer.step()
    except RuntimeError:
        optimizer.zero_grad(set_to_none=True)
        with StorageTracker() as nobody:
            one_step(module, inputs, options, optimizer, nobody)
    optimizer.zero_grad(set_to_none=True)
