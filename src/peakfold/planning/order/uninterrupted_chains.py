"""Runs of a chain that some best order never interrupts: hills and the valleys behind them.

A run S = v1 .. vk is a piece of a chain: each op but the first needs only the one before it,
each but the last is needed only by the next, and what they free depends on the chain alone.
Let e(j) be the bytes vj adds in its step and l(j) the bytes by which S has changed what is
alive once v1 .. vj have run. Let the hill m be a j with the largest l(j - 1) + e(j). If

1. l(j) >= 0 for 0 < j < m: before the hill, having started is never a gain, and
2. l(j) >= l(k) for m <= j: behind it, going on to the end is never a loss,

then some best order runs S in one go. Take a best order, delay the ops before the hill to
just before it and bring forward those behind it to just behind it. By (1) and (2) no other
op then sees more bytes, and the ops of S see at most what the hill costs, which stays where
it was. This is how Liu (1987) merges subtrees in the pebble game, for chains in any graph.

The first op may share what it reads with ops outside. So l counts as if v1 freed all of that
where a small l is a risk, and nothing of it where a large l is one. An op outside may be in
place only once v1 has run; (1) then asks for l at least as large as that saves.
"""

from __future__ import annotations

from dataclasses import dataclass

from peakfold.planning.order.fragment import Fragment, bits

# Longest run that is looked for.
_LONG = 32


@dataclass(frozen=True, slots=True)
class _Profile:
    """A run as it grows, in bytes relative to its start.

    Attributes:
        low, high: alive behind each op, if the first frees all it can, and only what it must.
        costs_low, costs_high: in each step, the least and the most that can be.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    costs_low: tuple[int, ...]
    costs_high: tuple[int, ...]

    def closed(self, length: int, risk: int) -> bool:
        """Whether the first `length` ops are never interrupted in some best order."""
        return any(self._hill(m, length, risk) for m in range(length))

    def _hill(self, m: int, length: int, risk: int) -> bool:
        """Whether op `m` is a hill that the others of the run can gather around."""
        before_ok = all(self.low[j] >= 0 and self.high[j] >= risk for j in range(m))
        behind_ok = all(self.high[j] >= self.high[length - 1] for j in range(m, length))
        if not before_ok or not behind_ok:
            return False
        lows, highs = self.costs_low, self.costs_high
        # Only the first op's own cost is uncertain beside the rest, which all shift together.
        if m == 0:
            return all(lows[0] >= highs[j] for j in range(1, length))
        return lows[m] >= highs[0] and all(highs[m] >= highs[j] for j in range(1, length))


def closed_runs(fragment: Fragment) -> tuple[tuple[int, ...], ...]:
    """Per op, the ops to run in one go when it is the next: itself, and a run it starts.

    Args:
        fragment: the ops.

    Example:
        >>> chain = Fragment(ops=(0, 1), need=(0, 1), succs=((1,), ()), extra=(9, 1),
        ...     hosts=((), ()), saving=(0, 0), gain=(9, 1), frees=((), ((0, 9),)),
        ...     dying=((0, 2, 9),), start=0, first=0)
        >>> closed_runs(chain)
        ((0, 1), (1,))
    """
    runs: list[tuple[int, ...]] = [(op,) for op in range(len(fragment.ops))]
    if fragment.first:
        return tuple(runs)  # the step that is first costs more, whichever op it is
    savers = [(op, fragment.saving[op]) for op in range(len(runs)) if fragment.saving[op]]
    for chain in _chains(fragment):
        mask = sum(1 << op for op in chain)
        at = 0
        while at < len(chain):
            found = _longest(fragment, chain, mask, at, savers)
            runs[chain[at]] = tuple(chain[at : at + found])
            at += found
    return tuple(runs)


def _chains(fragment: Fragment) -> list[list[int]]:
    """Longest chains: neighbours that are each other's only follower and only need."""
    behind = {
        op: succs[0]
        for op, succs in enumerate(fragment.succs)
        if len(succs) == 1 and fragment.need[succs[0]] == 1 << op
    }
    inner = set(behind.values())
    chains: list[list[int]] = []
    for op in range(len(fragment.ops)):
        if op in behind and op not in inner:
            chain = [op]
            while chain[-1] in behind:
                chain.append(behind[chain[-1]])
            chains.append(chain)
    return chains


def _longest(
    fragment: Fragment, chain: list[int], mask: int, at: int, savers: list[tuple[int, int]]
) -> int:
    """Length of the longest closed run of a chain that starts at a position."""
    end = at + 1
    while end < min(len(chain), at + _LONG) and _private(fragment, chain[end], mask):
        end += 1
    profile = _profile(fragment, chain[:at], chain[at:end], mask)
    first = chain[at]
    shared = {o for others, _ in fragment.frees[first] for o in bits(others & ~mask)}
    risk = max((saving for op, saving in savers if op in shared), default=0)
    return next(n for n in range(end - at, 0, -1) if n == 1 or profile.closed(n, risk))


def _private(fragment: Fragment, op: int, mask: int) -> bool:
    """Whether what an op frees, and where it may lie, depends on its chain alone."""
    return not any(others & ~mask for others, _ in fragment.frees[op]) and not any(
        others & ~mask for others in fragment.hosts[op]
    )


def _profile(fragment: Fragment, ran: list[int], run: list[int], mask: int) -> _Profile:
    low: list[int] = []
    high: list[int] = []
    costs_low: list[int] = []
    costs_high: list[int] = []
    least = most = 0
    done = sum(1 << op for op in ran)
    for op in run:
        extra = fragment.extra[op]
        sure = fragment.saving[op] if any(not h & ~done for h in fragment.hosts[op]) else 0
        maybe = (
            fragment.saving[op] if any(not h & ~(done | ~mask) for h in fragment.hosts[op]) else 0
        )
        costs_low.append(least + extra - maybe)
        costs_high.append(most + extra - sure)
        for others, weight in fragment.frees[op]:
            most -= weight if not others & ~done else 0
            least -= weight if not others & mask & ~done else 0
        least, most = least + fragment.gain[op], most + fragment.gain[op]
        low.append(least)
        high.append(most)
        done |= 1 << op
    return _Profile(tuple(low), tuple(high), tuple(costs_low), tuple(costs_high))
