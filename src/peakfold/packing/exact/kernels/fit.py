"""First fit over a tree of coalesced address unions: `packing.first_fit.place` in flat arrays.

Same tree, with the unions in one pool: row i of `lists` is (base, used, room): list i owns
``pool[base : base + room]`` and uses the first `used` numbers, its flat sorted list of range
borders. `touch` of node i is list i, its `cover` is list ``2 * leaves + i``. A list that
outgrows its room moves to the end of the pool and leaves its place to later lists of that size.

The caller owns all arrays, and gives a larger pool when one is too small: a kernel that
allocates nothing compiles in half the time, and two threads can each have their own.
"""

from __future__ import annotations

from peakfold.packing.exact.kernels.jit import inner, kernel

FAR = 1 << 62
BASE, USED, ROOM = range(3)
LEVELS = 64
"""Sizes of lists: places of ``4 << level`` numbers."""
NODES = 512
"""More than a range of sections can have nodes, own, above and covers together."""
DONE, ABOVE, FULL = range(3)
"""How `fit` ended: all placed, a buffer would end above the limit, the pool is too small."""


@inner
def position(pool, start, stop, value, after):
    """Index of the first border >= value (> value if `after`), from `start`."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if pool[middle] < value or (after and pool[middle] == value):
            low = middle + 1
        else:
            high = middle
    return low


@inner
def grow(pool, lists, free, end, node):
    """Move a full list to twice the room; the new end of the pool, -1 if it is too small."""
    size = lists[node, ROOM]
    level = 0
    while (4 << level) < 2 * size:
        level += 1
    at = free[level]
    if at >= 0:
        free[level] = pool[at]
    else:
        at = end
        end += 4 << level
        if end > len(pool):
            return -1
    base = lists[node, BASE]
    for i in range(size):
        pool[at + i] = pool[base + i]
    if size > 0:
        pool[base] = free[level - 1]
        free[level - 1] = base
    lists[node, BASE], lists[node, ROOM] = at, 4 << level
    return end


@inner
def add(pool, lists, node, low, high):
    """Merge ``[low, high)`` into the list of a node that has room for two more borders."""
    start = lists[node, BASE]
    stop = start + lists[node, USED]
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
    lists[node, USED] += shift


@inner
def list_nodes(first, last, leaves, nodes):
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


@inner
def skip(pool, at, stop, address):
    """Position of the first range of a list, from `at`, that ends above `address`; gallops."""
    if at >= stop or pool[at + 1] > address:
        return at
    step = 2
    while at + step < stop and pool[at + step + 1] <= address:
        at += step
        step *= 2
    low, high = at + 2, min(at + step, stop)
    while low < high:
        middle = low + ((high - low) >> 2) * 2
        if pool[middle + 1] <= address:
            low = middle + 2
        else:
            high = middle
    return low


@inner
def leap(pool, found, count, offset, size, align):
    """Lowest legal offset, from `offset` on, whose `size` bytes no list covers.

    Rows of `found` are (next position, stop, start) of each list. A list with a range in the
    way moves the offset to the end of its last such range, and the others look again; so
    ranges smaller than the buffer are leapt over, not read one by one.
    """
    quiet = row = 0
    while quiet < count:
        at = skip(pool, found[row, 0], found[row, 1], offset)
        stop = found[row, 1]
        if at < stop and pool[at] < offset + size:
            while at < stop and pool[at] < offset + size:
                offset = (pool[at + 1] + align - 1) // align * align if align > 1 else pool[at + 1]
                at += 2
            quiet = 0
        found[row, 0] = at
        quiet += 1
        row = row + 1 if row + 1 < count else 0
    return offset


@inner
def gap(pool, lists, nodes, own, total, leaves, size, align, best, found):
    """Offset for `size` bytes: the lowest gap, or the smallest one if `best`."""
    count = 0
    for j in range(total):
        node = nodes[j] if j < own else 2 * leaves + nodes[j]
        if lists[node, USED] > 0:
            found[count, 0] = found[count, 2] = lists[node, BASE]
            found[count, 1] = lists[node, BASE] + lists[node, USED]
            count += 1
    offset, chosen, slack = leap(pool, found, count, 0, size, align), -1, FAR
    while best:
        # The gap goes from the end of what was passed to the start of what comes.
        free, low = 0, FAR
        for i in range(count):
            if found[i, 0] > found[i, 2]:
                free = max(free, pool[found[i, 0] - 1])
            if found[i, 0] < found[i, 1]:
                low = min(low, pool[found[i, 0]])
        if low == FAR:
            return offset if chosen < 0 else chosen
        if low - size - free < slack:
            chosen, slack = offset, low - size - free
        offset = leap(pool, found, count, low, size, align)
    return offset


@kernel
def fit(
    first,
    last,
    size,
    align,
    order,
    at,
    leaves,
    best,
    limit,
    offsets,
    pool,
    end,
    lists,
    free,
    nodes,
    found,
):
    """Place plain live buffers in `order` from position `at` on, into `offsets` (n,).

    Buffers with an offset of 0 or more stay there and must come first in the order; the others
    have -1. `pool[:end]` is in use. Stops once a buffer would end above `limit`, or when the
    pool is too small: the caller then gives a larger copy and goes on where it stopped.

    Returns:
        (DONE, ABOVE or FULL; position in the order; end of the pool).
    """
    for j in range(at, len(order)):
        b = order[j]
        own, total = list_nodes(first[b], last[b], leaves, nodes)
        offset = offsets[b]
        if offset < 0:
            offset = gap(pool, lists, nodes, own, total, leaves, size[b], align[b], best, found)
        offsets[b] = offset
        if offset + size[b] > limit:
            return ABOVE, j, end
        # touch of every node listed, then cover of the range's own nodes
        for i in range(own):
            nodes[total + i] = 2 * leaves + nodes[i]
        for i in range(total + own):
            node = nodes[i]
            if lists[node, USED] + 2 > lists[node, ROOM]:
                grown = grow(pool, lists, free, end, node)
                if grown < 0:
                    # `b` has its offset; what was added of it is added again, which is no harm.
                    return FULL, j, end
                end = grown
            add(pool, lists, node, offset, offset + size[b])
    return DONE, len(order), end
