"""A training step, predicted without its memory and then measured with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from peakfold.errors import UsageError
from peakfold.frontends.torch_fake import real_copy, undisturbed
from peakfold.frontends.torch_step import StepOptions, fake_steps, one_step, real_steps
from peakfold.ir.run import Run, Steps
from peakfold.runtimes.torch.allocator import allocations, peak_of
from peakfold.runtimes.torch.scratch import CpuScratch


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """One step, three ways; bytes, static memory included.

    Attributes:
        predicted: on tensors without memory, storages only.
        predicted_scratch: with the scratch of kernels.
        tensors: storages followed through a real step.
        allocator: every allocation of a real step.
        phases: predicted and followed peak by phase.
    """

    predicted: int
    predicted_scratch: int
    tensors: int
    allocator: int
    phases: Mapping[str, tuple[int, int]]

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
    """The first step and a steady one."""

    first: StepMeasurement
    steady: StepMeasurement
    predicted: Steps


def measure_training(
    module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
) -> TrainingMeasurement:  # fmt: skip
    """Predict two steps, then run them for real: storages followed once, allocations once.

    Args:
        module: with its values; it is left as it is.
        args: positional inputs.
        kwargs: keyword ones.
        options: of the step; the device profile must be the CPU's, since that is what runs.

    Raises:
        UsageError: another device's profile.
        ModelError: the step failed.
    """
    options = options or StepOptions()
    if options.device != "cpu" or options.attention != "as-is":
        raise UsageError("the CPU runs its own kernels", hint="leave the device profile out")
    plain = fake_steps(module, args, kwargs, options)
    loaded = fake_steps(module, args, kwargs, options, workspace=CpuScratch())
    real = real_steps(module, args, kwargs, options)
    allocated = _allocated(module, (tuple(args), dict(kwargs or {})), options)
    first, steady = (
        _measurement(one, two, three, four)
        for one, two, three, four in (
            (plain.first, loaded.first, real.first, allocated[0]),
            (plain.steady, loaded.steady, real.steady, allocated[1]),
        )
    )
    return TrainingMeasurement(first, steady, loaded)


def _measurement(plain: Run, loaded: Run, real: Run, allocated: int) -> StepMeasurement:
    one, two = plain.phase_peaks(), real.phase_peaks()
    phases = {
        phase: (one.get(phase, 0), two.get(phase, 0)) for phase in dict.fromkeys((*one, *two))
    }
    return StepMeasurement(
        plain.peak, loaded.peak, real.peak, real.static_bytes + allocated, phases
    )


class _Nobody:
    """A watcher that does not look."""

    def begin(self, phase: str) -> None:
        """Nothing."""

    def mark(self, tensors: Iterable[torch.Tensor], role: str) -> None:
        """Nothing."""

    def mark_saved(self) -> None:
        """Nothing."""


def _allocated(module: torch.nn.Module, inputs: tuple[Any, Any], options: StepOptions) -> list[int]:
    """Highest bytes that each of two steps allocates above what was there before it."""
    copied = real_copy(module)
    found = []
    with undisturbed(on_cpu=False), torch.enable_grad():
        optimizer = options.make(copied.parameters())
        for _ in range(2):
            changes = allocations(lambda: one_step(copied, inputs, options, optimizer, _Nobody()))
            found.append(peak_of(changes)[0])
    return found
