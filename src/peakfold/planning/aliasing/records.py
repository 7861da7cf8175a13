"""Sharing inside storages: what is wanted, each decision, and what came of them.

A storage is a run of bytes that several tensors share at fixed distances; `planning.aliasing.build`
decides which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

How = Literal["view", "inplace", "overlap", "concat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliasing:
    """Which kinds of sharing inside a storage are wanted.

    Attributes:
        inplace: run ops in place where rules allow it.
        views: alias re-readings of bytes.
        zero_copy_concats: concatenation ops whose parts are written straight into the result.
        copied: views (tensor ids) to be materialised all the same.
        overlaps: ops whose result is written over part of an operand, at the distance that
            facts give, where it does not run in place.
    """

    inplace: bool = True
    views: bool = True
    zero_copy_concats: frozenset[int] = frozenset()
    copied: frozenset[int] = frozenset()
    overlaps: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Alias:
    """One decision: `output` lies in the bytes of `input` (of a part, for ``concat``)."""

    op: int
    output: int
    input: int
    how: How


@dataclass(slots=True, eq=False)
class Storages:
    """Storages and the tensors in them; built by `build_storages`, read-only afterwards.

    Attributes:
        of: storage of each tensor; -1 for opaque tensors and for static ones nobody views.
        offset: byte offset of each tensor in its storage.
        members: tensors of each storage, in the order they were placed.
        external: whether a storage belongs to the caller.
        aliases: every decision, in schedule order.
        copies: outputs that need a copy of their own because their bytes belong elsewhere.
        built_in_place: concatenations whose parts were taken in.
    """

    of: list[int]
    offset: list[int]
    members: list[list[int]] = field(default_factory=list)
    external: list[bool] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    built_in_place: list[int] = field(default_factory=list)

    def open(self, tensor: int, external: bool) -> None:
        """Give a tensor a storage of its own."""
        self.of[tensor] = len(self.members)
        self.members.append([tensor])
        self.external.append(external)

    def join(self, tensor: int, host: int, at: int) -> None:
        """Put a tensor into the storage of `host`, `at` bytes behind the host's first."""
        storage = self.of[host]
        self.of[tensor] = storage
        self.offset[tensor] = self.offset[host] + at
        self.members[storage].append(tensor)

    def settle(self) -> None:
        """Count the offsets of each storage from its first byte."""
        for members in self.members:
            first = min((self.offset[tensor] for tensor in members), default=0)
            if first < 0:
                for tensor in members:
                    self.offset[tensor] -= first

    def absorb(self, part: int, whole: int, at: int) -> None:
        """Move the whole storage of `part` to byte `at` of the storage that holds `whole`."""
        source, target = self.of[part], self.of[whole]
        for tensor in self.members[source]:
            self.of[tensor] = target
            self.offset[tensor] += self.offset[whole] + at
        self.members[target] += self.members[source]
        self.members[source] = []
