"""A training step on a CUDA device: predicted, then run, by the allocator's own statistics.

The device is reached through a small protocol, so that everything here but `CudaAllocator` runs
(and is tested) on machines without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from peakfold.analysis.cuda.footprint import Bytes, phase_footprints
from peakfold.errors import BackendMissing, UsageError
from peakfold.frontends.torch.fake import real_copy, real_tree, undisturbed
from peakfold.frontends.torch.training.loss_targets import targeted, with_target
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.phases import Nobody, moved, one_step
from peakfold.frontends.torch.training.step import fake_steps, real_steps
from peakfold.ir.run import Run
from peakfold.runtimes.torch.fit import on_device
from peakfold.runtimes.torch.measure import StepMeasurement, TrainingMeasurement, both_peaks


class Allocator(Protocol):
    """What is asked of a device and its caching allocator."""

    device: str

    def synchronize(self) -> None:
        """Wait until everything that was asked for has run."""

    def empty_cache(self) -> None:
        """Give segments back that hold nothing."""

    def forget_libraries(self) -> None:
        """Free the workspaces that libraries kept of what ran before."""

    def reset_peak(self) -> None:
        """From now on the peak is that of what follows; what is in use counts."""

    def now(self) -> Bytes:
        """In use."""

    def peak(self) -> Bytes:
        """Most since the last reset, figure by figure."""

    def outside(self) -> int:
        """Bytes of the device that neither are free nor belong to the allocator."""


class CudaAllocator:
    """The current CUDA device.

    Raises:
        BackendMissing: there is none.
    """

    device = "cuda"

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            built = torch.version.cuda is not None
            raise BackendMissing(
                "no CUDA device is here" if built else "this PyTorch is built without CUDA",
                hint="--device cpu measures on the CPU; plan --train --target torch-cuda predicts",
            )

    def synchronize(self) -> None:
        """Wait until everything that was asked for has run."""
        torch.cuda.synchronize()

    def empty_cache(self) -> None:
        """Give segments back that hold nothing."""
        torch.cuda.empty_cache()

    def forget_libraries(self) -> None:
        """Free cuBLAS's workspaces; it makes new ones at the next product."""
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)  # of CUDA builds only
        if clear is not None:
            clear()

    def reset_peak(self) -> None:
        """From now on the peak is that of what follows."""
        torch.cuda.reset_peak_memory_stats()

    def now(self) -> Bytes:
        """In use."""
        return Bytes(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())

    def peak(self) -> Bytes:
        """Most since the last reset."""
        return Bytes(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

    def outside(self) -> int:
        """What context and libraries take, and other processes."""
        free, total = torch.cuda.mem_get_info()
        return int(total - free - torch.cuda.memory_reserved())


class _Phases(Nobody):
    """Reads the allocator at the end of each phase."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._phase = ""
        self.peaks: dict[str, Bytes] = {}

    def begin(self, phase: str) -> None:
        """The phase before this one is over."""
        self.close()
        self._phase = phase
        self._allocator.reset_peak()

    def close(self) -> None:
        """Note the phase that runs."""
        self._allocator.synchronize()
        if self._phase:
            peak = self._allocator.peak()
            self.peaks[self._phase] = self.peaks.get(self._phase, peak) | peak
        self._phase = ""


@dataclass(frozen=True, slots=True)
class DeviceSteps:
    """What the allocator said of two steps.

    Attributes:
        first: highest bytes by phase.
        steady: likewise.
        outside: bytes of the device beside the allocator, after both.
        before: allocated bytes that were there before anything of the steps; not in the figures.
    """

    first: Mapping[str, Bytes]
    steady: Mapping[str, Bytes]
    outside: int
    before: int


def run_on_device(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    options: StepOptions,
    allocator: Allocator,
) -> DeviceSteps:
    """Run two steps of a copy of the module on a device.

    Between them the cache is emptied, so that the steady step is not charged for segments that
    only the first one needed.

    Args:
        module: is left as it is.
        args: positional example inputs.
        kwargs: keyword ones.
        options: of the step; its attention kernel is forced when it is ``math``.
        allocator: of the device it runs on.
    """
    options = targeted(module, args, kwargs, options)
    given = (tuple(args), dict(kwargs or {}))
    copies = [real_tree(given) for _ in range(2)]
    allocator.synchronize()
    allocator.forget_libraries()
    allocator.empty_cache()
    before = allocator.now().allocated
    copied = real_copy(module).to(allocator.device)
    found = []
    with undisturbed(on_cpu=False), torch.enable_grad():
        optimizer = options.make(copied.parameters())
        options, _ = with_target(options, copied)
        for _ in range(2):
            inputs = moved(copies.pop(), allocator.device)
            allocator.synchronize()
            allocator.empty_cache()
            phases = _Phases(allocator)
            with real_kernels(options):
                one_step(copied, inputs, options, optimizer, phases)
            phases.close()
            found.append(
                {
                    name: Bytes(peak.allocated - before, peak.reserved)
                    for name, peak in phases.peaks.items()
                }
            )
    return DeviceSteps(found[0], found[1], allocator.outside(), before)


def real_kernels(options: StepOptions) -> AbstractContextManager[Any]:
    """The device chooses its own kernels, but for an attention that is asked for."""
    if options.attention == "math":
        return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    return nullcontext()


def measure_on_device(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    options: StepOptions | None = None,
    allocator: Allocator | None = None,
) -> TrainingMeasurement:
    """Predict two training steps, then run them on a device.

    Three runs: on tensors without memory, on the device with every storage followed, and on the
    device with nothing but the allocator watching.

    Args:
        module: with values; left as it is.
        args: positional inputs.
        kwargs: keyword inputs.
        options: of the step, for the device's kernels.
        allocator: of the device; the current CUDA device if left out.

    Raises:
        UsageError: nothing to train, or options of a device without a caching allocator.
        BackendMissing: there is no CUDA device.
        ModelError: the step failed.
    """
    options = options or StepOptions(device="cuda", attention="fused")
    if options.rules.caching is None:
        raise UsageError("a CPU has no caching allocator", hint='StepOptions(device="cuda")')
    allocator = allocator or CudaAllocator()
    predicted = fake_steps(module, args, kwargs, options)
    loaded = on_device(predicted, options)
    measured = run_on_device(module, args, kwargs, options, allocator)
    followed = real_steps(
        module,
        args,
        kwargs,
        options,
        device=allocator.device,
        kernels=lambda: real_kernels(options),
    )
    return TrainingMeasurement(
        _step(predicted.first, loaded.first, followed.first, measured.first),
        _step(predicted.steady, loaded.steady, followed.steady, measured.steady),
        predicted,
        outside=measured.outside,
    )


def _step(plain: Run, loaded: Run, followed: Run, measured: Mapping[str, Bytes]) -> StepMeasurement:
    expected = phase_footprints(loaded)
    none = Bytes(0, 0)
    device = {
        phase: (expected.get(phase, none), measured.get(phase, none))
        for phase in dict.fromkeys((*expected, *measured))
    }
    return StepMeasurement(
        plain.peak,
        max(one.allocated for one, _ in device.values()),
        followed.peak,
        max(two.allocated for _, two in device.values()),
        both_peaks(plain, followed),
        device,
    )
