"""Time bounds from peaks: no op is faster than its arithmetic, its bytes or its launch.

    time >= max(operations / peak of the engine that runs them, bytes / bandwidth, launch)

(Williams, Waterman and Patterson 2009). The peak is that of the op's element type on the engine
that really runs it, so a depthwise convolution or a softmax is not rated at tensor-core speed
(R73). What a device does not state is not assumed: the bound then rests on the rest, and an op
of which nothing is known has no time, which the total says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from peakfold.device import Device
from peakfold.errors import UsageError

Bound = Literal["compute", "memory", "launch"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "launch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one op asks of a device; `None` = not known, never zero.

    Attributes:
        name: the op.
        kind: its kind.
        macs: multiply-accumulates (2 operations each), on the op's engine.
        other_ops: operations beside them, on the vector engine.
        bytes_moved: read and written.
        fixed_bytes: the part of `bytes_moved` that is the same at any batch size (weights).
        engine: ``matrix``, ``vector``, ``copy`` or ``none``.
        dtype: element type of the arithmetic.
        runs: how often it runs (in the body of a loop); the figures are those of one run.
    """

    name: str
    kind: str
    macs: int | None
    other_ops: int | None
    bytes_moved: int | None
    fixed_bytes: int = 0
    engine: str = "vector"
    dtype: str = "float32"
    runs: int = 1

    @property
    def flops(self) -> int | None:
        """Operations: two a multiply-accumulate, one each for the others (R63, R65)."""
        if self.macs is None or self.other_ops is None:
            return None
        return 2 * self.macs + self.other_ops

    @property
    def intensity(self) -> float | None:
        """Operations a byte (R79)."""
        if self.flops is None or not self.bytes_moved:
            return None
        return self.flops / self.bytes_moved

    def batched(self, times: float) -> Work:
        """This op at a batch so many times as large: weights are read once a batch.

        Example:
            >>> fc = Work(name="fc", kind="gemm", macs=6, other_ops=0, bytes_moved=11,
            ...           fixed_bytes=6)
            >>> fc.batched(4).macs, fc.batched(4).bytes_moved
            (24, 26)
        """
        moved = self.bytes_moved
        if moved is not None:
            fixed = min(self.fixed_bytes, moved)
            moved = fixed + round((moved - fixed) * times)
        return replace(
            self,
            macs=None if self.macs is None else round(self.macs * times),
            other_ops=None if self.other_ops is None else round(self.other_ops * times),
            bytes_moved=moved,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """The bound of one op.

    Attributes:
        work: the op.
        compute_s: seconds of arithmetic at peak, all runs; `None` = not known.
        memory_s: seconds of traffic at full bandwidth, all runs; `None` = not known.
        time_s: the largest of what is known, launches included; `None` = nothing is known.
        bound: which one that is; `None` for an op that takes no time.
        partial: whether something that could be larger is not known.
        rated: the rate used for its multiply-accumulates, such as ``matrix float16``.
    """

    work: Work
    compute_s: float | None
    memory_s: float | None
    time_s: float | None
    bound: Bound | None
    partial: bool
    rated: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The bounds of a model's ops on a device, one op after the other.

    Attributes:
        device: its name.
        ops: one for each op, in order.
        time_s: their sum; `None` when no op's time is known.
        unknown: ops without any time.
        partial: ops whose time leaves something out that is not known.
        seconds: time by bound.
    """

    device: str
    ops: tuple[OpTime, ...]
    time_s: float | None
    unknown: int
    partial: int
    seconds: dict[Bound, float]

    @property
    def bound(self) -> Bound | None:
        """What most of the time goes to."""
        if not self.time_s:
            return None
        return max(BOUNDS, key=lambda name: self.seconds[name])


def op_time(work: Work, device: Device) -> OpTime:
    """The bound of one op on a device.

    Example:
        >>> from peakfold.device import load_device
        >>> conv = Work(name="conv", kind="conv", macs=231211008, other_ops=0,
        ...             bytes_moved=2703360, engine="matrix")
        >>> found = op_time(conv, load_device("t4"))
        >>> found.bound, round(found.time_s * 1e6, 1), found.rated
        ('compute', 57.1, 'vector float32')
    """
    compute, rated = _compute(work, device)
    compute = None if compute is None else compute * work.runs
    memory = None
    if work.bytes_moved == 0:
        memory = 0.0
    elif work.bytes_moved is not None and device.bandwidth is not None:
        memory = work.bytes_moved * work.runs / device.bandwidth.value
    partial = compute is None or memory is None
    known: dict[Bound, float] = {}
    if compute is not None:
        known["compute"] = compute
    if memory is not None:
        known["memory"] = memory
    if not partial and not any(known.values()):
        return OpTime(
            work=work,
            compute_s=0.0,
            memory_s=0.0,
            time_s=0.0,
            bound=None,
            partial=False,
            rated=rated,
        )
    if device.launch is not None:
        known["launch"] = device.launch.value * work.runs
    bound = max(known, key=lambda name: known[name], default=None)
    return OpTime(
        work=work,
        compute_s=compute,
        memory_s=memory,
        time_s=known[bound] if bound else None,
        bound=bound if bound and known[bound] else None,
        partial=partial,
        rated=rated,
    )


def _compute(work: Work, device: Device) -> tuple[float | None, str]:
    """Seconds of arithmetic: engines work side by side, work on one engine adds up."""
    spent, rated = _by_engine(work, device)
    return (None, "") if spent is None else (max(spent.values(), default=0.0), rated)


def _by_engine(work: Work, device: Device) -> tuple[dict[str, float] | None, str]:
    """Seconds of arithmetic of one run by engine, and the rate of its main one."""
    if work.macs is None or work.other_ops is None:
        return None, ""
    rated = ""
    spent: dict[str, float] = {}
    for count, engine in ((2 * work.macs, work.engine), (work.other_ops, "vector")):
        if not count:
            continue
        rate = device.rate(engine, work.dtype)
        if rate is None:
            return None, ""
        spent[rate.engine] = spent.get(rate.engine, 0.0) + count / rate.per_second
        rated = rated or f"{rate.engine} {rate.dtype}"
    return spent, rated


def busiest_engine(works: Iterable[Work], device: Device) -> float | None:
    """Seconds of the known arithmetic alone, at peak, on the engine that has most of it.

    No run is faster, whatever is fused or cached and however engines overlap. `None` where no
    arithmetic is rated.

    Example:
        >>> from peakfold.device import load_device
        >>> conv = Work(name="conv", kind="conv", macs=4_050_000_000, other_ops=0, bytes_moved=1,
        ...             engine="matrix")
        >>> busiest_engine([conv, conv], load_device("t4"))  # 2 x 8.1e9 at 8.1 TFLOP/s
        0.002
    """
    total: dict[str, float] = {}
    for work in works:
        for engine, seconds in (_by_engine(work, device)[0] or {}).items():
            total[engine] = total.get(engine, 0.0) + seconds * work.runs
    return max(total.values(), default=None)


def roofline(works: Iterable[Work], device: Device) -> Roofline:
    """The bounds of all ops and their sum.

    Args:
        works: the ops in order; they run one after the other.
        device: where.
    """
    ops = tuple(op_time(work, device) for work in works)
    known = [op for op in ops if op.time_s is not None]
    seconds = dict.fromkeys(BOUNDS, 0.0)
    for op in known:
        if op.bound is not None:
            seconds[op.bound] += op.time_s or 0.0
    return Roofline(
        device=device.name,
        ops=ops,
        time_s=sum(op.time_s or 0.0 for op in known) if known or not ops else None,
        unknown=len(ops) - len(known),
        partial=sum(op.partial and op.time_s is not None for op in ops),
        seconds=seconds,
    )


def utilisation(flops: int, seconds: float, device: Device, *, engine: str, dtype: str) -> float:
    """Achieved over peak speed, from operations (not MACs) and a measured time (R77).

    Args:
        flops: operations, two a multiply-accumulate.
        seconds: measured.
        device: whose peak.
        engine: ``matrix`` or ``vector``.
        dtype: element type.

    Raises:
        UsageError: the time is not above 0, or the device's peak is not known.

    Example:
        >>> from peakfold.device import load_device
        >>> t4 = load_device("t4")
        >>> utilisation(8_100_000_000, 0.002, t4, engine="vector", dtype="float32")
        0.5
    """
    if not seconds > 0:
        raise UsageError(f"a measured time of {seconds} s is not above 0")
    rate = device.rate(engine, dtype)
    if rate is None:
        hint = "give the rate in a file: --device my.toml"
        raise UsageError(f"no peak is known for {engine} {dtype}", where=device.name, hint=hint)
    return flops / seconds / rate.per_second
