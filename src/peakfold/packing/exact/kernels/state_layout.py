"""The vectors of the exact search, and the primitives that change them: an undo log, queues.

Both arguments of every function are flat int64 vectors, because passing many arrays around
costs numba more than the work itself. `g` is the problem (read only), `s` the search.

g, for n buffers and k sections: a header of base positions (named below), then
    size, align, top   (n,) size, alignment, largest legal offset
    left, right        (n,) hull of the lifetime in sections
    at, section        CSR of sections by buffer
    near, neighbour    CSR of conflicting buffers, rows sorted
    before, after      (n,) previous and next buffer of a class of equal ones, or -1
    base               (k + 1,) where the sparse set of each section starts
    starts, starting   CSR of buffers by the section border where they start; 0 if unordered
    stops, stopping    the same for where they stop

s: a header of registers, then the undoable variables from `VARS` on
    low    (n,) least offset each buffer can still have
    kind   (n,) OPEN, BLOCKED (something unplaced ends up below it) or PLACED
    rest   (k,) sum of sizes of the unplaced buffers of a section
    count  (k,) number of them
    floor  (k,) least `low` of them
    cross  (k,) unplaced buffers alive in both section i - 1 and section i
    ends   (k,) least end of those that can be lowest in the section
and scratch that needs no undo: stamp, queue, waiting, member, entry, slot, watch, cost, pending,
loose, key, sums (bits of `tight.reach_sums`), tight and doubt (the queue of sections for a costly
look).

A variable is logged once per node (`stamp`), which bounds the log by nodes times variables.

Positions are compiled into every kernel, and numba's cache looks only at the file of a kernel:
after a change here, empty the caches of the others (``__pycache__/*.nb?``).
"""

from __future__ import annotations

from peakfold.packing.exact.kernels.jit import inner

OPEN, BLOCKED, PLACED = 0, 1, 2
FAR = 1 << 60

# Header of g.
N, K, SIZE, ALIGN, TOP, LEFT, RIGHT, AT, SECTION, NEAR, NEIGHBOUR, BEFORE, AFTER, BASE = range(14)
STARTS, STARTING, STOPS, STOPPING = range(14, 18)
G_HEADER = 18
# Header of s: registers, then bases.
NODE, FRESH, LOG, QUEUED, SPLIT, DEPTH, LO, HI, PEND, PENDS, NODES, HITS, CAPACITY, HOT = range(14)
KIND, REST, COUNT, FLOOR, CROSS, ENDS, STAMP, QUEUE, WAITING = range(14, 23)
MEMBER, ENTRY, SLOT, WATCH, COST, PENDING, LOOSE, KEY, SUMS = range(23, 32)
TIGHT, DOUBT, DOUBTS, HEAD = range(32, 36)
VARS = 36
STACKS = 8
"""Bit of a rule: draw the conclusions of `tight` from sections without room to spare."""

WORDS = 2
"""Words of 64 bits in `sums`."""


@inner
def put(s, log, variable, value):
    """Set a variable, remembering its value before this node."""
    stamp = s[STAMP] + variable
    if s[stamp] != s[NODE]:
        s[stamp] = s[NODE]
        log[s[LOG], 0] = variable
        log[s[LOG], 1] = s[variable]
        s[LOG] += 1
    s[variable] = value


@inner
def undo(s, log, mark):
    """Take back everything logged since `mark`."""
    for i in range(s[LOG] - 1, mark - 1, -1):
        s[log[i, 0]] = log[i, 1]
    s[LOG] = mark
    s[NODE] = s[FRESH]
    s[FRESH] += 1


@inner
def look_at(g, s, section):
    """Queue a section for propagation."""
    if s[s[WAITING] + section] == 0:
        s[s[WAITING] + section] = 1
        at = s[HEAD] + s[QUEUED]
        s[s[QUEUE] + (at if at < g[K] else at - g[K])] = section
        s[QUEUED] += 1


@inner
def next_section(g, s):
    """Take the section that has waited longest out of the queue, which is not empty."""
    t = s[s[QUEUE] + s[HEAD]]
    s[HEAD] = s[HEAD] + 1 if s[HEAD] + 1 < g[K] else 0
    s[QUEUED] -= 1
    s[s[WAITING] + t] = 0
    return t


@inner
def drain(g, s):
    """Empty the queues after a contradiction; always False."""
    while s[QUEUED] > 0:
        next_section(g, s)
    while s[DOUBTS] > 0:
        s[DOUBTS] -= 1
        s[s[DOUBT] + s[s[TIGHT] + s[DOUBTS]]] = 0
    return False


@inner
def lift(g, s, log, b, value):
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
                        look_at(g, s, t)
                    elif more < end and value > s[CAPACITY] - s[rest + t]:
                        more = end
            put(s, log, VARS + b, value)
            old, value = value, more
        value = old + size
        b = g[g[AFTER] + b]
        if b >= 0 and s[VARS + b] >= value:
            return True
    return True
