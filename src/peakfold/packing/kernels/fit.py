# ruff: noqa: ANN001, ANN201 - numba infers the types of kernels
"""First fit without a conflict graph, compiled: `first_fit.place` for millions of buffers.

The tree of coalesced address unions of `first_fit.AddressTree`, with the unions in one pool:
node i owns ``pool[base[i] : base[i] + room[i]]`` and uses the first `used[i]` numbers, its
flat sorted list of range borders. A list that outgrows its room moves to the end of the pool
and leaves its place to later lists of that size.
"""

from __future__ import annotations

import numpy as np
from numba import njit

FAR = 1 << 62


@njit(cache=True, nogil=True)
def position(pool, start, stop, value, after):  # type: ignore[no-untyped-def]
    """Index of the first border >= value (> value if `after`), from `start`."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if pool[middle] < value or (after and pool[middle] == value):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def grow(pool, base, room, free, end, node):  # type: ignore[no-untyped-def]
    """Move a full list to twice the room; returns the pool and its new end."""
    size = room[node]
    level = 0
    while (4 << level) < max(size, 2) * 2:
        level += 1
    wanted = 4 << level
    if free[level] >= 0:
        at = free[level]
        free[level] = pool[at]
    else:
        at = end
        end += wanted
        if end > len(pool):
            bigger = np.empty(max(2 * len(pool), end), dtype=np.int64)
            bigger[: len(pool)] = pool
            pool = bigger
    for i in range(size):
        pool[at + i] = pool[base[node] + i]
    if size > 0:
        pool[base[node]] = free[level - 1]
        free[level - 1] = base[node]
    base[node], room[node] = at, wanted
    return pool, end


@njit(cache=True, nogil=True)
def add(pool, base, used, node, low, high):  # type: ignore[no-untyped-def]
    """Merge ``[low, high)`` into the list of a node that has room for two more borders."""
    start = base[node]
    stop = start + used[node]
    left = position(pool, start, stop, low, False)
    right = position(pool, left, stop, high, True)
    first = (left - start) % 2 == 0
    last = (right - start) % 2 == 0
    shift = left + first + last - right
    if shift > 0:
        for i in range(stop - 1, right - 1, -1):
            pool[i + shift] = pool[i]
    elif shift < 0:
        for i in range(right, stop):
            pool[i + shift] = pool[i]
    if first:
        pool[left] = low
    if last:
        pool[left + first] = high
    used[node] += shift


@njit(cache=True, nogil=True)
def list_nodes(first, last, leaves, nodes):  # type: ignore[no-untyped-def]
    """Nodes of a range of sections, then their proper ancestors; returns both counts."""
    left, right, own = first + leaves, last + leaves, 0
    while left < right:
        if left & 1:
            nodes[own] = left
            own += 1
            left += 1
        if right & 1:
            right -= 1
            nodes[own] = right
            own += 1
        left >>= 1
        right >>= 1
    # Ancestors of the outermost leaves, less those inside the range: the rest overlap it partly.
    total = own
    a, b = (first + leaves) >> 1, (last - 1 + leaves) >> 1
    shift = 1
    while a > 0:
        if (a << shift) < first + leaves or ((a + 1) << shift) > last + leaves:
            nodes[total] = a
            total += 1
        if b != a and ((b << shift) < first + leaves or ((b + 1) << shift) > last + leaves):
            nodes[total] = b
            total += 1
        a >>= 1
        b >>= 1
        shift += 1
    return own, total


@njit(cache=True, nogil=True)
def sift(heap, count, at):  # type: ignore[no-untyped-def]
    """Restore a min-heap of (key, end of range, next position, stop) rows downwards."""
    while True:
        child = 2 * at + 1
        if child >= count:
            return
        if child + 1 < count and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if heap[at, 0] <= heap[child, 0]:
            return
        for column in range(3):
            heap[at, column], heap[child, column] = heap[child, column], heap[at, column]
        at = child


@njit(cache=True, nogil=True)
def lowest_gap(  # type: ignore[no-untyped-def]
    pool, base, used, nodes, own, total, leaves, size, align, best, heap
):
    """Offset for `size` bytes: the lowest gap, or the smallest one if `best`.

    The lists of all nodes are merged on the fly, so a low gap is found without reading the
    rest. `touch` of node i is list i, `cover` is list 2 * leaves + i.
    """
    count = 0
    for j in range(total):
        node = nodes[j] if j < own else 2 * leaves + nodes[j]
        if used[node] > 0:
            heap[count, 0] = pool[base[node]]
            heap[count, 1] = base[node]
            heap[count, 2] = base[node] + used[node]
            count += 1
    for at in range(count // 2 - 1, -1, -1):
        sift(heap, count, at)
    free, chosen, slack = 0, -1, FAR
    while count > 0:
        low = heap[0, 0]
        if low - size >= free and low - size - free < slack:
            offset = (free + align - 1) // align * align
            if offset + size <= low:
                chosen, slack = offset, low - size - free
                if not best:
                    return chosen
        free = max(free, pool[heap[0, 1] + 1])
        heap[0, 1] += 2
        if heap[0, 1] >= heap[0, 2]:
            count -= 1
            for column in range(3):
                heap[0, column] = heap[count, column]
        else:
            heap[0, 0] = pool[heap[0, 1]]
        sift(heap, count, 0)
    return chosen if chosen >= 0 else (free + align - 1) // align * align


@njit(cache=True, nogil=True)
def fit(first, last, size, align, fixed, order, count, best, limit):  # type: ignore[no-untyped-def]
    """Offsets (n,) of plain live buffers placed in `order`; pinned ones must come first in it.

    Stops once a buffer would end above `limit`; returns (offsets, reached height), the height
    above `limit` in that case and the rest unplaced.
    """
    leaves = 1
    while leaves < count:
        leaves *= 2
    base = np.zeros(4 * leaves, dtype=np.int64)
    room = np.zeros(4 * leaves, dtype=np.int64)
    used = np.zeros(4 * leaves, dtype=np.int64)
    free = np.full(64, -1, dtype=np.int64)
    pool = np.empty(16 * len(size) + 64, dtype=np.int64)
    nodes = np.empty(256, dtype=np.int64)
    heap = np.empty((256, 3), dtype=np.int64)
    offsets = np.zeros(len(size), dtype=np.int64)
    end = height = 0
    for b in order:
        own, total = list_nodes(first[b], last[b], leaves, nodes)
        if fixed[b] >= 0:
            offset = fixed[b]
        else:
            offset = lowest_gap(
                pool, base, used, nodes, own, total, leaves, size[b], align[b], best, heap
            )
        offsets[b] = offset
        height = max(height, offset + size[b])
        if height > limit:
            break
        for j in range(own + total):
            # touch of every node listed, then cover of the range's own nodes
            node = nodes[j] if j < total else 2 * leaves + nodes[j - total]
            if used[node] + 2 > room[node]:
                pool, end = grow(pool, base, room, free, end, node)
            add(pool, base, used, node, offset, offset + size[b])
    return offsets, height
