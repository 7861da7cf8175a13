# ruff: noqa: ANN001, ANN201 - numba infers the types of kernels
"""One step of the exact search: placing, blocking, propagation, and an undo log.

Both arguments of every function are flat int64 vectors, because passing many arrays around
costs numba more than the work itself. `g` is the problem (read only), `s` the search.

g, for n buffers and k sections: a header of base positions (named below), then
    size, align, top   (n,) size, alignment, largest legal offset
    left, right        (n,) hull of the lifetime in sections
    at, section        CSR of sections by buffer
    near, neighbour    CSR of conflicting buffers, rows sorted
    before, after      (n,) previous and next buffer of a class of equal ones, or -1
    base               (k + 1,) where the sparse set of each section starts

s: a header of registers, then the undoable variables from `VARS` on
    low    (n,) least offset each buffer can still have
    kind   (n,) OPEN, BLOCKED (something unplaced ends up below it) or PLACED
    rest   (k,) sum of sizes of the unplaced buffers of a section
    count  (k,) number of them
    floor  (k,) least `low` of them
    cross  (k,) unplaced buffers alive in both section i - 1 and section i
    ends   (k,) least end of those that can be lowest in the section
and scratch that needs no undo: stamp, queue, queued, member, entry, slot, watch, cost, todo, key.

A variable is logged once per node (`stamp`), which bounds the log by nodes times variables.
"""

from __future__ import annotations

from numba import njit

OPEN, BLOCKED, PLACED = 0, 1, 2
FAR = 1 << 60

# Header of g.
N, K, SIZE, ALIGN, TOP, LEFT, RIGHT, AT, SECTION, NEAR, NEIGHBOUR, BEFORE, AFTER, BASE = range(14)
G_HEADER = 16
# Header of s: registers, then bases.
NODE, FRESH, LOG, QUEUED, SPLIT, DEPTH, LO, HI, PEND, PENDS, NODES, HITS, CAPACITY, HOT = range(14)
KIND, REST, COUNT, FLOOR, CROSS, ENDS, STAMP, QUEUE, WAITING = range(14, 23)
MEMBER, ENTRY, SLOT, WATCH, COST, TODO, KEY = range(23, 30)
VARS = 32


@njit(cache=True, nogil=True)
def put(s, log, variable, value):  # type: ignore[no-untyped-def]
    """Set a variable, remembering its value before this node."""
    stamp = s[STAMP] + variable
    if s[stamp] != s[NODE]:
        s[stamp] = s[NODE]
        log[s[LOG], 0] = variable
        log[s[LOG], 1] = s[variable]
        s[LOG] += 1
    s[variable] = value


@njit(cache=True, nogil=True)
def undo(s, log, mark):  # type: ignore[no-untyped-def]
    """Take back everything logged since `mark`."""
    for i in range(s[LOG] - 1, mark - 1, -1):
        s[log[i, 0]] = log[i, 1]
    s[LOG] = mark
    s[NODE] = s[FRESH]
    s[FRESH] += 1


@njit(cache=True, nogil=True)
def look_at(s, section):  # type: ignore[no-untyped-def]
    """Queue a section for propagation."""
    if s[s[WAITING] + section] == 0:
        s[s[WAITING] + section] = 1
        s[s[QUEUE] + s[QUEUED]] = section
        s[QUEUED] += 1


@njit(cache=True, nogil=True)
def drain(s):  # type: ignore[no-untyped-def]
    """Empty the queue after a contradiction; always False."""
    while s[QUEUED] > 0:
        s[QUEUED] -= 1
        s[s[WAITING] + s[s[QUEUE] + s[QUEUED]]] = 0
    return False


