"""Reuse as a minimum-cost flow: which earlier buffer hands its object to which later one.

The model of the TensorFlow Lite GPU delegate: serving buffer j from i costs
``max(0, size_j - size_i)`` bytes, from a new object ``size_j``; each buffer is handed on at
most once. The sum is the bytes objects grow by if an object were always as large as its last
tenant, so the result is optimal for that model and a heuristic for the true total.
"""

from __future__ import annotations

from collections import deque

from peakfold.packing.deadline import Check, endless


class _Network:
    """A residual graph; edge e and its reverse are e and e ^ 1."""

    def __init__(self, nodes: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.room: list[int] = []
        self.cost: list[int] = []

    def add(self, tail: int, head: int, cost: int) -> int:
        """An edge of capacity 1; gives its number."""
        edge = len(self.to)
        for a, b, room, price in ((tail, head, 1, cost), (head, tail, 0, -cost)):
            self.out[a].append(len(self.to))
            self.to.append(b)
            self.room.append(room)
            self.cost.append(price)
        return edge

    def push_cheapest(self, source: int, sink: int, check: Check) -> bool:
        """Send one unit along a cheapest path (Bellman-Ford with a queue); false if none."""
        infinite = 1 << 62
        dist = [infinite] * len(self.out)
        via = [-1] * len(self.out)
        queued = [False] * len(self.out)
        dist[source] = 0
        queue = deque([source])
        while queue:
            check()
            node = queue.popleft()
            queued[node] = False
            for edge in self.out[node]:
                head, length = self.to[edge], dist[node] + self.cost[edge]
                if self.room[edge] and length < dist[head]:
                    dist[head], via[head] = length, edge
                    if not queued[head]:
                        queued[head] = True
                        queue.append(head)
        if via[sink] < 0:
            return False
        node = sink
        while node != source:
            edge = via[node]
            self.room[edge] -= 1
            self.room[edge ^ 1] += 1
            node = self.to[edge ^ 1]
        return True


def cheapest_reuse(
    start: list[int], stop: list[int], size: list[int], check: Check = endless
) -> list[int | None]:
    """For each buffer the earlier one whose object it takes, `None` for a new object.

    Args:
        start: (n,) first step of each lifetime ``[start, stop)``.
        stop: (n,) step after the last.
        size: (n,) bytes.
        check: polled all along; ends the search by raising.

    Example:
        >>> cheapest_reuse([0, 1, 2], [2, 3, 4], [16, 8, 64])
        [None, None, 0]
    """
    n = len(size)
    source, sink = 2 * n, 2 * n + 1
    net = _Network(2 * n + 2)
    reuse: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for j in range(n):
        check()
        net.add(source, j, 0)
        net.add(n + j, sink, 0)
        net.add(source, n + j, size[j])
        for i in range(n):
            if i != j and stop[i] <= start[j] and (start[i], i) < (start[j], j):
                edge = net.add(i, n + j, max(0, size[j] - size[i]))
                reuse[j].append((i, edge))
    while net.push_cheapest(source, sink, check):
        pass
    return [next((i for i, e in reuse[j] if net.room[e] == 0), None) for j in range(n)]
