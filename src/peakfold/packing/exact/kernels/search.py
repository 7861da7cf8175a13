"""The exact search: depth first over `branch`, resumable after any number of nodes.

At a node one open buffer b is chosen. Either no unplaced conflicting buffer ends up below b:
then b lies at its `low`, and all of those lie above it. Or one does: then b is blocked until
one of them is placed, and `low` rises accordingly. The two cases exclude each other and cover
everything for any b, so the choice is free to fail first. Any packing can be pushed down until
every buffer rests on 0, on another buffer or on its pin, so nothing is lost.
"""

from __future__ import annotations

import numpy as np

from peakfold.packing.exact.kernels.branch import place, propagate
from peakfold.packing.exact.kernels.jit import inner, kernel
from peakfold.packing.exact.kernels.state_layout import (
    AT,
    BASE,
    BEFORE,
    BLOCKED,
    CAPACITY,
    COUNT,
    CROSS,
    DEPTH,
    FAR,
    FLOOR,
    FRESH,
    HI,
    HITS,
    HOT,
    KEY,
    KIND,
    LEFT,
    LO,
    LOG,
    MEMBER,
    NODE,
    NODES,
    OPEN,
    PEND,
    PENDS,
    PLACED,
    REST,
    RIGHT,
    SECTION,
    SPLIT,
    VARS,
    K,
    N,
    put,
    undo,
)

REFUTED, SOLVED, PAUSED, GROW = 0, 1, 2, 3
LOWEST, TIGHTEST, FITTING, BACKWARD = 0, 1, 2, 4
"""Bits of a rule; `STACKS` is in `cells`."""
F_BUFFER, F_MARK, F_LO, F_HI, F_PEND, F_PENDS, F_PHASE, F_HASH, F_CHECK = range(9)
FRAME = 9
P_LO, P_HI, P_NEXT, P_DEPTH = range(4)


