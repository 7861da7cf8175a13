"""A whole training step, run on tensors without memory: what a plain eager run would hold.

Forward pass, loss, backward pass and optimizer are the user's own code and torch's own autograd;
only the tensors are fake. References die exactly as in a real run, so the history of storages is
a real run's, for a model of any size. Two steps are run: the first makes the optimizer's state.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from peakfold.errors import PeakfoldError
from peakfold.frontends.torch.failure import failed_step
from peakfold.frontends.torch.fake import fake_module, fake_tree, real_copy, real_tree, undisturbed
from peakfold.frontends.torch.objects import tensors_of
from peakfold.frontends.torch.scope import ScopeTracker
from peakfold.frontends.torch.training.device_kernels import device_kernels
from peakfold.frontends.torch.training.generator_states import states_seen
from peakfold.frontends.torch.training.loss_targets import targeted, with_target
from peakfold.frontends.torch.training.operand_casts import converted
from peakfold.frontends.torch.training.options import FORMS, OPTIMIZERS, StepOptions
from peakfold.frontends.torch.training.phases import Observer, detached, moved, one_step, state_of
from peakfold.frontends.torch.training.step_graph import StepGraph, step_graph
from peakfold.frontends.torch.training.storages import StorageTracker, Workspace
from peakfold.frontends.torch.unwatched.askers import answered_as_plain
from peakfold.frontends.torch.unwatched.following import FollowingMode
from peakfold.ir.run import Run, Steps

Kernels = Callable[[], AbstractContextManager[Any]]
Observe = Callable[[ScopeTracker], Observer]


def fake_steps(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    workspace: Workspace | None = None,
) -> Steps:
    """Two training steps of a copy of the module on fake tensors.

    Args:
        module: any module; meta and fake ones, too. It is left as it is.
        args: positional example inputs; what small ones hold may decide sizes and branches.
        kwargs: keyword ones.
        options: of the step.
        workspace: scratch of a call; by default what a CPU's kernels convert.

    Raises:
        UsageError: nothing to train, or an unknown option.
        ModelError: the step failed; names the module and the line.

    Example:
        >>> options = StepOptions(optimizer="sgd", loss="sum")
        >>> steps = fake_steps(torch.nn.Linear(4, 3), (torch.zeros(2, 4),), options=options)
        >>> steps.steady.static_bytes, steps.steady.at_peak()["gradient"]
        (92, 60)
    """
    options = targeted(module, args, kwargs, options or StepOptions())
    mode = FollowingMode()
    copied = fake_module(module, mode)
    given = (tuple(args), dict(kwargs or {}))
    inputs = [fake_tree(given, mode) for _ in range(2)]
    with undisturbed(functions=device_kernels(options, fake=True)), answered_as_plain(), mode:
        steps = _steps(copied, inputs.pop, options, watched(workspace, options.device))
    return replace(
        steps, notes=(*steps.notes, *unmeasured(workspace, options.device), *mode.notes())
    )


def unmeasured(workspace: Workspace | None, device: str) -> tuple[str, ...]:
    """What to say of scratch that nobody measured."""
    return () if workspace is not None else (_UNMEASURED[device],)


_UNMEASURED = {
    "cpu": "scratch of kernels is left out, but for what they convert; `measure` measures it",
    "cuda": "scratch of kernels is left out; on the device `measure` measures it",
}


def real_steps(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    device: str | None = None,
    kernels: Kernels | None = None,
    observe: Observe | None = None,
) -> Steps:
    """The same on a real copy and the real inputs: the truth that `fake_steps` predicts.

    Args:
        module: with values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: of the step.
        device: where copy and inputs are moved to before.
        kernels: makes what a step runs under; by default the kernels of `options`.
        observe: makes who watches a step; by default a mode that follows storages.
    """
    options = targeted(module, args, kwargs, options or StepOptions())
    copied, given = real_copy(module), (tuple(args), dict(kwargs or {}))
    if device is not None:
        copied = copied.to(device)

    def inputs() -> tuple[Any, Any]:
        copies: tuple[Any, Any] = real_tree(given)
        if device is not None:
            copies = moved(copies, device)
        return copies

    running = device_kernels(options, fake=False) if kernels is None else kernels()
    with undisturbed(on_cpu=False), running:
        return _steps(copied, inputs, options, observe or watched(device=options.device), real=True)


def watched(workspace: Workspace | None = None, device: str = "cpu") -> Observe:
    """What makes modes that follow the storages of a run, and the scratch of its calls.

    Args:
        workspace: scratch of a call; by default what a CPU's kernels convert, on a CPU.
        device: whose kernels run.
    """
    if workspace is None and device == "cpu":
        workspace = converted
    cuda = device == "cuda"
    return lambda scopes: StorageTracker(lambda: scopes.scope, workspace, cuda=cuda)


def _steps(
    module: torch.nn.Module,
    given: Callable[[], tuple[Any, Any]],
    options: StepOptions,
    observe: Observe,
    *,
    real: bool = False,
) -> Steps:
    """Two steps, each on inputs as they were given: a cache among them begins anew."""
    scopes = ScopeTracker(module)
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        optimizer = options.make(module.parameters())
        options, targets = with_target(options, module)
        runs, said = [], ""
        notes = dict.fromkeys(options.notes())
        for _ in range(2):
            inputs = detached(given())
            tracker = observe(scopes)
            existing(tracker, module, (inputs, targets), optimizer)
            try:
                with scopes, tracker, _states(options, tracker):
                    said = one_step(module, inputs, options, optimizer, tracker)
            except PeakfoldError:
                raise
            except Exception as error:  # the step runs the user's own code
                raise failed_step(module, error, real=real) from None
            runs.append(tracker.run())
            notes |= tracker.notes
    first, steady = runs
    kept = tracker.run(results_kept=True).peak - steady.peak
    return Steps(first, steady, tuple(notes), said, options.told(), kept)


def _states(options: StepOptions, tracker: Observer) -> AbstractContextManager[None]:
    """States of the random generator lie in host memory: they count where the step does, too."""
    if isinstance(tracker, StorageTracker) and options.device == "cpu":
        return states_seen(tracker.seen)
    return nullcontext()


def existing(
    tracker: Observer,
    module: torch.nn.Module,
    inputs: Any,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Tell a watcher what is there before a run."""
    tracker.existing(module.parameters(), "parameter")
    tracker.existing(module.buffers(), "state")
    tracker.existing(tensors_of(inputs), "input")
    if optimizer is not None:
        tracker.existing(state_of(optimizer), "optimizer_state")
    tracker.existing((p.grad for p in module.parameters() if p.grad is not None), "gradient")


@dataclass(frozen=True, slots=True)
class Difference:
    """A prediction beside the truth, bytes above what was there before the step."""

    predicted: int
    measured: int
    phases: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Of the peak, as a fraction of the truth."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


def compare(predicted: Run, measured: Run) -> Difference:
    """The peaks of two runs of one step, whole and by phase, static memory included."""
    one, two = predicted.phase_peaks(), measured.phase_peaks()
    both = dict.fromkeys((*one, *two))
    phases = {phase: (one.get(phase, 0), two.get(phase, 0)) for phase in both}
    return Difference(predicted.peak, measured.peak, phases)


__all__ = ["FORMS", "OPTIMIZERS", "Difference", "StepGraph", "StepOptions", "compare",
           "fake_steps", "one_step", "real_steps", "step_graph"]  # fmt: skip
