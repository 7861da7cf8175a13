"""What may run together: a partial order of ops, and buffers that may be alive together.

In a serial schedule a value is dead when a later step begins. Where ops run in several lanes,
only a partial order says what is over: data edges, effect edges, the order inside each lane,
and edges a plan adds. Buffer b may take the bytes of buffer a exactly if every op that touches
a is a strict ancestor of the op that first writes b (lecture L1, 14:33; MindSpore's SOMAS uses
the same exclusion).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from peakfold.analysis.index import Index
from peakfold.errors import ModelError
from peakfold.ir import effect_edges

Edge = tuple[int, int]
_SEARCH = 20_000
_BLOCK = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Precedence:
    """The partial order of ops that a way of running guarantees.

    Attributes:
        order: one order of the ops that fits.
        position: per op, its position in `order`.
        needs: per op, the ops it waits for directly.
    """

    order: tuple[int, ...]
    position: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, needs: Sequence[Iterable[int]], order: Sequence[int]) -> Precedence:
        """A partial order from its edges.

        Args:
            needs: per op, ops it waits for.
            order: an order in which every op comes after those it waits for.

        Raises:
            ModelError: `order` contradicts the edges, or they form a cycle.
        """
        position = [-1] * len(needs)
        for at, op in enumerate(order):
            position[op] = at
        for op, before in enumerate(needs):
            for one in before:
                if position[one] >= position[op]:
                    raise ModelError(f"op {op} waits for op {one}, which comes later in the order")
        direct = tuple(tuple(sorted(set(before))) for before in needs)
        return cls(tuple(order), tuple(position), direct)

    def precedes(self, one: int, two: int) -> bool:
        """Whether op `one` is surely over when op `two` starts.

        A backward search from `two` that never leaves the positions after `one`. It gives up,
        and answers no, after 20,000 ops: a plan may be larger for that, never wrong.

        Example:
            >>> p = Precedence.of([(), (0,), (), (1,)], (0, 1, 2, 3))
            >>> p.precedes(0, 3), p.precedes(2, 3)
            (True, False)
        """
        floor = self.position[one]
        seen = {two}
        stack = [two]
        while stack and len(seen) < _SEARCH:
            for before in self.needs[stack.pop()]:
                if before == one:
                    return True
                if before not in seen and self.position[before] > floor:
                    seen.add(before)
                    stack.append(before)
        return False

    def with_edges(self, edges: Iterable[Edge]) -> Precedence:
        """The order with further edges ``(before, after)``.

        Raises:
            ModelError: an edge that contradicts the order.
        """
        needs = [set(before) for before in self.needs]
        for before, after in edges:
            needs[after].add(before)
        return Precedence.of(needs, self.order)


def graph_needs(index: Index) -> list[set[int]]:
    """Per op, the ops it waits for in any way of running: producers and effects."""
    needs = [
        {index.producer[t] for t in index.operands[op] if index.producer[t] >= 0}
        for op in range(len(index.graph.ops))
    ]
    for before, after in effect_edges(index.graph):
        needs[after].add(before)
    return needs


def lane_edges(order: Sequence[int], lane: Sequence[int]) -> list[Edge]:
    """Edges between neighbours in a lane, which runs its ops in the order given.

    Args:
        order: op ids.
        lane: per op, its lane.

    Example:
        >>> lane_edges((0, 1, 2, 3), (0, 1, 0, 1))
        [(0, 2), (1, 3)]
    """
    last: dict[int, int] = {}
    edges: list[Edge] = []
    for op in order:
        if lane[op] in last:
            edges.append((last[lane[op]], op))
        last[lane[op]] = op
    return edges


@dataclass(frozen=True, slots=True)
class Use:
    """When a buffer is in use, in terms of ops.

    Attributes:
        first: the op that first writes it; -1 if it is there before the first op.
        touches: ops that read or write any of it, `first` included.
        kept: whether it must survive the last op.
    """

    first: int
    touches: tuple[int, ...]
    kept: bool = False


def conflicts(order: Precedence, uses: Sequence[Use]) -> list[Edge]:
    """Pairs of buffers that some run may need at the same time, each pair once, sorted.

    Two buffers are free of conflict if all touches of one precede the first write of the
    other. Rows of descendants are kept for a block of ops at a time, so memory grows with
    ops times the block, not with ops squared; the work beyond that follows the answer.

    Args:
        order: what precedes what.
        uses: per buffer.

    Example:
        >>> chain = Precedence.of([(), (0,), (1,)], (0, 1, 2))
        >>> conflicts(chain, [Use(0, (0, 1)), Use(1, (1, 2)), Use(2, (2,), kept=True)])
        [(0, 1), (1, 2)]
    """
    found: set[Edge] = set()
    by_start = sorted(range(len(uses)), key=lambda b: (_start(order, uses[b]), b))
    starts: dict[int, list[int]] = {}
    for buffer in by_start:
        starts.setdefault(_start(order, uses[buffer]), []).append(buffer)
    for group in starts.values():  # born at one op: both exist then
        found.update((min(a, b), max(a, b)) for i, a in enumerate(group) for b in group[i + 1 :])
    for low in range(0, len(order.order), _BLOCK):
        later = _descendants(order, low, low + _BLOCK)
        width = min(_BLOCK, len(order.order) - low)
        births = sum(1 << at - low for at in starts if low <= at < low + width)
        for buffer in by_start:
            use = uses[buffer]
            start = _start(order, use)
            if start >= low + width - 1:
                break
            after = 0 if use.kept or not use.touches else (1 << width) - 1
            for op in use.touches:
                after &= later[op]
            missing = births & ~after
            if start >= low:
                missing &= -1 << start - low + 1
            for at in _bits(missing):
                found.update((min(buffer, b), max(buffer, b)) for b in starts[low + at])
    return sorted(found)


def _start(order: Precedence, use: Use) -> int:
    return -1 if use.first < 0 else order.position[use.first]


def _descendants(order: Precedence, low: int, high: int) -> list[int]:
    """Per op, the set of its strict descendants at positions ``[low, high)``."""
    later = [0] * len(order.order)
    for at in range(len(order.order) - 1, -1, -1):
        op = order.order[at]
        own = later[op] | (1 << at - low if low <= at < high else 0)
        if own:
            for before in order.needs[op]:
                later[before] |= own
    return later


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
