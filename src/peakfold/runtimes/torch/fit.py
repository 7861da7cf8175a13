"""Will a training run fit a device, and how large a batch: answered by real captures.

Peak against batch is a maximum of lines, with kinks where another phase becomes the peak, so
nothing is extrapolated: every batch that is asked about is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from peakfold.analysis.cuda.caching_allocator import Footprint
from peakfold.analysis.cuda.footprint import cuda_footprint, with_libraries
from peakfold.errors import ModelError, UsageError
from peakfold.frontends.torch.module import Example, input_names
from peakfold.frontends.torch.objects import tensors_of
from peakfold.frontends.torch.training.forward import fake_forward
from peakfold.frontends.torch.training.options import StepOptions
from peakfold.frontends.torch.training.step import fake_steps
from peakfold.ir.run import Run, Steps
from peakfold.runtimes.torch.measure import run_forward, run_steps

_MOST: Final = 1 << 20
ALIKE: Final = 3
"""Accumulated passes that are run: from the second on each finds the gradients and adds to them,
so that more of them take no more memory."""


RUN: Final = (
    "really run, at the example's size, on this CPU: every allocation of it is counted, scratch of "
    "kernels included; it took the memory and the time of the model"
)


@dataclass(frozen=True, slots=True)
class Room:
    """Whether steps fit a memory.

    Attributes:
        need: bytes: segments of the replayed allocator and the context on a GPU, live bytes on
            a CPU; the larger of both steps.
        have: bytes of the device.
        fits: the allocator finds room for every request.
    """

    need: int
    have: int
    fits: bool


def own_options(example: Example, options: StepOptions) -> StepOptions:
    """The options with the example's own loss and optimizer, where it has them."""
    return replace(
        options, loss=example.loss or options.loss, optimizer=example.optimizer or options.optimizer
    )


def steps_of(
    example: Example,
    options: StepOptions,
    dims: Mapping[str, int],
    workspace: Callable[[Any, Any, Any], int] | None = None,
) -> Steps:
    """Two steps of an example at these numbers for its named dimensions.

    Raises:
        UsageError: numbers for an example that is really run (``route="run"``).
    """
    run = replace(options, accumulate=min(options.accumulate, ALIKE))
    if example.route == "run":
        _own_size(dims)
        steps = run_steps(example.module, example.args, example.kwargs, run)
        return replace(steps, notes=(*options.notes(), RUN))
    args, kwargs = example.resized(dims)
    steps = fake_steps(example.module, args, kwargs, run, workspace)
    found = [note for note in steps.notes if note not in run.notes()]
    return replace(steps, notes=(*options.notes(), *found))


def forward_of(example: Example, options: StepOptions, dims: Mapping[str, int]) -> Run:
    """A forward pass of an example without gradients.

    Raises:
        UsageError: numbers for an example that is really run (``route="run"``).
    """
    if example.route == "run":
        _own_size(dims)
        run = run_forward(example.module, example.args, example.kwargs, options)
        return replace(run, notes=(RUN,))
    args, kwargs = example.resized(dims)
    return fake_forward(example.module, args, kwargs, options)


def _own_size(dims: Mapping[str, int]) -> None:
    if dims:
        raise UsageError(
            "what is run has the size of its example", hint="leave --dim out, or the route: run"
        )


_COUNTER: Final = 8
"""Bytes of an optimizer's count of steps, at most."""


def on_device(steps: Steps, options: StepOptions) -> Steps:
    """Steps as the device's allocator sees them.

    Libraries keep workspaces beside tensors, and optimizers that are not fused count their steps
    on the host. (A state of at most two numbers, of a parameter as small, is taken for a count.)
    """

    def seen(run: Run, *, first: bool) -> Run:
        run = with_libraries(run, options.rules, first=first)
        if options.rules.step_counters == "device" or options.form == "fused":
            return run
        kept = [s for s in run.storages if s.role != "optimizer_state" or s.nbytes > _COUNTER]
        return replace(run, storages=tuple(kept))

    return replace(
        steps, first=seen(steps.first, first=True), steady=seen(steps.steady, first=False)
    )


