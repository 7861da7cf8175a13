"""Real memory: one arena, the caller's buffers, and typed views of tensors in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakfold.errors import InvalidPlan
from peakfold.ir import Graph
from peakfold.judges.placement import ARENA, Location, Places
from peakfold.planning.plan import Plan

Bytes = NDArray[np.uint8]

POISON = 0xFF
"""Every floating type reads bytes of ones as NaN, every signed integer as -1."""
_LINE = 64


def aligned_bytes(count: int) -> Bytes:
    """Poisoned bytes that start on a cache line, as allocators give them."""
    memory = np.full(count + _LINE, POISON, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + count]


def digest(value: object) -> bytes:
    """A fingerprint of a value's bytes (arrays) or of its text (opaque objects).

    Example:
        >>> digest(np.zeros(2)) == digest(np.array([0.0, 0.0]))
        True
        >>> digest(np.zeros(2)) == digest(np.array([0.0, -0.0]))
        False
    """
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OUST":
        data: Any = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return hashlib.sha256(data).digest()
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """The address spaces of a plan.

    Attributes:
        arena: allocated once; nothing else holds a tensor that the plan puts into it.
        external: the caller's buffers, in the plan's order.
        places: where the plan puts each tensor.
    """

    graph: Graph
    arena: Bytes
    external: tuple[Bytes, ...]
    places: Places

    @classmethod
    def of(
        cls,
        graph: Graph,
        plan: Plan,
        arena: Bytes | None = None,
        external: tuple[Bytes, ...] | None = None,
    ) -> Memory:
        """A plan's memory, poisoned where it is allocated here.

        Args:
            graph: the planned graph.
            plan: where things lie.
            arena: memory to use as the arena.
            external: memory to use for the external buffers.

        Raises:
            InvalidPlan: a tensor without a place, with two, of another size, or outside its memory;
                an order that is no permutation of the ops.
        """
        if sorted(plan.order) != list(range(len(graph.ops))):
            raise InvalidPlan(f"the order is no permutation of the {len(graph.ops)} ops")
        places = Places.of_plan(plan)
        problem = places.problem(graph, plan)
        if problem is not None:
            raise InvalidPlan(problem)
        try:
            if external is None:
                external = tuple(
                    aligned_bytes(max(p.offset + p.nbytes for p in buffer.tensors))
                    for buffer in plan.external
                )
            arena = aligned_bytes(plan.arena_bytes) if arena is None else arena[: plan.arena_bytes]
        except (MemoryError, ValueError, OverflowError):
            raise InvalidPlan(f"no arena of {plan.arena_bytes} bytes can be had here") from None
        memory = cls(graph, arena, external, places)
        for table in (places.of, places.copies):
            for name, where in table.items():
                memory._require_inside(f"tensor {name!r}", where)
        for op, where in places.scratch.items():
            memory._require_inside(f"the workspace of op {op}", where)
        return memory

    def _require_inside(self, what: str, where: Location) -> None:
        size = self.space(where).size
        if where.address < 0 or where.nbytes < 0 or where.address + where.nbytes > size:
            raise InvalidPlan(
                f"{what} reaches from byte {where.address} over {where.nbytes} bytes, "
                f"outside its memory of {size} bytes"
            )

    def space(self, where: Location) -> Bytes:
        """The memory a location lies in."""
        return self.arena if where.space == ARENA else self.external[where.space]

    def bytes_of(self, where: Location) -> Bytes:
        """The bytes of a location, as a view."""
        return self.space(where)[where.address : where.address + where.nbytes]
