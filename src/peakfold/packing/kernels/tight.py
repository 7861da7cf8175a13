# ruff: noqa: ANN001, ANN201 - numba infers the types of kernels
"""The costly conclusions about a section of time, most of them where little room is to spare."""

from __future__ import annotations

from peakfold.packing.kernels.cells import (
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
from peakfold.packing.kernels.jit import kernel


@kernel
def sort_members(s, begin, stop, above):  # type: ignore[no-untyped-def]
    """Fill `pending` with the buffers of a section that start higher than `above`, lowest first."""
    pending, count = s[PENDING], 0
    for i in range(begin, stop):
        c = s[i]
        low = s[VARS + c]
        if low > above:
            j = pending + count
            while j > pending and s[VARS + s[j - 1]] > low:
                s[j] = s[j - 1]
                j -= 1
            s[j] = c
            count += 1
    return count


@kernel
def room_above(g, s, count, limit):  # type: ignore[no-untyped-def]
    """Whether the buffers of a section that start at v or above fit between v and the capacity.

    For every v that is the `low` of one of them; up to `limit` they fit, all rest included.
    """
    pending, size, total = s[PENDING], g[SIZE], 0
    for j in range(pending + count - 1, pending - 1, -1):
        low = s[VARS + s[j]]
        if low <= limit:
            return True
        total += g[size + s[j]]
        if low + total > s[CAPACITY]:
            return False
    return True


@kernel
def add_size(s, start, size):  # type: ignore[no-untyped-def]
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
def next_sum(s, start):  # type: ignore[no-untyped-def]
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


@kernel
def reach_sums(g, s, log, count, least):  # type: ignore[no-untyped-def]
    """Lift the buffers in `pending` to offsets that stacks of the others can reach.

    Where the rest of a section fills all that is left of it, it is one stack without gaps from
    `least` up: every offset is a sum of sizes. Taken by `low`, each buffer extends the stacks
    that reach at least its `low`; a stack without gaps can be sorted that way and stays one.
    Only the next ``64 * WORDS`` units are looked at: further up nearly every offset is a sum.
    """
    pending, sums, size, end = s[PENDING], s[SUMS], g[SIZE], least + 64 * WORDS
    for w in range(sums, sums + WORDS):
        s[w] = 0
    s[sums] = 1
    kept = 0
    for j in range(pending, pending + count):
        c = s[j]
        low = s[VARS + c]
        if low >= end:
            break
        if low + g[size + c] < end:
            add_size(s, low - least, g[size + c])
        if low > least:
            s[s[COST] + kept] = c
            kept += 1
    # `lift` leaves `cost` alone, but it may raise buffers listed there.
    for j in range(s[COST], s[COST] + kept):
        d = s[j]
        x = s[VARS + d] - least
        missed = x < 64 * WORDS and (s[sums + (x >> 6)] >> (x & 63)) & 1 == 0
        if missed and not lift(g, s, log, d, least + next_sum(s, x)):
            return False
    return True


@kernel
def study_section(g, s, log, t, stacks):  # type: ignore[no-untyped-def]
    """The costly conclusions for section t; False on contradiction."""
    begin = s[MEMBER] + g[g[BASE] + t]
    stop = begin + s[s[COUNT] + t]
    if begin == stop:
        return True
    limit, least = s[CAPACITY] - s[s[REST] + t], s[s[FLOOR] + t]
    tight = stacks != 0 and limit == least
    count = sort_members(s, begin, stop, -1 if tight else limit)
    if not room_above(g, s, count, limit):
        return False
    return not tight or reach_sums(g, s, log, count, least)


@kernel
def level(g, s, t):  # type: ignore[no-untyped-def]
    """Where the next buffer of section t has to start, or -1 if there is choice."""
    if t < 0 or t >= g[K] or s[s[COUNT] + t] == 0:
        return -1
    limit = s[CAPACITY] - s[s[REST] + t]
    return limit if s[s[FLOOR] + t] == limit else -1


@kernel
def settle_border(g, s, log, x):  # type: ignore[no-untyped-def]
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
