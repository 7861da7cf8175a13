"""Lanes: which core or stream runs which op, and how long that takes at best.

Costs stand for time until roofline times exist: an op costs the bytes of its results, at
least 1, unless the caller knows better.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peakfold.analysis import Index
from peakfold.errors import UsageError


@dataclass(frozen=True, slots=True)
class LanePlan:
    """An assignment of ops to lanes.

    Attributes:
        lane: per op, its lane.
        order: op ids by start time; each lane runs its ops in this order.
        makespan: estimated time of the whole run, in units of cost.
    """

    lane: tuple[int, ...]
    order: tuple[int, ...]
    makespan: int


def byte_costs(index: Index) -> list[int]:
    """Per op, the bytes of its results, at least 1."""
    return [max(1, sum(index.nbytes[t] for t in results)) for results in index.results]


def critical_path(needs: Sequence[Iterable[int]], order: Sequence[int], cost: Sequence[int]) -> int:
    """Cost of the longest chain: no number of lanes is faster.

    Example:
        >>> critical_path([(), (0,), (0,)], (0, 1, 2), [5, 2, 3])
        8
    """
    done = [0] * len(needs)
    for op in order:
        done[op] = cost[op] + max((done[before] for before in needs[op]), default=0)
    return max(done, default=0)


def assign_lanes(
    needs: Sequence[Iterable[int]], order: Sequence[int], cost: Sequence[int], lanes: int
) -> LanePlan:
    """List scheduling, longest remaining path first (Graham 1969; Hu 1961).

    Args:
        needs: per op, ops it waits for.
        order: an order of the ops that fits; breaks ties.
        cost: per op, its time.
        lanes: how many ops may run at once.

    Raises:
        UsageError: fewer than one lane.

    Example:
        >>> plan = assign_lanes([(), (0,), (0,), (1, 2)], (0, 1, 2, 3), [1, 1, 1, 1], 2)
        >>> plan.lane, plan.makespan
        ((0, 0, 1, 0), 3)
    """
    if lanes < 1:
        raise UsageError(f"--lanes needs at least 1, not {lanes}")
    lanes = min(lanes, max(len(needs), 1))  # more would stay idle
    users: list[list[int]] = [[] for _ in needs]
    for op, before in enumerate(needs):
        for one in before:
            users[one].append(op)
    tail = [0] * len(needs)
    for op in reversed(order):
        tail[op] = cost[op] + max((tail[user] for user in users[op]), default=0)
    rank = {op: (-tail[op], at) for at, op in enumerate(order)}
    waiting = [len(set(before)) for before in needs]
    ready = [(rank[op], op) for op in order if waiting[op] == 0]
    heapq.heapify(ready)
    running: list[tuple[int, int, int]] = []  # end, lane, op
    idle = list(range(lanes))
    lane = [-1] * len(needs)
    started: list[int] = []
    now = 0
    while ready or running:
        while ready and idle:
            _, op = heapq.heappop(ready)
            lane[op] = heapq.heappop(idle)
            started.append(op)
            heapq.heappush(running, (now + cost[op], lane[op], op))
        now, free, op = heapq.heappop(running)
        heapq.heappush(idle, free)
        for user in users[op]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (rank[user], user))
    return LanePlan(tuple(lane), tuple(started), now)


def path_colours(needs: Sequence[Iterable[int]], order: Sequence[int], colours: int) -> list[int]:
    """Colours by repeated longest paths: ops of one path share memory, paths do not (R39).

    The longest path through ops not yet coloured gets the next colour; its ops then count
    nothing; after `colours - 1` paths the rest gets the last colour. This is NNVM's rule, with
    the later of two equal branches winning (R49).

    Args:
        needs: per op, ops it waits for.
        order: an order of the ops that fits.
        colours: how many colours there are.

    Example:
        >>> path_colours([(), (0,), (0,), (1, 2)], (0, 1, 2, 3), 2)
        [0, 1, 0, 0]
    """
    colour = [-1] * len(needs)
    for number in range(colours):
        reward = [0] * len(needs)
        via = [-1] * len(needs)
        best = -1
        for op in order:
            for before in sorted(needs[op]):
                if reward[before] >= (reward[via[op]] if via[op] >= 0 else 0):
                    via[op] = before
            reward[op] = (colour[op] < 0) + (reward[via[op]] if via[op] >= 0 else 0)
            if best < 0 or reward[op] > reward[best]:
                best = op
        if best < 0 or reward[best] == 0:
            break
        while best >= 0:
            colour[best] = number if colour[best] < 0 else colour[best]
            best = via[best]
    return [max(colours - 1, 0) if c < 0 else c for c in colour]