@inner
def mix(x):
    """A 64-bit finaliser (the constants of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inner
def signature(g, s):
    """Two hashes of all that the future of the current part of time depends on.

    That is `low` and `kind` of its unplaced buffers; how they got there does not matter.
    """
    n, lo, hi, kind = g[N], s[LO], s[HI], s[KIND]
    one, two = np.uint64(lo + 1), np.uint64(hi + 7919)
    for b in range(n):
        if s[kind + b] != PLACED and g[g[LEFT] + b] >= lo and g[g[RIGHT] + b] <= hi:
            word = mix(np.uint64((s[VARS + b] * 2 + s[kind + b]) * n + b + 1))
            one += word
            two += mix(word + np.uint64(0x9E3779B97F4A7C15))
    return np.int64(one), np.int64(two)


@inner
def may_be_lowest(g, s, b):
    """Whether every section of b has room for all its rest above `low` of b."""
    limit = s[CAPACITY] - s[VARS + b]
    for i in range(g[SECTION] + g[g[AT] + b], g[SECTION] + g[g[AT] + b + 1]):
        if s[s[REST] + g[i]] > limit:
            return False
    return True


@inner
def tightest(s, rule):
    """The section with least slack, the lowest among equals; the first or, BACKWARD, the last."""
    best, lowest, found = FAR, FAR, -1
    lo, hi, turned = s[LO], s[HI], rule & BACKWARD
    for i in range(lo, hi):
        t = lo + hi - 1 - i if turned else i
        if s[s[COUNT] + t] == 0:
            continue
        floor = s[s[FLOOR] + t]
        slack = s[CAPACITY] - s[s[REST] + t] - floor
        if slack < best or (slack == best and floor < lowest):
            best, lowest, found = slack, floor, t
    return found


@inner
def walls(g, s, b):
    """How many ends of the lifetime of b meet a higher floor: 2 means that b fills a valley."""
    left, right, low = g[g[LEFT] + b], g[g[RIGHT] + b], s[VARS + b]
    found = 0
    if left == s[LO] or s[s[FLOOR] + left - 1] > low:
        found += 1
    if right == s[HI] or s[s[FLOOR] + right] > low:
        found += 1
    return found


@inner
def better(g, s, b, found, rule):
    """Whether b may be chosen and comes before `found`: lower first, then by walls or key."""
    if s[s[KIND] + b] != OPEN:
        return False
    before = g[g[BEFORE] + b]
    if before >= 0 and s[s[KIND] + before] != PLACED:
        return False
    if found < 0 or s[VARS + b] < s[VARS + found]:
        return True
    if rule & FITTING and s[VARS + b] == s[VARS + found]:
        mine, other = walls(g, s, b), walls(g, s, found)
        if mine != other:
            return mine > other
    return s[VARS + b] == s[VARS + found] and s[s[KEY] + b] < s[s[KEY] + found]


@inner
def choose(g, s, rule):
    """The buffer to branch on, or -1 if none is open.

    In the section where the last contradiction was found, if any (what failed there will
    mostly fail again, and deciding it first skips the decisions that have no part in it);
    else in the tightest section, or the lowest of all, by `rule`.
    """
    found = -1
    t = s[HOT]
    if t < s[LO] or t >= s[HI] or s[s[COUNT] + t] == 0:
        t = tightest(s, rule) if rule & TIGHTEST else -1
    s[HOT] = -1
    if t >= 0:
        begin = s[MEMBER] + g[g[BASE] + t]
        for i in range(begin, begin + s[s[COUNT] + t]):
            if better(g, s, s[i], found, rule):
                found = s[i]
        if found >= 0:
            return found
    for b in range(g[N]):
        if g[g[LEFT] + b] >= s[LO] and g[g[RIGHT] + b] <= s[HI] and better(g, s, b, found, rule):
            found = b
    return found


@kernel
def split(s, pend):
    """Cut the current part of time where nothing unplaced crosses; smallest part first."""
    s[SPLIT] = 0
    lo, hi, first, weight = s[LO], s[HI], s[PENDS], 0
    for t in range(lo, hi):
        weight += s[s[COUNT] + t]
        if t + 1 == hi or s[s[CROSS] + t + 1] == 0:
            if weight > 0:
                # Insertion sort by weight, kept in P_DEPTH: heaviest first.
                at = s[PENDS]
                while at > first and pend[at - 1, P_DEPTH] < weight:
                    for i in range(P_DEPTH + 1):
                        pend[at, i] = pend[at - 1, i]
                    at -= 1
                pend[at, P_LO], pend[at, P_HI], pend[at, P_DEPTH] = lo, t + 1, weight
                s[PENDS] += 1
            lo, weight = t + 1, 0
    for i in range(first, s[PENDS]):
        pend[i, P_DEPTH] = s[DEPTH]
        pend[i, P_NEXT] = s[PEND] if i == first else i - 1
    if s[PENDS] > first:
        s[PEND] = s[PENDS] - 1
        next_part(s, pend)


@inner
def next_part(s, pend):
    """Go to the next pending part of time; False if there is none.

    Parts do not influence each other, so what the last one decided stays for good: its frames
    are dropped while its entries in the log remain.
    """
    at = s[PEND]
    if at < 0:
        return False
    s[LO], s[HI] = pend[at, P_LO], pend[at, P_HI]
    s[PEND], s[DEPTH] = pend[at, P_NEXT], pend[at, P_DEPTH]
    return True


@inner
def backtrack(g, s, log, frames, memo, rule):
    """Undo to the last decision with an untried side and take it; False if there is none."""
    s[SPLIT] = 0
    while s[DEPTH] > 0:
        f = s[DEPTH] - 1
        undo(s, log, frames[f, F_MARK])
        s[LO], s[HI] = frames[f, F_LO], frames[f, F_HI]
        s[PEND], s[PENDS] = frames[f, F_PEND], frames[f, F_PENDS]
        if frames[f, F_PHASE] == 0:
            frames[f, F_PHASE] = 1
            put(s, log, s[KIND] + frames[f, F_BUFFER], BLOCKED)
            if propagate(g, s, log, rule):
                return True
        else:
            memo[frames[f, F_HASH] & (len(memo) - 1)] = frames[f, F_CHECK]
            s[DEPTH] -= 1
    return False


@inner
def descend(g, s, log, frames, memo, rule):
    """Decide one buffer; False on contradiction (the caller backtracks)."""
    while True:
        b = choose(g, s, rule)
        if b < 0:
            return False
        if may_be_lowest(g, s, b):
            break
        put(s, log, s[KIND] + b, BLOCKED)
        if not propagate(g, s, log, rule):
            return False
    one, two = signature(g, s)
    if memo[one & (len(memo) - 1)] == two:
        s[HITS] += 1
        return False
    f = s[DEPTH]
    frames[f, F_BUFFER], frames[f, F_MARK], frames[f, F_PHASE] = b, s[LOG], 0
    frames[f, F_LO], frames[f, F_HI] = s[LO], s[HI]
    frames[f, F_PEND], frames[f, F_PENDS] = s[PEND], s[PENDS]
    frames[f, F_HASH], frames[f, F_CHECK] = one, two
    s[DEPTH] += 1
    s[NODES] += 1
    s[NODE] = s[FRESH]
    s[FRESH] += 1
    return place(g, s, log, b) and propagate(g, s, log, rule)


@kernel
def search(g, s, log, frames, pend, memo, rule, nodes):
    """Run until solved, refuted, or `nodes` more nodes; call again to go on.

    GROW asks the caller for a longer log or deeper stacks; the state is consistent then.
    """
    k, variables = g[K], 2 * g[N] + 5 * g[K]
    stop = s[NODES] + nodes
    while True:
        if (
            s[LOG] + 4 * variables > len(log)
            or s[DEPTH] + 4 > len(frames)
            or s[PENDS] + k + 4 > len(pend)
        ):
            return GROW
        if s[NODES] >= stop:
            return PAUSED
        left = 0
        for t in range(s[LO], s[HI]):
            left += s[s[COUNT] + t]
        if left == 0:
            if not next_part(s, pend):
                return SOLVED
        elif descend(g, s, log, frames, memo, rule):
            if s[SPLIT] == 1:
                split(s, pend)
        elif not backtrack(g, s, log, frames, memo, rule):
            return REFUTED