def footprints(
    steps: Steps, capacity: int | None = None, *, expandable: bool = False
) -> tuple[Footprint, Footprint]:
    """Of the first and the steady step.

    Args:
        steps: as `on_device` gives them.
        capacity: bytes that segments may take.
        expandable: with expandable segments.
    """
    return (
        cuda_footprint(steps.first, capacity, expandable=expandable),
        cuda_footprint(steps.steady, capacity, expandable=expandable),
    )


def room(steps: Steps, options: StepOptions, have: int) -> Room:
    """Whether steps fit.

    Args:
        steps: the first and a steady one.
        options: whose device profile says what allocates.
        have: bytes of the device.
    """
    context = options.rules.context_bytes
    if options.rules.caching is None:
        need = max(steps.first.peak, steps.steady.peak) + context
        return Room(need, have, need <= have)
    steps = on_device(steps, options)
    need = max(f.reserved for f in footprints(steps)) + context
    if need <= have:
        return Room(need, have, True)
    # Caches are emptied before a request fails, so less may do.
    tight = footprints(steps, max(have - context, 0))
    fits = all(f.fits for f in tight)
    return Room(min(need, have) if fits else need, have, fits)


def batch_name(example: Example) -> str:
    """The named dimension that is the batch.

    Raises:
        UsageError: none or several are named and none is called batch.
    """
    if example.route == "run":
        raise UsageError(
            "a step that is run has the size of its example",
            hint="the batch is asked about without the route: run",
        )
    names = {label for axes in example.dynamic.values() for label in axes.values()}
    if "batch" in names or len(names) == 1:
        return "batch" if "batch" in names else next(iter(names))
    raise UsageError(
        "no dimension is called batch" if names else "no dimension of the example has a name",
        hint='return an Example with dynamic={"x": {0: "batch"}} for each input',
    )


def batch_number(example: Example, name: str, dims: Mapping[str, int]) -> int | None:
    """How large the batch is: the number given, or else that of the example's inputs."""
    if name in dims:
        return dims[name]
    args, kwargs = tuple(example.args), dict(example.kwargs)
    named = zip(input_names(example.module, args, kwargs), tensors_of((args, kwargs)), strict=False)
    for called, tensor in named:
        for axis, label in example.dynamic.get(called, {}).items():
            if label == name:
                return int(tensor.shape[axis])
    return None


def largest_batch(
    example: Example, options: StepOptions, have: int, dims: Mapping[str, int] | None = None
) -> int:
    """The largest batch that fits, by bisection on captures; 0 when none does.

    Args:
        example: with a named batch.
        options: of the step.
        have: bytes of the device.
        dims: numbers for other named dimensions.

    Raises:
        UsageError: the batch has no name.
    """
    name = batch_name(example)

    def fits(batch: int) -> bool:
        return _fits(example, options, have, {**(dims or {}), name: batch}, batch)

    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= _MOST and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def devices_needed(
    example: Example, options: StepOptions, have: int, dims: Mapping[str, int]
) -> int | None:
    """How many devices share the batch in data parallel, each with all of the model.

    Args:
        example: with a named batch.
        options: of the step.
        have: bytes of one device.
        dims: numbers, that of the batch among them.

    Returns:
        The number; `None` when even one sample does not fit, or the batch has no number.
    """
    name = batch_name(example)
    batch = batch_number(example, name, dims)
    if batch is None:
        return None

    def fits(devices: int) -> bool:
        each = -(-batch // devices)
        return _fits(example, options, have, {**dims, name: each}, each)

    low, high = 0, 1
    while not fits(high):
        if high >= batch:
            return None
        low, high = high, min(2 * high, batch)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _fits(
    example: Example, options: StepOptions, have: int, dims: Mapping[str, int], batch: int
) -> bool:
    """Whether steps of a batch fit."""
    try:
        return room(steps_of(example, options, dims), options, have).fits
    except ModelError:
        if batch > 1:
            raise
        return True  # batch statistics of one value: asked about from 2 on
