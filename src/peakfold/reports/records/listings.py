"""Records of what peakfold knows: ``ops`` and ``targets``."""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.target import Eager


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRecord:
    """One row of the registry, as yes or no.

    Attributes:
        inplace: output 0 may be written over some input (of some ops of the kind).
        views: some output is a byte range of an input.
        parts: inputs may be written straight into output 0.
        overlap: output 0 may be written over part of an input, by kernels that targets name.
        workspace: the scratch is known without asking a kernel.
        macs: multiply-accumulates can be counted.
        shape: output shapes can be inferred.
    """

    kind: str
    inplace: bool
    views: bool
    parts: bool
    overlap: bool
    workspace: bool
    macs: bool
    shape: bool
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsDocument:
    """Output of ``ops --json``."""

    schema: str
    ops: list[KindRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """One target; an empty `inplace_kinds` allows every kind the registry allows.

    Attributes:
        real: whether it names a runtime.
        flash: static roles that lie in flash; all others share the RAM with the arena.
        eager: of PyTorch, what its kernels keep in a training step.
        sources: where a figure comes from, by its name.
    """

    name: str
    description: str
    align: int
    inputs: str
    outputs: str
    inplace_kinds: list[str]
    inplace_also: list[str]
    overlap_kinds: list[str]
    views: bool
    zero_copy_concat: bool
    real: bool
    flash: list[str]
    eager: Eager | None
    sources: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsDocument:
    """Output of ``targets --json``."""

    schema: str
    targets: list[TargetRecord]