@njit(cache=True, nogil=True)
def lift(g, s, log, b, value):  # type: ignore[no-untyped-def]
    """Raise `low` of b to at least `value`; False if it cannot lie there.

    Equal buffers keep index order, so the next one of the class starts where b ends. A section
    needs a full look only if b was its floor or its first end; else b alone is looked at.
    """
    kind, rest, floor, ends, waiting = s[KIND], s[REST], s[FLOOR], s[ENDS], s[WAITING]
    while b >= 0 and s[kind + b] != PLACED:
        step, size = g[g[ALIGN] + b], g[g[SIZE] + b]
        old = s[VARS + b]
        while value > old:
            if step > 1:
                value = (value + step - 1) // step * step
            if value > g[g[TOP] + b]:
                return False
            more = value
            for i in range(g[SECTION] + g[g[AT] + b], g[SECTION] + g[g[AT] + b + 1]):
                t = g[i]
                if s[waiting + t] == 0:
                    end = s[ends + t]
                    if old == s[floor + t] or old + size == end:
                        look_at(s, t)
                    elif more < end and value > s[CAPACITY] - s[rest + t]:
                        more = end
            put(s, log, VARS + b, value)
            old, value = value, more
        value = old + size
        b = g[g[AFTER] + b]
        if b >= 0 and s[VARS + b] >= value:
            return True
    return True


@njit(cache=True, nogil=True)
def room_above(g, s, begin, stop, limit):  # type: ignore[no-untyped-def]
    """Whether the buffers of a section that start at v or above fit between v and the capacity.

    For every v that is the `low` of one of them; up to `limit` they fit, all rest included.
    """
    todo, size, count = s[TODO], g[SIZE], 0
    for i in range(begin, stop):
        c = s[i]
        low = s[VARS + c]
        if low > limit:
            j = todo + count
            while j > todo and s[VARS + s[j - 1]] < low:
                s[j] = s[j - 1]
                j -= 1
            s[j] = c
            count += 1
    total = 0
    for j in range(todo, todo + count):
        total += g[size + s[j]]
        if s[VARS + s[j]] + total > s[CAPACITY]:
            return False
    return True


@njit(cache=True, nogil=True)
def check_section(g, s, log, t, lifting):  # type: ignore[no-untyped-def]
    """Does the rest of section t still fit, and (if `lifting`) who cannot be lowest in it?

    The unplaced buffers of a section lie above each other, so the lowest one starts at
    ``limit = capacity - rest`` or below. The others lie above the end of such a one.
    """
    size = g[SIZE]
    begin = s[MEMBER] + g[g[BASE] + t]
    stop = begin + s[s[COUNT] + t]
    limit = s[CAPACITY] - s[s[REST] + t]
    least, first_end = FAR, FAR
    for i in range(begin, stop):
        c = s[i]
        low = s[VARS + c]
        least = min(least, low)
        if low <= limit:
            first_end = min(first_end, low + g[size + c])
    if s[s[FLOOR] + t] != least:
        put(s, log, s[FLOOR] + t, least)
    if s[s[ENDS] + t] != first_end:
        put(s, log, s[ENDS] + t, first_end)
    if least > limit and begin < stop:
        return False
    if not lifting:
        return True
    if not room_above(g, s, begin, stop, limit):
        return False
    for i in range(begin, stop):
        d = s[i]
        if limit < s[VARS + d] < first_end and not lift(g, s, log, d, first_end):
            return False
    return True


@njit(cache=True, nogil=True)
def supported(g, s, d):  # type: ignore[no-untyped-def]
    """Whether blocked d lies above the end of some unplaced conflicting buffer."""
    low, size, kind = s[VARS + d], g[SIZE], s[KIND]
    w = s[s[WATCH] + d]
    if w >= 0 and s[kind + w] != PLACED and s[VARS + w] + g[size + w] <= low:
        return True
    for i in range(g[NEIGHBOUR] + g[g[NEAR] + d], g[NEIGHBOUR] + g[g[NEAR] + d + 1]):
        c = g[i]
        if s[kind + c] != PLACED and s[VARS + c] + g[size + c] <= low:
            s[s[WATCH] + d] = c
            return True
    return False


