"""A training step, predicted without its memory and then measured with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from peakfold.analysis.cuda.footprint import Bytes
from peakfold.errors import UsageError
from peakfold.frontends.torch.training.forward import fake_forward, real_forward
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.step import fake_steps, real_steps
from peakfold.ir.run import Run, Steps
from peakfold.runtimes.torch.allocator import AllocationTracker
from peakfold.runtimes.torch.scratch import CpuScratch


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """One step, three ways; bytes, static memory included.

    Attributes:
        predicted: on tensors without memory, storages only.
        predicted_scratch: with the scratch of kernels; on a device, as its replayed allocator
            rounds them, with what libraries keep.
        tensors: storages followed through a real step.
        allocator: every allocation of a real step.
        phases: predicted and followed peak by phase.
        device: allocated and reserved by phase, predicted and as the device's allocator said;
            empty on a CPU.
        notes: what the prediction assumed.
    """

    predicted: int
    predicted_scratch: int
    tensors: int
    allocator: int
    phases: Mapping[str, tuple[int, int]]
    device: Mapping[str, tuple[Bytes, Bytes]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def reserved(self) -> tuple[int, int] | None:
        """Highest reserved bytes, predicted and measured; `None` on a CPU."""
        if not self.device:
            return None
        pairs = self.device.values()
        return max(one.reserved for one, _ in pairs), max(two.reserved for _, two in pairs)

    @property
    def tensor_error(self) -> float:
        """Of the prediction against storages really followed, a fraction."""
        return self.predicted / self.tensors - 1 if self.tensors else 0.0

    @property
    def allocator_error(self) -> float:
        """Of the prediction with scratch against the allocator, a fraction."""
        return self.predicted_scratch / self.allocator - 1 if self.allocator else 0.0


@dataclass(frozen=True, slots=True)
class TrainingMeasurement:
    """The first step and a steady one.

    Attributes:
        predicted: both on tensors without memory.
        outside: bytes of the device beside its allocator; `None` on a CPU.
    """

    first: StepMeasurement
    steady: StepMeasurement
    predicted: Steps
    outside: int | None = None


def measure_training(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    route: str = "",
) -> TrainingMeasurement:
    """Predict two steps, then run them for real: storages followed once, allocations once.

    Args:
        module: with its values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: of the step; the device profile must be the CPU's, since that is what runs.
        route: ``run`` predicts by an unwatched run in place of tensors without memory.

    Raises:
        UsageError: another device's profile.
        ModelError: the step failed.
    """
    options = options or StepOptions()
    on_this_cpu(options)
    if route == "run":
        loaded = plain = run_steps(module, args, kwargs, options)
    else:
        plain = fake_steps(module, args, kwargs, options)
        loaded = fake_steps(module, args, kwargs, options, workspace=CpuScratch())
    real = real_steps(module, args, kwargs, options)
    allocated = run_steps(module, args, kwargs, options)
    first, steady = (
        _measurement(one, two, three, four)
        for one, two, three, four in (
            (plain.first, loaded.first, real.first, allocated.first),
            (plain.steady, loaded.steady, real.steady, allocated.steady),
        )
    )
    return TrainingMeasurement(first, steady, loaded)


def run_steps(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
) -> Steps:
    """Two training steps really run on this CPU, recorded by torch's allocator alone.

    No mode and no subclass watches them, so that they take the course of any other run, and what
    values decide is decided by the inputs' own. They take the memory and the time they take.

    Args:
        module: with its values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: of the step; the kernels are this CPU's.

    Raises:
        UsageError: another device's kernels are asked for.
        ModelError: the step failed, or the module has no values.
    """
    options = options or StepOptions()
    on_this_cpu(options)
    return real_steps(module, args, kwargs, options, observe=AllocationTracker)


def run_forward(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
) -> Run:
    """A forward pass really run on this CPU, recorded by torch's allocator alone.

    Args:
        module: with its values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: the kernels are this CPU's.

    Raises:
        UsageError: another device's kernels are asked for.
        ModelError: the pass failed, or the module has no values.
    """
    options = options or StepOptions()
    on_this_cpu(options)
    return real_forward(module, args, kwargs, options, AllocationTracker)


def measure_forward(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    route: str = "",
) -> StepMeasurement:
    """Predict a forward pass without gradients, then run it: followed once, allocated once.

    Args:
        module: with its values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: the kernels are this CPU's.
        route: ``run`` predicts by an unwatched run in place of tensors without memory.

    Raises:
        UsageError: another device's kernels are asked for.
        ModelError: the pass failed.

    Example:
        >>> found = measure_forward(torch.nn.Linear(4, 3), (torch.zeros(2, 4),))
        >>> found.predicted, found.tensors, found.allocator
        (116, 116, 116)
    """
    allocated = run_forward(module, args, kwargs, options)
    if route == "run":
        loaded = plain = allocated
    else:
        plain = fake_forward(module, args, kwargs, options)
        loaded = fake_forward(module, args, kwargs, options, CpuScratch())
    return _measurement(plain, loaded, real_forward(module, args, kwargs, options), allocated)


def on_this_cpu(options: StepOptions) -> None:
    """Refuse the kernels of another device.

    Raises:
        UsageError: they are asked for.
    """
    if options.device != "cpu" or options.attention != "as-is":
        raise UsageError(
            "the CPU runs its own kernels", hint="without the route: run others are predicted"
        )


def _measurement(plain: Run, loaded: Run, real: Run, allocated: Run) -> StepMeasurement:
    plain = plain.without_scratch()
    return StepMeasurement(
        plain.peak,
        loaded.peak,
        real.peak,
        allocated.peak,
        both_peaks(plain, real),
        notes=plain.notes,
    )


def both_peaks(predicted: Run, followed: Run) -> dict[str, tuple[int, int]]:
    """The peaks of each phase, side by side."""
    one, two = predicted.phase_peaks(), followed.phase_peaks()
    return {phase: (one.get(phase, 0), two.get(phase, 0)) for phase in dict.fromkeys((*one, *two))}
