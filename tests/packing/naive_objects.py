"""Shared objects the slow way, by looking at every object for every buffer: an oracle."""

from __future__ import annotations

Record = tuple[int, int, int]


def idle(tenants: list[Record], new: Record) -> int | None:
    """Steps to the nearest tenant, None when one lives together with `new`."""
    gaps = [max(a - new[1], new[0] - z) for a, z, _ in tenants]
    if any(max(a, new[0]) < min(z, new[1]) for a, z, _ in tenants):
        return None
    return min(gaps)


def best_fit(records: list[Record], order: list[int]) -> tuple[list[int], list[int]]:
    """Smallest sufficient free object, else the largest free one, in an order of buffers."""
    tenants: list[list[Record]] = []
    sizes: list[int] = []
    ids = [-1] * len(records)
    for at in order:
        size = records[at][2]
        free = [obj for obj, t in enumerate(tenants) if idle(t, records[at]) is not None]
        key = {obj: (sizes[obj] < size, abs(sizes[obj] - size), obj) for obj in free}
        obj = min(free, key=key.__getitem__, default=len(sizes))
        if obj == len(sizes):
            tenants.append([])
            sizes.append(0)
        tenants[obj].append(records[at])
        sizes[obj] = max(sizes[obj], size)
        ids[at] = obj
    return ids, sizes


def improved(records: list[Record], stage: list[int]) -> list[int]:
    """The pair of buffer and object with the least idle time first, stage by stage."""
    tenants: list[list[Record]] = []
    ids = [-1] * len(records)
    while -1 in ids:
        choices = []
        for at in (i for i, obj in enumerate(ids) if obj < 0):
            gaps = [
                (gap, obj)
                for obj, t in enumerate(tenants)
                if (gap := idle(t, records[at])) is not None
            ]
            gap, obj = min(gaps, default=(1 << 62, len(tenants)))
            choices.append((stage[at], gap, -records[at][2], at, obj))
        *_, at, obj = min(choices)
        if obj == len(tenants):
            tenants.append([])
        tenants[obj].append(records[at])
        ids[at] = obj
    return ids


def maxima(records: list[Record]) -> list[int]:
    """Positional maxima by sorting every live set."""
    steps = {a for a, _, _ in records}
    live = [sorted((s for a, z, s in records if a <= t < z), reverse=True) for t in steps]
    longest = max(map(len, live), default=0)
    return [max(row[k] for row in live if k < len(row)) for k in range(longest)]