@njit(cache=True, nogil=True)
def meets(g, c, d):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True)
def list_blocked(g, s):  # type: ignore[no-untyped-def]
    """Fill `todo` with the blocked buffers and `cost` with where open ones let them lie."""
    kind, size, cost, count = s[KIND], g[SIZE], s[COST], 0
    for d in range(g[N]):
        if s[kind + d] == BLOCKED:
            least = FAR
            for i in range(g[NEIGHBOUR] + g[g[NEAR] + d], g[NEIGHBOUR] + g[g[NEAR] + d + 1]):
                c = g[i]
                if s[kind + c] == OPEN and s[VARS + c] + g[size + c] < least:
                    least = s[VARS + c] + g[size + c]
                    s[s[WATCH] + d] = c
            s[cost + d] = max(s[VARS + d], least)
            s[s[TODO] + count] = d
            count += 1
    return count


@njit(cache=True, nogil=True)
def settle_blocked(g, s, log):  # type: ignore[no-untyped-def]
    """Raise every blocked buffer above the least end of what can lie below it.

    Blocked ones may rest on each other, so this is a shortest path from the open ones
    (Dijkstra): raising them one by one would climb in steps of the smallest size.
    """
    size, cost, todo = g[SIZE], s[COST], s[TODO]
    count = list_blocked(g, s)
    while count > 0:
        at, best = 0, FAR + FAR
        for j in range(count):
            end = s[cost + s[todo + j]] + g[size + s[todo + j]]
            if end < best:
                at, best = j, end
        d = s[todo + at]
        count -= 1
        s[todo + at] = s[todo + count]
        if s[cost + d] >= FAR or not lift(g, s, log, d, s[cost + d]):
            return False
        for j in range(count):
            c = s[todo + j]
            if best < s[cost + c] and s[VARS + c] < s[cost + c] and meets(g, d, c):
                s[cost + c] = max(s[VARS + c], best)
                s[s[WATCH] + c] = d
    return True


@njit(cache=True, nogil=True)
def propagate(g, s, log):  # type: ignore[no-untyped-def]
    """Draw all conclusions; False if there is a contradiction. Leaves the queue empty.

    The section that failed is kept in `HOT`: the next decision is taken there. Two sections can
    lift each other's buffers in steps of the smallest size, so effort is bounded: beyond it the
    sections are only brought up to date (what is not concluded is decided by search).
    """
    kind, effort = s[KIND], 4 * g[K] + 100
    while True:
        while s[QUEUED] > 0:
            s[QUEUED] -= 1
            t = s[s[QUEUE] + s[QUEUED]]
            s[s[WAITING] + t] = 0
            effort -= 1
            if not check_section(g, s, log, t, effort > 0):
                s[HOT] = t
                return drain(s)
        if effort <= 0:
            return True
        fine = True
        for d in range(g[N]):
            if s[kind + d] == BLOCKED and not supported(g, s, d):
                fine = False
                break
        if fine:
            return True
        if not settle_blocked(g, s, log):
            return drain(s)


@njit(cache=True, nogil=True)
def leave_section(g, s, log, i, t):  # type: ignore[no-untyped-def]
    """Take the buffer of incidence i out of the sparse set of section t."""
    count = s[s[COUNT] + t] - 1
    put(s, log, s[COUNT] + t, count)
    member, entry, slot = s[MEMBER], s[ENTRY], s[SLOT]
    here, there = s[slot + i], g[g[BASE] + t] + count
    s[member + here], s[member + there] = s[member + there], s[member + here]
    s[entry + here], s[entry + there] = s[entry + there], s[entry + here]
    s[slot + s[entry + here]] = here
    s[slot + s[entry + there]] = there


@njit(cache=True, nogil=True)
def place(g, s, log, b):  # type: ignore[no-untyped-def]
    """Put b at its least offset, with nothing unplaced below it; False on contradiction."""
    kind, rest, cross, size = s[KIND], s[REST], s[CROSS], g[g[SIZE] + b]
    put(s, log, kind + b, PLACED)
    for i in range(g[g[AT] + b], g[g[AT] + b + 1]):
        t = g[g[SECTION] + i]
        put(s, log, rest + t, s[rest + t] - size)
        leave_section(g, s, log, i, t)
        look_at(s, t)
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
            return drain(s)
    return True
