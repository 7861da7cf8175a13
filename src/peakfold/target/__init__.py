"""What a runtime with a kernel set allows, as data.

The registry states mathematical facts; a target filters them and adds what its kernels can
do besides. A target is a TOML file beside this module, one a runtime.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from peakfold.errors import UsageError

InputPolicy = Literal["external", "pinned", "reusable"]
OutputPolicy = Literal["pinned", "external"]
INPUT_POLICIES: tuple[InputPolicy, ...] = ("external", "pinned", "reusable")
OUTPUT_POLICIES: tuple[OutputPolicy, ...] = ("pinned", "external")


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

    def allows_inplace(self, kind: str) -> bool:
        """Whether this runtime's kernels of a kind may run in place at all."""
        return not self.inplace_kinds or kind in self.inplace_kinds


TARGETS: tuple[str, ...] = ("generic", "mxnet", "tflm", "tflm-cmsis")


def load_target(name: str) -> Target:
    """The target of this name.

    Raises:
        UsageError: there is none.

    Example:
        >>> load_target("generic").align
        64
    """
    if name not in TARGETS:
        raise UsageError(f"no target {name!r}", hint=f"known: {', '.join(TARGETS)}")
    text = resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8")
    values: dict[str, Any] = {"name": name}
    for key, value in tomllib.loads(text).items():
        values[key] = tuple(value) if isinstance(value, list) else value
    return Target(**values)
