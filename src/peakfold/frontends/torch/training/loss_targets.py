"""Targets of a loss by name: the result says their shape, so the module is run once before."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from peakfold.errors import ModelError, PeakfoldError
from peakfold.frontends.torch.failure import failed_step
from peakfold.frontends.torch.fake import fake_module, fake_tree, real_copy, real_tree, undisturbed
from peakfold.frontends.torch.training.device_kernels import device_kernels
from peakfold.frontends.torch.training.loss import TARGETED, Aimed, aim
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.phases import region_of, results_of
from peakfold.frontends.torch.unwatched.askers import answered_as_plain
from peakfold.frontends.torch.unwatched.following import FollowingMode


def targeted(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    options: StepOptions,
) -> StepOptions:
    """Options whose loss by name knows what it needs; others are left as they are.

    A copy of the module is run once on tensors without memory; where values decide its course,
    once on its own.

    Args:
        module: is left as it is.
        args: positional example inputs.
        kwargs: keyword ones.
        options: of the step.

    Raises:
        UsageError: the result suits no such loss.
        ModelError: the forward pass failed.
    """
    if options.loss not in TARGETED:
        return options
    given = (tuple(args), dict(kwargs or {}))
    try:
        found = _aimed(module, given, options, real=False)
    except ModelError as error:
        try:
            found = _aimed(module, given, options, real=True)
        except ModelError:
            raise error from None
    return replace(options, loss=found)


def with_target(
    options: StepOptions, module: torch.nn.Module
) -> tuple[StepOptions, list[torch.Tensor]]:
    """The options with the target that their loss needs, and it: one more input of the module."""
    if not isinstance(options.loss, Aimed):
        return options, []
    made = options.loss.made(next((p.device for p in module.parameters()), torch.device("cpu")))
    return replace(options, loss=made), [] if made.target is None else [made.target]


def _aimed(
    module: torch.nn.Module, given: tuple[Any, Any], options: StepOptions, *, real: bool
) -> Aimed:
    mode = None if real else FollowingMode()
    copied = real_copy(module) if mode is None else fake_module(module, mode)
    args, kwargs = real_tree(given) if mode is None else fake_tree(given, mode)
    kernels = None if real else device_kernels(options, fake=True)
    with (
        undisturbed(on_cpu=not real, functions=kernels),
        nullcontext() if real else answered_as_plain(),
        mode or nullcontext(),
        warnings.catch_warnings(),
        torch.enable_grad(),
    ):
        warnings.simplefilter("ignore")
        try:
            with region_of(copied, options):
                out = copied(*args, **kwargs)
        except PeakfoldError:
            raise
        except Exception as error:  # the forward pass is the user's own code
            raise failed_step(copied, error, real=real) from None
        return aim(out, results_of(out), str(options.loss), options.autocast)
