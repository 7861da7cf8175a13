"""The phases of one training step, whoever watches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves, tree_map

from peakfold.errors import UsageError
from peakfold.frontends.torch_modes import OnesForValues
from peakfold.frontends.torch_options import StepOptions


class Watcher(Protocol):
    """Who is told what a step is doing."""

    def begin(self, phase: str) -> None:
        """A phase begins."""

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """These living tensors have a role."""

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """The module returned these; whoever runs it may keep them."""

    def mark_saved(self) -> None:
        """What the forward pass made and still holds is saved for the backward pass."""


class Nobody:
    """A watcher that does not look."""

    def begin(self, phase: str) -> None:
        """Nothing."""

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Nothing."""

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """Nothing."""

    def mark_saved(self) -> None:
        """Nothing."""


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of a tree."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def detached(value: Any) -> Any:
    """A leaf of the inputs as data: no gradient flows through it."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def moved(tree: Any, device: str) -> Any:
    """A tree with its tensors on a device."""
    return tree_map(lambda t: t.to(device) if isinstance(t, torch.Tensor) else t, tree)


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors that an optimizer keeps."""
    return tensors_of([list(entry.values()) for entry in optimizer.state.values()])


def one_step(
    module: torch.nn.Module, inputs: tuple[Any, Any], options: StepOptions,
    optimizer: torch.optim.Optimizer, tracker: Watcher,
) -> None:  # fmt: skip
    """One step, phases told to the tracker.

    Args:
        module: runs as it is.
        inputs: positional and keyword arguments.
        options: loss, accumulation, autocast.
        optimizer: of its parameters.
        tracker: already active.
    """
    args, kwargs = inputs
    for _ in range(options.accumulate):
        tracker.begin("forward")
        loss = _forward(module, args, kwargs, options, tracker)
        tracker.mark([loss], "output")
        tracker.mark_saved()
        tracker.begin("backward")
        loss.backward()
        tracker.mark((p.grad for p in module.parameters() if p.grad is not None), "gradient")
        del loss
    tracker.begin("optimizer")
    with OnesForValues():
        optimizer.step()
    tracker.mark(state_of(optimizer), "optimizer_state")
    tracker.begin("after")
    optimizer.zero_grad(set_to_none=options.set_to_none)


def _forward(
    module: torch.nn.Module, args: Any, kwargs: Any, options: StepOptions, tracker: Watcher
) -> torch.Tensor:
    region: AbstractContextManager[Any] = nullcontext()
    if options.autocast is not None:
        where = next((p.device.type for p in module.parameters()), "cpu")
        region = torch.autocast(where, dtype=options.autocast)
    with region:
        out = module(*args, **kwargs)
        tracker.returned(tensors_of(out))
        return loss_of(out, options)


def loss_of(out: Any, options: StepOptions) -> torch.Tensor:
    """The loss of a module's result: as the options say, its own, or a sum.

    Raises:
        UsageError: no tensor of the result depends on a trainable parameter, or the
            loss is not one number.
    """
    given = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if options.loss is not None:
        given = options.loss(out)
    if options.loss is not None or isinstance(given, torch.Tensor):
        return _one_number(given)
    real = [t for t in tensors_of(out) if t.is_floating_point() and t.requires_grad]
    if not real:
        raise UsageError(
            "its result has no tensor that depends on a trainable parameter",
            hint="give the Example a loss: from the module's result to a scalar",
        )
    return real[0].sum()


def _one_number(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        raise UsageError(f"the loss is a {type(loss).__name__}, not a tensor")
    if loss.numel() != 1:
        raise UsageError(f"the loss has the shape {tuple(loss.shape)}, not one number",
                         hint="take its mean or its sum")  # fmt: skip
    return loss
