"""Aliases that say which integer a signature means: ids, steps, bytes and addresses.

They are aliases and no new types: a table indexed by `TensorId` is a list, and arrays of numpy
stay arrays of numbers.
"""

from __future__ import annotations

from typing import TypeAlias

TensorId: TypeAlias = int
"""Position of a tensor in `Graph.tensors`; -1 = none."""

OpId: TypeAlias = int
"""Position of an op in `Graph.ops`; -1 = none (before the run, or nobody)."""

StorageId: TypeAlias = int
"""Position of a storage in `Storages.members`; -1 = none."""

Step: TypeAlias = int
"""Position in an execution order; live ranges are half-open intervals of steps."""

Bytes: TypeAlias = int
"""A size or a distance in bytes."""

Offset: TypeAlias = int
"""An address in an arena, an object or a storage, in bytes from its start."""
