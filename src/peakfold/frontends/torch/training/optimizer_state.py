"""An optimizer's state as its first update makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from peakfold.frontends.torch.fake import fake_like
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.phases import one_step
from peakfold.frontends.torch.training.storages import StorageTracker


def make_state(
    module: torch.nn.Module,
    inputs: tuple[Any, Any],
    options: StepOptions,
    optimizer: torch.optim.Optimizer,
    mode: FakeTensorMode,
) -> None:
    """Give an optimizer the state that its first update makes.

    A twin of the optimizer updates meta tensors, which no mode slows down, and its state is
    taken over. Where that cannot be (kernels that no meta tensor has, an optimizer that does not
    take the parameters it is given, or refuses dense gradients), a first step is run.

    Args:
        module: with fake parameters.
        inputs: of the step.
        options: of the step; its optimizer function is called a second time.
        optimizer: of the module's parameters.
        mode: of the fake tensors; active.
    """
    held = [p for group in optimizer.param_groups for p in group["params"]]
    alike = _alike(optimizer) if not callable(options.optimizer) else list(range(len(held)))
    firsts = sorted(set(alike))
    twin = _updated_twin([held[at] for at in firsts], options)
    if twin is None:
        with StorageTracker() as nobody:
            one_step(module, inputs, options, optimizer, nobody)
        optimizer.zero_grad(set_to_none=True)
        return
    twins = [p for group in twin.param_groups for p in group["params"]]
    for parameter, first in zip(held, alike, strict=True):
        other = twins[firsts.index(first)]
        if other in twin.state:
            made: dict[int, Any] = {}  # one tensor under two keys stays one
            optimizer.state[parameter] = {
                key: _taken(value, mode, made) for key, value in twin.state[other].items()
            }
    for group, other in zip(optimizer.param_groups, twin.param_groups, strict=True):
        group.update({k: v for k, v in other.items() if isinstance(v, int | float | str)})


def _alike(optimizer: torch.optim.Optimizer) -> list[int]:
    """For each parameter the first of its kind: torch's own optimizers treat both the same."""
    found: dict[Any, int] = {}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    return [
        found.setdefault((tuple(p.shape), p.stride(), p.dtype), at) for at, p in enumerate(held)
    ]


def _updated_twin(
    held: Sequence[torch.nn.Parameter], options: StepOptions
) -> torch.optim.Optimizer | None:
    """An optimizer of meta tensors like these, after one update; `None` where it cannot be."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.enable_grad():
        twins = [torch.nn.Parameter(_meta(p)) for p in held]
        try:
            twin = options.make(twins)
            taken = [p for group in twin.param_groups for p in group["params"]]
            if [id(p) for p in taken] != [id(p) for p in twins]:
                return None
            for parameter in twins:
                parameter.grad = _meta(parameter)
            twin.step()
        except Exception:  # whatever it is, a first step runs instead, and says it
            return None
        return twin


def _meta(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tuple(like.shape), like.stride(), dtype=like.dtype, device="meta")


def _taken(value: Any, mode: FakeTensorMode, made: dict[int, Any]) -> Any:
    """A value of the twin's state as the optimizer's own; a counter stays a known number."""
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) in made:
        return made[id(value)]
    with torch._C.DisableTorchFunction():
        if value.device.type == "cpu" and value.numel() == 1:
            made[id(value)] = torch.tensor(value.tolist(), dtype=value.dtype)
        else:
            with _disable_current_modes():
                made[id(value)] = fake_like(value, mode, {})
    return made[id(value)]
