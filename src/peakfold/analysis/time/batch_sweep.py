"""How the bounds of a model move with the batch size: weights are read once a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peakfold.analysis.time.roofline import Work, roofline
from peakfold.device import Device
from peakfold.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """The bounds at one batch size.

    Attributes:
        batch: samples.
        time_s: of the batch.
        per_sample_s: a sample's share.
        compute_share: share of the time that compute-bound ops take.
        intensity: operations a byte of the whole.
    """

    batch: int
    time_s: float
    per_sample_s: float
    compute_share: float
    intensity: float | None


def sweep(works: Sequence[Work], device: Device, batches: Iterable[int]) -> tuple[BatchPoint, ...]:
    """How the bounds move with the batch size: weights are read once a batch.

    Args:
        works: the ops at batch 1.
        device: where.
        batches: sizes to look at.

    Raises:
        UsageError: a batch below 1, or an op whose time is not known.
    """
    return tuple(_at(works, device, batch) for batch in batches)


def _at(works: Sequence[Work], device: Device, batch: int) -> BatchPoint:
    if batch < 1:
        raise UsageError(f"a batch of {batch} is below 1")
    scaled = [work.batched(batch) for work in works]
    found = roofline(scaled, device)
    if found.time_s is None or found.unknown:
        raise UsageError(f"{found.unknown} ops have no time on this device", where=device.name)
    flops = sum((work.flops or 0) * work.runs for work in scaled)
    moved = sum((work.bytes_moved or 0) * work.runs for work in scaled)
    return BatchPoint(
        batch=batch,
        time_s=found.time_s,
        per_sample_s=found.time_s / batch,
        compute_share=found.seconds["compute"] / found.time_s if found.time_s else 0.0,
        intensity=flops / moved if moved else None,
    )


def turning_batch(works: Sequence[Work], device: Device, most: int = 1 << 16) -> int | None:
    """The smallest batch at which compute-bound ops take half of the time; `None` = none does.

    That share never falls with the batch: compute grows with it, traffic at most so, since
    weights are read once a batch. So halving finds it.

    Args:
        works: the ops at batch 1.
        device: where.
        most: the largest batch to look at.

    Raises:
        UsageError: an op's time is not known.

    Example:
        >>> from peakfold.device import load_device
        >>> fc = Work(name="fc", kind="gemm", macs=4096000, other_ops=0,
        ...           bytes_moved=16404384, fixed_bytes=16384000)
        >>> turning_batch([fc], load_device("t4"))
        58
    """

    def turned(batch: int) -> bool:
        return _at(works, device, batch).compute_share >= 0.5

    if not works or not turned(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if turned(middle) else (middle, high)
    return high
