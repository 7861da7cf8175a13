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
from torch.utils._pytree import tree_map

from peakfold.errors import PeakfoldError
from peakfold.frontends.torch_asked import answered_as_plain
from peakfold.frontends.torch_casts import converted
from peakfold.frontends.torch_failure import failed_step
from peakfold.frontends.torch_fake import fake_module, fake_tree, real_copy, undisturbed
from peakfold.frontends.torch_following import FollowingMode
from peakfold.frontends.torch_kernels import device_kernels
from peakfold.frontends.torch_options import FORMS, OPTIMIZERS, StepOptions
from peakfold.frontends.torch_phases import detached, moved, one_step, state_of, tensors_of
from peakfold.frontends.torch_random import states_seen
from peakfold.frontends.torch_scope import ScopeTracker
from peakfold.frontends.torch_step_graph import StepGraph, step_graph
from peakfold.frontends.torch_storages import StorageTracker, Workspace
from peakfold.ir.run import Run, Steps
from peakfold.units import format_bytes

Kernels = Callable[[], AbstractContextManager[Any]]


def fake_steps(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None, workspace: Workspace | None = None,
) -> Steps:  # fmt: skip
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
        >>> steps = fake_steps(torch.nn.Linear(4, 3), (torch.zeros(2, 4),))
        >>> steps.steady.static_bytes, steps.steady.at_peak()["gradient"]
        (92, 60)
    """
    options = options or StepOptions()
    mode = FollowingMode()
    copied = fake_module(module, mode)
    inputs = fake_tree((tuple(args), dict(kwargs or {})), mode)
    with undisturbed(functions=device_kernels(options, fake=True)), answered_as_plain(), mode:
        steps = _steps(copied, inputs, options, workspace)
    return replace(steps, notes=(*steps.notes, *mode.notes()))


def real_steps(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None, device: str | None = None, kernels: Kernels | None = None,
) -> Steps:  # fmt: skip
    """The same on a real copy and the real inputs: the truth that `fake_steps` predicts.

    Args:
        module: with values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: of the step.
        device: where copy and inputs are moved to before.
        kernels: makes what a step runs under; by default the kernels of `options`.
    """
    options = options or StepOptions()
    copied, inputs = real_copy(module), (tuple(args), dict(kwargs or {}))
    if device is not None:
        copied, inputs = copied.to(device), moved(inputs, device)
    running = device_kernels(options, fake=False) if kernels is None else kernels()
    with undisturbed(on_cpu=False), running:
        return _steps(copied, inputs, options, None, real=True)


def _steps(
    module: torch.nn.Module, inputs: tuple[Any, Any], options: StepOptions,
    workspace: Workspace | None, *, real: bool = False,
) -> Steps:  # fmt: skip
    scopes = ScopeTracker(module)
    if workspace is None and options.device == "cpu":
        workspace = converted
    inputs = tree_map(detached, inputs)
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        optimizer = options.make(module.parameters())
        runs = []
        notes = dict.fromkeys(options.notes())
        for _ in range(2):
            tracker = StorageTracker(lambda: scopes.scope, workspace, cuda=options.device == "cuda")
            _existing(tracker, module, inputs, optimizer)
            try:
                with scopes, tracker, _states(options, tracker):
                    one_step(module, inputs, options, optimizer, tracker)
            except PeakfoldError:
                raise
            except Exception as error:  # the step runs the user's own code
                raise failed_step(module, error, real=real) from None
            runs.append(tracker.run())
            notes |= tracker.notes
    first, steady = runs
    notes |= dict.fromkeys(_kept(steady, tracker.run(results_kept=True)))
    return Steps(first, steady, tuple(notes))


def _states(options: StepOptions, tracker: StorageTracker) -> AbstractContextManager[None]:
    """States of the random generator lie in host memory: they count where the step does, too."""
    return states_seen(tracker.seen) if options.device == "cpu" else nullcontext()


def _kept(steady: Run, kept: Run) -> tuple[str, ...]:
    """What a loop needs more that holds the module's result while the step runs."""
    more = kept.peak - steady.peak
    if more <= steady.peak / _WORTH_SAYING:
        return ()
    exact = f" ({more} B)" if more >= 1024 else ""
    return (f"the module's result is let go of once the loss is known: a loop that keeps it "
            f"(out = model(x)) needs {format_bytes(more)}{exact} more",)  # fmt: skip


_WORTH_SAYING = 1000


def _existing(
    tracker: StorageTracker, module: torch.nn.Module, inputs: Any,
    optimizer: torch.optim.Optimizer,
) -> None:  # fmt: skip
    tracker.existing(module.parameters(), "parameter")
    tracker.existing(module.buffers(), "state")
    tracker.existing(tensors_of(inputs), "input")
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
