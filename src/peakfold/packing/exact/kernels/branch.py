"""One step of the exact search: placing, blocking, propagation. The vectors are in `cells`."""

from __future__ import annotations

from peakfold.packing.exact.kernels.jit import inner, kernel
from peakfold.packing.exact.kernels.state_layout import (
    AT,
    BASE,
    BLOCKED,
    CAPACITY,
    COST,
    COUNT,
    CROSS,
    DOUBT,
    DOUBTS,
    ENDS,
    ENTRY,
    FAR,
    FLOOR,
    HOT,
    KIND,
    LEFT,
    LOOSE,
    MEMBER,
    NEAR,
    NEIGHBOUR,
    OPEN,
    PENDING,
    PLACED,
    QUEUED,
    REST,
    RIGHT,
    SECTION,
    SIZE,
    SLOT,
    SPLIT,
    STACKS,
    STARTS,
    TIGHT,
    VARS,
    WATCH,
    K,
    N,
    drain,
    lift,
    look_at,
    next_section,
    put,
)
from peakfold.packing.exact.kernels.zero_slack import settle_border, study_section


@inner
def check_section(g, s, log, t, lifting):
    """Does the rest of section t still fit, and (if `lifting`) who cannot be lowest in it?

    The unplaced buffers of a section lie above each other, so the lowest one starts at
    ``limit = capacity - rest`` or below. The others lie above the end of such a one.
    """
    size, capacity = g[SIZE], s[CAPACITY]
    begin = s[MEMBER] + g[g[BASE] + t]
    stop = begin + s[s[COUNT] + t]
    limit = capacity - s[s[REST] + t]
    least, least_above, first_end = FAR, FAR, FAR
    for i in range(begin, stop):
        c = s[i]
        low = s[VARS + c]
        least = min(least, low)
        if low <= limit:
            first_end = min(first_end, low + g[size + c])
        else:
            least_above = min(least_above, low)
    if s[s[FLOOR] + t] != least:
        put(s, log, s[FLOOR] + t, least)
    if s[s[ENDS] + t] != first_end:
        put(s, log, s[ENDS] + t, first_end)
    if least > limit and begin < stop:
        return False
    if not lifting:
        return True
    if least_above < first_end:
        for i in range(begin, stop):
            d = s[i]
            if limit < s[VARS + d] < first_end and not lift(g, s, log, d, first_end):
                return False
    if s[s[DOUBT] + t] == 0:
        s[s[DOUBT] + t] = 1
        s[s[TIGHT] + s[DOUBTS]] = t
        s[DOUBTS] += 1
    return True


@inner
def supported(g, s, d):
    """Whether blocked d lies above the end of some unplaced conflicting buffer; not a loose one.

    That buffer is kept in `watch`, and looked at first.
    """
    low, size, kind, loose = s[VARS + d], g[SIZE], s[KIND], s[LOOSE]
    w = s[s[WATCH] + d]
    if w >= 0 and s[kind + w] != PLACED and s[loose + w] == 0 and s[VARS + w] + g[size + w] <= low:
        return True
    for i in range(g[NEIGHBOUR] + g[g[NEAR] + d], g[NEIGHBOUR] + g[g[NEAR] + d + 1]):
        c = g[i]
        if s[VARS + c] + g[size + c] <= low and s[kind + c] != PLACED and s[loose + c] == 0:
            s[s[WATCH] + d] = c
            return True
    return False


@inner
def meets(g, c, d):
    """Whether two buffers conflict (binary search in the sorted row of c)."""
    low, stop = g[NEIGHBOUR] + g[g[NEAR] + c], g[NEIGHBOUR] + g[g[NEAR] + c + 1]
    high = stop
    while low < high:
        middle = (low + high) // 2
        if g[middle] < d:
            low = middle + 1
        else:
            high = middle
    return low < stop and g[low] == d


@inner
def list_loose(g, s):
    """Fill `pending` with the blocked buffers that rest on nothing, or only on such ones.

    Whoever supports a buffer ends lower than it, so the supports of the others lead down to
    open buffers.
    """
    kind, loose, watch, pending, count = s[KIND], s[LOOSE], s[WATCH], s[PENDING], 0
    for d in range(g[N]):
        if s[kind + d] == BLOCKED and not supported(g, s, d):
            s[pending + count] = d
            count += 1
    for j in range(pending, pending + count):
        s[loose + s[j]] = 1
    done = 0
    while done < count:
        c = s[pending + done]
        done += 1
        for i in range(g[NEIGHBOUR] + g[g[NEAR] + c], g[NEIGHBOUR] + g[g[NEAR] + c + 1]):
            d = g[i]
            loosened = s[watch + d] == c and s[kind + d] == BLOCKED and s[loose + d] == 0
            if loosened and not supported(g, s, d):
                s[loose + d] = 1
                s[pending + count] = d
                count += 1
    return count


