"""A plain forward pass as eager PyTorch runs it, without gradients: what it holds, and when.

The same trackers follow it as follow a training step. The result is held until the pass is over,
as whoever called the module holds it. A model that generates is followed a call at a time: each
cache length is a forward pass of its own, with the cache among the inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from peakfold.errors import PeakfoldError
from peakfold.frontends.torch.failure import failure, with_gradients_if_wanted
from peakfold.frontends.torch.fake import fake_module, fake_tree, real_copy, real_tree, undisturbed
from peakfold.frontends.torch.objects import tensors_of
from peakfold.frontends.torch.scope import ScopeTracker
from peakfold.frontends.torch.training.device_kernels import device_kernels
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.phases import region_of
from peakfold.frontends.torch.training.step import Observe, existing, unmeasured, watched
from peakfold.frontends.torch.training.storages import Workspace
from peakfold.frontends.torch.unwatched.askers import answered_as_plain
from peakfold.frontends.torch.unwatched.following import FollowingMode
from peakfold.ir.run import Run


def fake_forward(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    workspace: Workspace | None = None,
) -> Run:
    """One forward pass of a copy of the module on fake tensors, gradients not recorded.

    Args:
        module: any module, in the mode it is in; meta and fake ones, too. It is left as it is.
        args: positional example inputs; what small ones hold may decide sizes and branches.
        kwargs: keyword ones.
        options: whose kernels run, and autocast; the rest is of training.
        workspace: scratch of a call, where it is known.

    Raises:
        ModelError: the pass failed; names the module and the line.

    Example:
        >>> run = fake_forward(torch.nn.Linear(4, 3), (torch.zeros(2, 4),))
        >>> run.static_bytes, run.peak, run.at_peak()["output"]
        (92, 116, 24)
    """
    chosen = options or StepOptions()
    watch = watched(workspace, chosen.device)

    def passed(gradients: bool) -> Run:
        mode = FollowingMode()
        copied = fake_module(module, mode)
        inputs = fake_tree((tuple(args), dict(kwargs or {})), mode)
        kernels = device_kernels(chosen, fake=True)
        with undisturbed(functions=kernels, gradients=gradients), answered_as_plain(), mode:
            run = _forward(copied, inputs, chosen, watch, "on tensors without values")
        left_out = unmeasured(workspace, chosen.device)
        return replace(run, notes=(*run.notes, *left_out, *mode.notes()))

    run, said = with_gradients_if_wanted(passed)
    return replace(run, notes=(*run.notes, *said))


def real_forward(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    observe: Observe | None = None,
) -> Run:
    """The same on a real copy and the real inputs: the truth that `fake_forward` predicts.

    Args:
        module: with values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: of the pass.
        observe: makes who watches it; by default a mode that follows storages.
    """
    chosen = options or StepOptions()
    watch = observe or watched(device=chosen.device)

    def passed(gradients: bool) -> Run:
        copied, inputs = real_copy(module), real_tree((tuple(args), dict(kwargs or {})))
        kernels = device_kernels(chosen, fake=False)
        with undisturbed(on_cpu=False, gradients=gradients), kernels:
            return _forward(copied, inputs, chosen, watch, "run for real")

    run, said = with_gradients_if_wanted(passed)
    return replace(run, notes=(*run.notes, *said))


def _forward(
    module: torch.nn.Module,
    inputs: tuple[Any, Any],
    options: StepOptions,
    observe: Observe,
    how: str,
) -> Run:
    scopes = ScopeTracker(module)
    tracker = observe(scopes)
    existing(tracker, module, inputs)
    args, kwargs = inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with scopes, tracker:
                tracker.begin("forward")
                with region_of(module, options):
                    out = module(*args, **kwargs)
                tracker.mark(tensors_of(out), "output")
        except PeakfoldError:
            raise
        except Exception as error:  # the forward pass is the user's own code
            hint = "check that it runs in torch alone; --route run follows what values decide"
            raise failure(module, error, f"a forward pass {how}", hint) from None
    return replace(tracker.run(), notes=tuple(tracker.notes))
