"""What may run together: a partial order of ops, and buffers that may be alive together.

In a serial schedule a value is dead when a later step begins. Where ops run in several lanes,
only a partial order says what is over: data edges, effect edges, the order inside each lane,
and edges a plan adds. Buffer b may take the bytes of buffer a exactly if every op that touches
a is a strict ancestor of the op that first writes b (lecture L1, 14:33; MindSpore's SOMAS uses
the same exclusion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from peakfold.analysis.graph.index import Index
from peakfold.errors import ModelError
from peakfold.ir import effect_edges

Edge = tuple[int, int]
Pairs = NDArray[np.int64]
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

        A backward search from `two`, the earliest op first, that never leaves the positions
        after `one`. It gives up, and answers no, after 20,000 ops: a plan may be larger for
        that, never wrong.

        Example:
            >>> p = Precedence.of([(), (0,), (), (1,)], (0, 1, 2, 3))
            >>> p.precedes(0, 3), p.precedes(2, 3)
            (True, False)
        """
        floor, begin = self.position[one], self.position[two]
        seen = {begin}
        waiting = [begin] if begin > floor else []
        while waiting and len(seen) < _SEARCH:
            for before in self.needs[self.order[heappop(waiting)]]:
                at = self.position[before]
                if at == floor:
                    return True
                if at > floor and at not in seen:
                    seen.add(at)
                    heappush(waiting, at)
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


def conflicts(
    order: Precedence, uses: Sequence[Use], check: Callable[[], None] = lambda: None
) -> Pairs:
    """Pairs of buffers that some run may need at the same time, each pair once, sorted.

    Two buffers are free of conflict if all touches of one precede the first write of the
    other. Rows of descendants are kept for a block of ops at a time, so memory grows with
    ops times the block, not with ops squared; the work beyond that follows the answer.

    Args:
        order: what precedes what.
        uses: per buffer.
        check: polled at each buffer; ends the work by raising.

    Returns:
        (k, 2) pairs, the lower buffer first.

    Example:
        >>> chain = Precedence.of([(), (0,), (1,)], (0, 1, 2))
        >>> conflicts(chain, [Use(0, (0, 1)), Use(1, (1, 2)), Use(2, (2,), kept=True)]).tolist()
        [[0, 1], [1, 2]]
    """
    rows = [
        np.sort(np.column_stack([np.full(len(others), buffer), others]), axis=1)
        for buffer, others in _later_conflicts(order, uses, check)
    ]
    pairs = np.concatenate([np.zeros((0, 2), dtype=np.int64), *rows])
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def crowding(
    order: Precedence, uses: Sequence[Use], check: Callable[[], None] = lambda: None
) -> Pairs:
    """(n,) with how many others each buffer conflicts; the pairs themselves are not kept.

    Args:
        order: what precedes what.
        uses: per buffer.
        check: polled at each buffer; ends the work by raising.

    Example:
        >>> chain = Precedence.of([(), (0,), (1,)], (0, 1, 2))
        >>> crowding(chain, [Use(0, (0, 1)), Use(1, (1, 2)), Use(2, (2,), kept=True)]).tolist()
        [1, 2, 1]
    """
    count = np.zeros(len(uses), dtype=np.int64)
    for buffer, others in _later_conflicts(order, uses, check):
        count[buffer] += len(others)
        count[others] += 1
    return count


def _later_conflicts(
    order: Precedence, uses: Sequence[Use], check: Callable[[], None]
) -> Iterator[tuple[int, Pairs]]:
    """Buffers, and those of a block of ops born later, or with them, that they conflict with."""
    births = np.array([_start(order, use) for use in uses], dtype=np.int64)
    by_start = np.argsort(births, kind="stable")
    births = births[by_start]
    for at, buffer in enumerate(by_start.tolist()):  # born at one op: both exist then
        group = by_start[at + 1 : np.searchsorted(births, births[at], "right")]
        if len(group):
            yield buffer, group
    for low in range(0, len(order.order), _BLOCK):
        later = _descendants(order, low, low + _BLOCK)
        width = min(_BLOCK, len(order.order) - low)
        here = slice(*np.searchsorted(births, (low, low + width)))
        born = sum(1 << at - low for at in np.unique(births[here]).tolist())
        for at, buffer in enumerate(by_start.tolist()):
            use, start = uses[buffer], int(births[at])
            if start >= low + width - 1:
                break
            check()
            after = 0 if use.kept or not use.touches else (1 << width) - 1
            for op in use.touches:
                after &= later[op]
            missing = born & ~after
            if start >= low:
                missing &= -1 << start - low + 1
            if missing:
                yield buffer, by_start[here][_bits(missing, width)[births[here] - low]]