@inner
def price_loose(g, s, count):
    """Fill `cost` with the least offset at which the others let each loose buffer lie."""
    kind, size, loose, pending = s[KIND], g[SIZE], s[LOOSE], s[PENDING]
    for j in range(pending, pending + count):
        d, least = s[j], FAR
        for i in range(g[NEIGHBOUR] + g[g[NEAR] + d], g[NEIGHBOUR] + g[g[NEAR] + d + 1]):
            c = g[i]
            end = s[VARS + c] + g[size + c]
            if end < least and s[kind + c] != PLACED and s[loose + c] == 0:
                least = end
                s[s[WATCH] + d] = c
        s[s[COST] + d] = least


@inner
def settle_blocked(g, s, log):
    """Raise every loose blocked buffer above the least end of what can lie below it.

    They may rest on each other, so this is a shortest path from the others (Dijkstra): raising
    them one by one would climb in steps of the smallest size. -1 on contradiction, else how
    many were raised.
    """
    size, cost, pending, loose = g[SIZE], s[COST], s[PENDING], s[LOOSE]
    found = count = list_loose(g, s)
    price_loose(g, s, count)
    for j in range(pending, pending + count):
        s[loose + s[j]] = 0
    while count > 0:
        at, best = 0, FAR + FAR
        for j in range(count):
            end = s[cost + s[pending + j]] + g[size + s[pending + j]]
            if end < best:
                at, best = j, end
        d = s[pending + at]
        count -= 1
        s[pending + at] = s[pending + count]
        if s[cost + d] >= FAR or not lift(g, s, log, d, s[cost + d]):
            return -1
        for j in range(count):
            c = s[pending + j]
            if best < s[cost + c] and meets(g, d, c):
                s[cost + c] = best
                s[s[WATCH] + c] = d
    return found


@kernel
def propagate(g, s, log, rule):
    """Draw all conclusions; False if there is a contradiction. Leaves the queue empty.

    The section that failed is kept in `HOT`: the next decision is taken there. Two sections can
    lift each other's buffers in steps of the smallest size, so effort is bounded: beyond it the
    sections are only brought up to date (what is not concluded is decided by search). Cheap
    conclusions come first: a section gets its costly look once those are all drawn. Without
    `STACKS` in the rule, nothing is concluded from sections being stacks without gaps.
    """
    effort, stacks = 4 * g[K] + 100, rule & STACKS
    while True:
        while s[QUEUED] > 0:
            t = next_section(g, s)
            effort -= 1
            fine = check_section(g, s, log, t, effort > 0)
            if fine and effort > 0 and stacks and g[STARTS] > 0:
                fine = settle_border(g, s, log, t) and settle_border(g, s, log, t + 1)
            if not fine:
                s[HOT] = t
                return drain(g, s)
        if effort <= 0:
            drain(g, s)
            return True
        if s[DOUBTS] > 0:
            s[DOUBTS] -= 1
            t = s[s[TIGHT] + s[DOUBTS]]
            s[s[DOUBT] + t] = 0
            if not study_section(g, s, log, t, stacks):
                s[HOT] = t
                return drain(g, s)
            continue
        raised = settle_blocked(g, s, log)
        if raised < 0:
            return drain(g, s)
        if raised == 0:
            return True


@inner
def leave_section(g, s, log, i, t):
    """Take the buffer of incidence i out of the sparse set of section t."""
    count = s[s[COUNT] + t] - 1
    put(s, log, s[COUNT] + t, count)
    member, entry, slot = s[MEMBER], s[ENTRY], s[SLOT]
    here, there = s[slot + i], g[g[BASE] + t] + count
    s[member + here], s[member + there] = s[member + there], s[member + here]
    s[entry + here], s[entry + there] = s[entry + there], s[entry + here]
    s[slot + s[entry + here]] = here
    s[slot + s[entry + there]] = there


@inner
def place(g, s, log, b):
    """Put b at its least offset, with nothing unplaced below it; False on contradiction."""
    kind, rest, cross, size = s[KIND], s[REST], s[CROSS], g[g[SIZE] + b]
    put(s, log, kind + b, PLACED)
    for i in range(g[g[AT] + b], g[g[AT] + b + 1]):
        t = g[g[SECTION] + i]
        put(s, log, rest + t, s[rest + t] - size)
        leave_section(g, s, log, i, t)
        look_at(g, s, t)
    for t in range(g[g[LEFT] + b] + 1, g[g[RIGHT] + b]):
        put(s, log, cross + t, s[cross + t] - 1)
        if s[cross + t] == 0:
            s[SPLIT] = 1
    end = s[VARS + b] + size
    for i in range(g[NEIGHBOUR] + g[g[NEAR] + b], g[NEIGHBOUR] + g[g[NEAR] + b + 1]):
        c = g[i]
        if s[kind + c] == PLACED:
            continue
        if s[kind + c] == BLOCKED:
            put(s, log, kind + c, OPEN)
        if s[VARS + c] < end and not lift(g, s, log, c, end):
            return drain(g, s)
    return True
