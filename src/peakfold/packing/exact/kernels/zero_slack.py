"""The costly conclusions about a section of time, most of them where little room is to spare."""

from __future__ import annotations

from peakfold.packing.exact.kernels.jit import inner, kernel
from peakfold.packing.exact.kernels.state_layout import (
    BASE,
    CAPACITY,
    COST,
    COUNT,
    FLOOR,
    KIND,
    MEMBER,
    PENDING,
    PLACED,
    REST,
    SIZE,
    STARTING,
    STARTS,
    STOPPING,
    STOPS,
    SUMS,
    VARS,
    WORDS,
    K,
    lift,
)


@inner
def sort_members(s, begin, stop, end):
    """Fill `pending` with the buffers of a section that can start below `end`, lowest first."""
    pending = s[PENDING]
    last = pending
    for i in range(begin, stop):
        c = s[i]
        low = s[VARS + c]
        if low < end:
            j = last
            while j > pending and s[VARS + s[j - 1]] > low:
                s[j] = s[j - 1]
                j -= 1
            s[j] = c
            last += 1
    return last


@inner
def room_above(g, s, begin, stop, rest):
    """Whether the buffers of a section that start at v or above fit below the capacity, for all v.

    Those of total size x fit above any v up to ``capacity - x``, so only the ones that start
    higher can fail. They are fewer, of less total size, and so on: until none is left, or until
    they stay the same and fail.
    """
    size, capacity, total = g[SIZE], s[CAPACITY], rest
    while True:
        before, limit, total = total, capacity - total, 0
        for i in range(begin, stop):
            c = s[i]
            if s[VARS + c] > limit:
                total += g[size + c]
        if total == 0:
            return True
        if total == before:
            return False


@kernel
def add_size(s, start, size):
    """Also reach ``x + size`` from every reached x >= start."""
    sums, skip, shift = s[SUMS], size >> 6, size & 63
    first = start >> 6
    edge = -1 << (start & 63)
    for to in range(WORDS - 1, max(first + skip, 0) - 1, -1):
        at = to - skip
        word = s[sums + at]
        if at == first:
            word &= edge
        moved = word << shift
        if shift > 0 and at > first:
            word = s[sums + at - 1]
            if at - 1 == first:
                word &= edge
            moved |= (word >> (64 - shift)) & ((1 << shift) - 1)
        s[sums + to] |= moved


@kernel
def next_sum(s, start):
    """The least reached x >= start, or the end of the bits."""
    sums, at = s[SUMS], start >> 6
    if at >= WORDS:
        return start
    word = s[sums + at] & (-1 << (start & 63))
    while word == 0:
        at += 1
        if at >= WORDS:
            return WORDS * 64
        word = s[sums + at]
    found = at * 64
    while word & 1 == 0:
        word = (word >> 1) & 0x7FFFFFFFFFFFFFFF
        found += 1
    return found


@inner
def reach_sums(g, s, log, begin, stop, least):
    """Lift the buffers of a section to offsets that stacks of the others can reach.

    Where the rest of a section fills all that is left of it, it is one stack without gaps from
    `least` up: every offset is a sum of sizes. Taken by `low`, each buffer extends the stacks
    that reach at least its `low`; a stack without gaps can be sorted that way and stays one.
    Only the next ``64 * WORDS`` units are looked at: further up nearly every offset is a sum.
    """
    sums, size, end = s[SUMS], g[SIZE], least + 64 * WORDS
    for w in range(sums, sums + WORDS):
        s[w] = 0
    s[sums] = 1
    kept = s[COST]
    for j in range(s[PENDING], sort_members(s, begin, stop, end)):
        c = s[j]
        low = s[VARS + c]
        if low + g[size + c] < end:
            add_size(s, low - least, g[size + c])
        if low > least:
            s[kept] = c
            kept += 1
    # `lift` leaves `cost` alone, but it may raise buffers listed there.
    for j in range(s[COST], kept):
        d = s[j]
        x = s[VARS + d] - least
        missed = x < 64 * WORDS and (s[sums + (x >> 6)] >> (x & 63)) & 1 == 0
        if missed and not lift(g, s, log, d, least + next_sum(s, x)):
            return False
    return True


@inner
def study_section(g, s, log, t, stacks):
    """The costly conclusions for section t; False on contradiction."""
    begin = s[MEMBER] + g[g[BASE] + t]
    stop = begin + s[s[COUNT] + t]
    if begin == stop:
        return True
    rest, least = s[s[REST] + t], s[s[FLOOR] + t]
    if not room_above(g, s, begin, stop, rest):
        return False
    if stacks == 0 or s[CAPACITY] - rest > least:
        return True
    return reach_sums(g, s, log, begin, stop, least)


@inner
def level(g, s, t):
    """Where the next buffer of section t has to start, or -1 if there is choice."""
    if t < 0 or t >= g[K] or s[s[COUNT] + t] == 0:
        return -1
    limit = s[CAPACITY] - s[s[REST] + t]
    return limit if s[s[FLOOR] + t] == limit else -1


@inner
def settle_border(g, s, log, x):
    """Before and after section border x lies one level: what ends there needs what starts there.

    Two sections without slack that have to go on at the same offset: a buffer that starts
    between them at that offset has a neighbour that ends there, and the other way round.
    """
    here = level(g, s, x)
    if here < 0 or here != level(g, s, x - 1):
        return True
    kind, begin, end = s[KIND], g[g[STARTS] + x], g[g[STARTS] + x + 1]
    first, last = g[g[STOPS] + x], g[g[STOPS] + x + 1]
    starting, stopping = False, False
    for i in range(g[STARTING] + begin, g[STARTING] + end):
        starting = starting or (s[VARS + g[i]] == here and s[kind + g[i]] != PLACED)
    for i in range(g[STOPPING] + first, g[STOPPING] + last):
        stopping = stopping or (s[VARS + g[i]] == here and s[kind + g[i]] != PLACED)
    if starting == stopping:
        return True
    row, begin, end = (STARTING, begin, end) if starting else (STOPPING, first, last)
    for i in range(g[row] + begin, g[row] + end):
        if s[VARS + g[i]] == here and not lift(g, s, log, g[i], here + 1):
            return False
    return True