def nearly_over(
    order: Precedence, uses: Sequence[Use], check: Callable[[], None] = lambda: None
) -> Iterator[tuple[int, int, Pairs]]:
    """Touches that alone keep a buffer from being over before others are born.

    An edge from such an op to the first write of one of the others, which the order allows,
    frees that pair of conflict.

    Args:
        order: what precedes what.
        uses: per buffer.
        check: polled at each buffer; ends the work by raising.

    Yields:
        A buffer, an op that touches it, and the others, by birth; all of a triple are distinct.

    Example:
        >>> pair = Precedence.of([(), (0,), (0,)], (0, 1, 2))
        >>> found = nearly_over(pair, [Use(0, (0, 1)), Use(2, (2,))])
        >>> [(buffer, op, others.tolist()) for buffer, op, others in found]
        [(0, 1, [1])]
    """
    births = np.array([_start(order, use) for use in uses], dtype=np.int64)
    by_start = np.argsort(births, kind="stable")
    births = births[by_start]
    for low in range(0, len(order.order), _BLOCK):
        later = _descendants(order, low, low + _BLOCK)
        width = min(_BLOCK, len(order.order) - low)
        here = slice(*np.searchsorted(births, (low, low + width)))
        born = sum(1 << at - low for at in np.unique(births[here]).tolist())
        for buffer, use in enumerate(uses):
            check()
            all_over, all_but_one = (0 if use.kept else born), 0
            for op in use.touches:
                all_but_one = all_but_one & later[op] | all_over & ~later[op]
                all_over &= later[op]
            for op in use.touches if all_but_one else ():
                behind = max(order.position[op] - low + 1, 0)
                waiting = all_but_one & ~later[op] & -1 << behind
                if waiting:
                    yield buffer, op, by_start[here][_bits(waiting, width)[births[here] - low]]


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


def _bits(mask: int, width: int) -> NDArray[np.bool_]:
    """(width,) the bits of a mask, lowest first."""
    packed = np.frombuffer(mask.to_bytes(-(-width // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, bitorder="little", count=width).astype(np.bool_)


def without_implied(order: Precedence, edges: Iterable[Edge]) -> list[Edge]:
    """The edges without those that the order and the others imply, sorted.

    Args:
        order: what precedes what anyway; none of the edges is one of its own.
        edges: ``(before, after)``.

    Raises:
        ModelError: an edge that contradicts the order.

    Example:
        >>> without_implied(Precedence.of([(), (), ()], (0, 1, 2)), [(0, 1), (0, 2), (1, 2)])
        [(0, 1), (1, 2)]
    """
    left = sorted(set(edges))
    if not left:
        return left
    whole = order.with_edges(left)
    users: dict[int, list[int]] = {before: [] for before, _ in left}
    for after, needs in enumerate(whole.needs):
        for before in needs:
            if before in users:
                users[before].append(after)
    implied: set[Edge] = set()
    for low in range(0, len(order.order), _BLOCK):
        later = _descendants(whole, low, low + _BLOCK)
        # An edge is implied exactly if its end comes after a direct successor of its begin.
        reached = dict.fromkeys(users, 0)
        for before, direct in users.items():
            for op in direct:
                reached[before] |= later[op]
        implied.update(
            (before, after)
            for before, after in left
            if low <= whole.position[after] < low + _BLOCK
            and reached[before] >> whole.position[after] - low & 1
        )
    return [edge for edge in left if edge not in implied]
