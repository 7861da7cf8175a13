"""What a runtime with a kernel set allows, as data.

The registry states mathematical facts; a target filters them and adds what its kernels can
do besides. A target is a TOML file beside this module, one a runtime.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from peakfold.arguments import word
from peakfold.errors import UsageError

InputPolicy = Literal["external", "pinned", "reusable"]
OutputPolicy = Literal["pinned", "external"]
BodyPolicy = Literal["lent", "kept"]
INPUT_POLICIES: tuple[InputPolicy, ...] = ("external", "pinned", "reusable")
OUTPUT_POLICIES: tuple[OutputPolicy, ...] = ("pinned", "external")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """The sizes by which PyTorch's caching allocator of CUDA memory decides; bytes.

    Attributes:
        round: blocks are multiples of it, and no rest of a small block is smaller.
        small: the largest request of the small pool; a rest of a large block is larger.
        small_segment: a segment of the small pool.
        min_large: from here on a request has a segment of its own.
        large_segment: a segment that several large requests share.
        round_large: own segments are multiples of it.
    """

    round: int
    small: int
    small_segment: int
    min_large: int
    large_segment: int
    round_large: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Eager:
    """What PyTorch's eager kernels of one device keep in memory.

    Attributes:
        device: where they run.
        dropout_mask: a dropout keeps a mask of the ``input``'s element type, or of ``bool``.
        attention: the kernel of scaled dot-product attention: ``fused`` (nothing of the size of
            the scores exists) or ``as-is`` (what torch chooses for the CPU).
        lstm: a layer is one call of ``onednn`` that keeps a workspace, or elementary
            ``operators``.
        optimizer_form: how an optimizer walks the parameters when nobody says.
        step_counters: where optimizers that are not fused keep how often they ran.
        context_bytes: taken before any tensor, by context and libraries.
        product_workspace_bytes: what the library of matrix products keeps for each thread from
            the first product on.
        product_threads: how many threads multiply in a training step.
        caching: sizes of the caching allocator; `None` = each tensor is an allocation.
    """

    device: Literal["cpu", "cuda"]
    dropout_mask: Literal["input", "bool"]
    attention: Literal["as-is", "fused"]
    lstm: Literal["onednn", "operators"]
    optimizer_form: Literal["for-loop", "foreach"]
    step_counters: Literal["host", "device"]
    context_bytes: int
    product_workspace_bytes: int = 0
    product_threads: int = 0
    caching: Caching | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One runtime's rules.

    Attributes:
        name: what ``--target`` calls it.
        description: one line for people.
        align: bytes; every buffer starts at a multiple and its size is rounded up to one.
        inputs: ``external`` (the caller's memory, beside the arena), ``pinned`` (in the arena
            for the whole run) or ``reusable`` (in the arena, free after its last reader).
        outputs: ``pinned`` (in the arena until the end) or ``external``.
        inplace_kinds: the only kinds that may run in place; empty = every kind the registry
            allows.
        inplace_also: kinds whose kernels work in place although the mathematics alone does
            not promise it (a softmax that reads a row before it writes it).
        overlap_kinds: kinds whose kernels keep the order of reads and writes that the registry's
            `overlap` column is traced from, so that a result may lie over part of its input.
        views: whether reshapes and other re-readings of bytes cost nothing.
        reshape: ``view`` (a reshape re-reads its input's bytes, whoever else still reads them)
            or ``inplace`` (only the last reader may take them over).
        zero_copy_concat: whether a producer may write straight into a concatenation.
        concat_operands: how many tensors one concatenation may join; 0 = any number.
        real: whether it names a runtime, whose kernels and records take memory, too.
        flash: static roles that lie in flash; all others share the RAM with the arena.
        bodies: how control flow runs its bodies. ``lent``: a branch writes its results straight
            into its op's, a loop keeps two slots per carried value, nothing else of a body's
            signature takes memory. ``kept``: every tensor of a body has memory of its own in the
            arena, its inputs and outputs included; operands are copied in, results out.
        eager: of a framework that runs ops one by one: what its kernels keep.
        sources: where a figure comes from, by its name.
    """

    name: str
    description: str
    align: int = 64
    inputs: InputPolicy = "external"
    outputs: OutputPolicy = "pinned"
    inplace_kinds: tuple[str, ...] = ()
    inplace_also: tuple[str, ...] = ()
    overlap_kinds: tuple[str, ...] = ()
    views: bool = True
    reshape: Literal["view", "inplace"] = "view"
    zero_copy_concat: bool = True
    concat_operands: int = 0
    real: bool = True
    flash: tuple[str, ...] = ()
    bodies: BodyPolicy = "lent"
    eager: Eager | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def body_policies(self) -> tuple[InputPolicy, OutputPolicy]:
        """Where inputs and outputs of a body live, from the body's point of view."""
        return ("external", "external") if self.bodies == "lent" else ("reusable", "pinned")

    def allows_inplace(self, kind: str) -> bool:
        """Whether this runtime's kernels of a kind may run in place at all."""
        return not self.inplace_kinds or kind in self.inplace_kinds


TARGETS: tuple[str, ...] = (
    "generic",
    "mxnet",
    "tflm",
    "tflm-cmsis",
    "torch-cpu",
    "torch-cuda",
)


def load_target(name: str) -> Target:
    """The target of this name.

    Raises:
        UsageError: there is none.

    Example:
        >>> load_target("generic").align
        64
    """
    word(name, TARGETS, "target")
    text = resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8")
    read = tomllib.loads(text)
    eager, caching = read.pop("eager", None), read.pop("caching", None)
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in read.items()
    }
    if eager is not None:
        values["eager"] = Eager(**eager, caching=None if caching is None else Caching(**caching))
    return Target(name=name, **values)


@cache
def load_eager(device: str) -> Eager:
    """What PyTorch's kernels of a device keep.

    Args:
        device: ``cpu`` or ``cuda``.

    Raises:
        UsageError: there is no target for it.

    Example:
        >>> load_eager("cuda").dropout_mask, load_eager("cpu").dropout_mask
        ('bool', 'input')
    """
    found = load_target(f"torch-{device}").eager
    if found is None:
        raise UsageError(f"target torch-{device} does not say what its kernels keep")
    return found
