"""The phases of one training step, whoever watches them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves

from peakfold.frontends.torch.dispatch_modes import OnesForValues
from peakfold.frontends.torch.objects import changed, tensors_of
from peakfold.frontends.torch.training.loss import loss_of
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.ir.run import Run


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


class Observer(Watcher, Protocol):
    """A watcher that makes a record of the run; active while it runs."""

    notes: dict[str, None]

    def __enter__(self) -> object:
        """The run begins."""

    def __exit__(self, *raised: Any) -> object:
        """It is over."""

    def existing(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """These are there before the run."""

    def run(self, *, results_kept: bool = False) -> Run:
        """What was recorded; as if the module's result were held to the end."""


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


def results_of(tree: Any) -> list[torch.Tensor]:
    """The tensors of a module's result that a loss may be made of: none that an object keeps."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def detached(tree: Any) -> Any:
    """The inputs as data: no gradient flows through them."""
    return changed(tree, torch.Tensor.detach)


def moved(tree: Any, device: str) -> Any:
    """A tree with its tensors on a device."""
    return changed(tree, lambda tensor: tensor.to(device))


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors that an optimizer keeps."""
    return tensors_of([list(entry.values()) for entry in optimizer.state.values()])


def one_step(
    module: torch.nn.Module,
    inputs: tuple[Any, Any],
    options: StepOptions,
    optimizer: torch.optim.Optimizer,
    tracker: Watcher,
) -> str:
    """One step, phases told to the tracker.

    Args:
        module: runs as it is.
        inputs: positional and keyword arguments.
        options: loss, accumulation, autocast.
        optimizer: of its parameters.
        tracker: already active.

    Returns:
        What the loss is, in words.
    """
    args, kwargs = inputs
    kept, said = None, ""
    for _ in range(options.accumulate):
        tracker.begin("forward")
        loss, said, kept = _forward(module, args, kwargs, options, tracker)
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
    del kept
    return said


def _forward(
    module: torch.nn.Module, args: Any, kwargs: Any, options: StepOptions, tracker: Watcher
) -> tuple[torch.Tensor, str, Any]:
    """The loss, what it is, and the result where it is kept."""
    with region_of(module, options):
        out = module(*args, **kwargs)
        tracker.returned(tensors_of(out))
        return *loss_of(out, results_of(out), options), out if options.keep_result else None


def region_of(module: torch.nn.Module, options: StepOptions) -> AbstractContextManager[Any]:
    """The region of autocast that the options ask for."""
    if options.autocast is None:
        return nullcontext()
    where = next((p.device.type for p in module.parameters()), "cpu")
    return torch.autocast(where, dtype=options.autocast)
