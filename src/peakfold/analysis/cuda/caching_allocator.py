"""PyTorch's CUDA caching allocator, replayed: what a run allocates and what it reserves.

The device's memory is taken in segments and handed out in blocks; freed blocks stay cached.
*Allocated* bytes are blocks in use, *reserved* bytes are segments, and the difference is what
fragmentation and caching cost. Rules (c10/cuda/CUDACachingAllocator.cpp, defaults of PyTorch
2.x; the sizes are those of ``target/torch-cuda.toml``): requests are rounded up to 512 B; up to
1 MiB they come from the small pool, whose segments are 2 MiB; below 10 MiB from segments of
20 MiB; above, from a segment of their own rounded up to 2 MiB. The smallest cached block that is
large enough is taken. Its rest is split off when it is 512 B or more (small pool) or more than
1 MiB (large pool), and freed neighbours merge. With expandable segments each pool is one growing
range of pages, and every rest of 512 B or more is split off.

Not measured on a GPU here: figures that rest on this module are marked unverified.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from peakfold.errors import UsageError
from peakfold.target import Caching, load_eager
from peakfold.units import round_up


@dataclass(frozen=True, slots=True)
class Event:
    """One request of a program: `nbytes` > 0 allocates under `name`, 0 frees it."""

    name: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a replay came to; bytes.

    Attributes:
        requested: highest sum of the sizes asked for.
        allocated: highest sum of blocks in use (``torch.cuda.max_memory_allocated``).
        reserved: highest sum of segments (``torch.cuda.max_memory_reserved``).
        reserved_at_peak: segments when `allocated` was reached first.
        segments: number of segments at the end.
        fits: false when a request did not fit the capacity even with all caches emptied.
        failed: the request that did not fit, or `None`.
    """

    requested: int
    allocated: int
    reserved: int
    reserved_at_peak: int
    segments: int
    fits: bool = True
    failed: int | None = None


@dataclass(slots=True, eq=False)
class _Block:
    start: int
    size: int
    pool: _Pool
    segment: int
    asked: int = 0
    before: _Block | None = None
    after: _Block | None = None
    free: bool = True


@dataclass(slots=True, eq=False)
class _Pool:
    small: bool
    # Cached blocks by size, then address: the order in which the allocator looks for one.
    cached: list[tuple[int, int]] = field(default_factory=list)
    at: dict[int, _Block] = field(default_factory=dict)
    last: _Block | None = None  # of the expandable range

    def add(self, block: _Block) -> None:
        insort(self.cached, (block.size, block.start))
        self.at[block.start] = block

    def remove(self, block: _Block) -> None:
        del self.cached[bisect_left(self.cached, (block.size, block.start))]
        del self.at[block.start]

    def best(self, size: int) -> _Block | None:
        place = bisect_left(self.cached, (size, -1))
        return self.at[self.cached[place][1]] if place < len(self.cached) else None


class CachingAllocator:
    """The allocator's state between events.

    Args:
        capacity: bytes of the device that segments may take; `None` = no limit.
        expandable: one growing segment a pool (``expandable_segments:True``).
        sizes: by which it decides; PyTorch's defaults if left out.

    Example:
        >>> allocator = CachingAllocator()
        >>> allocator.allocate(0, 1)
        True
        >>> allocator.allocated, allocator.reserved
        (512, 2097152)
        >>> allocator.free(0)
        >>> allocator.allocated, allocator.reserved
        (0, 2097152)
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        expandable: bool = False,
        sizes: Caching | None = None,
    ) -> None:
        self.capacity, self.expandable = capacity, expandable
        self._sizes = sizes or _defaults()
        self.allocated = self.reserved = self.requested = 0
        self.segments: dict[int, int] = {}  # first address -> bytes
        self._small, self._large = _Pool(small=True), _Pool(small=False)
        self._used: dict[int, _Block] = {}
        self._next = 0

    def allocate(self, name: int, nbytes: int) -> bool:
        """Hand out a block; false when the device has no room even with empty caches.

        Args:
            name: to free it by.
            nbytes: asked for; 0 takes nothing.
        """
        if nbytes == 0:
            return True
        size = round_up(nbytes, self._sizes.round)
        pool = self._small if size <= self._sizes.small else self._large
        block = pool.best(size) or self._grow(pool, size)
        if block is None:
            self._release_cached()
            block = self._grow(pool, size)
        if block is None:
            return False
        pool.remove(block)
        self._split(block, size)
        block.free, block.asked = False, nbytes
        self._used[name] = block
        self.allocated += block.size
        self.requested += nbytes
        return True

    def address(self, name: int) -> int:
        """Where a block in use begins; segments follow one another from 0."""
        return self._used[name].start

    def free(self, name: int) -> None:
        """Take a block back into the cache; a name that took nothing is ignored."""
        block = self._used.pop(name, None)
        if block is None:
            return
        self.allocated -= block.size
        self.requested -= block.asked
        block.free = True
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                block.pool.remove(neighbour)
                _merge(block, neighbour)
        block.pool.add(block)
        if block.pool.last is not None and block.after is None:
            block.pool.last = block

    def _split(self, block: _Block, size: int) -> None:
        rest = block.size - size
        splits = block.pool.small or self.expandable
        if rest < self._sizes.round if splits else rest <= self._sizes.small:
            return
        after = _Block(
            block.start + size, rest, block.pool, block.segment, before=block, after=block.after
        )
        if block.after is not None:
            block.after.before = after
        elif self.expandable:
            block.pool.last = after
        block.size, block.after = size, after
        block.pool.add(after)

    def _grow(self, pool: _Pool, size: int) -> _Block | None:
        """New memory of the device, as a cached block that is large enough."""
        if self.expandable:
            return self._extend(pool, size)
        sizes = self._sizes
        if size <= sizes.small:
            nbytes = sizes.small_segment
        elif size < sizes.min_large:
            nbytes = sizes.large_segment
        else:
            nbytes = round_up(size, sizes.round_large)
        if not self._room(nbytes):
            return None
        start = self._take(nbytes)
        block = _Block(start, nbytes, pool, start)
        pool.add(block)
        return block

    def _extend(self, pool: _Pool, size: int) -> _Block | None:
        """Map more pages behind a pool's last block, joining it when it is free."""
        page = self._page(pool)
        last = pool.last
        spare = last.size if last is not None and last.free else 0
        nbytes = round_up(size - spare, page)
        if not self._room(nbytes):
            return None
        if last is None:
            # Each pool's range of addresses is far from the other's.
            start = 0 if pool.small else 1 << 60
            self.segments[start] = 0
            last = pool.last = _Block(start, 0, pool, start)
        elif last.free:
            pool.remove(last)
        else:
            fresh = _Block(last.start + last.size, 0, pool, last.segment, before=last)
            last.after = pool.last = fresh
            last = fresh
        last.size += nbytes
        self.segments[last.segment] += nbytes
        self.reserved += nbytes
        pool.add(last)
        return last

    def _page(self, pool: _Pool) -> int:
        return self._sizes.small_segment if pool.small else self._sizes.large_segment

    def _room(self, nbytes: int) -> bool:
        return self.capacity is None or self.reserved + nbytes <= self.capacity

    def _take(self, nbytes: int) -> int:
        start, self._next = self._next, self._next + nbytes
        self.segments[start] = nbytes
        self.reserved += nbytes
        return start

    def _release_cached(self) -> None:
        """Give back what is wholly free: segments, or the free end of an expandable one."""
        for pool in (self._small, self._large):
            for block in list(pool.at.values()):
                whole = block.before is None and block.after is None
                if self.expandable:
                    self._unmap(pool, block)
                elif whole:
                    pool.remove(block)
                    self.reserved -= self.segments.pop(block.segment)

    def _unmap(self, pool: _Pool, block: _Block) -> None:
        page = self._page(pool)
        if block is not pool.last:
            return
        origin = block.segment
        kept = round_up(block.start - origin, page) - (block.start - origin)
        given = block.size - kept
        if given <= 0:
            return
        pool.remove(block)
        block.size = kept
        self.reserved -= given
        self.segments[origin] -= given
        if kept:
            pool.add(block)
        elif block.before is not None:
            block.before.after, pool.last = None, block.before
        else:
            pool.last = None


def _defaults() -> Caching:
    caching = load_eager("cuda").caching
    if caching is None:
        raise UsageError("target torch-cuda has no caching allocator")
    return caching


def _merge(block: _Block, neighbour: _Block) -> None:
    """Make one block of two that lie side by side."""
    if neighbour is block.before:
        block.start, block.before = neighbour.start, neighbour.before
        if block.before is not None:
            block.before.after = block
    else:
        block.after = neighbour.after
        if block.after is not None:
            block.after.before = block
    block.size += neighbour.size


def replay(
    events: Iterable[Event], *, capacity: int | None = None, expandable: bool = False
) -> Footprint:
    """Run a program's requests through the allocator.

    Args:
        events: in the order they happen.
        capacity: bytes of the device; a request beyond it ends the replay.
        expandable: with expandable segments.

    Example:
        >>> step = [Event(0, 3 << 20), Event(1, 600), Event(0, 0), Event(2, 2 << 20)]
        >>> found = replay(step)
        >>> found.allocated, found.reserved, found.segments
        (3146752, 23068672, 2)
    """
    allocator = CachingAllocator(capacity, expandable=expandable)
    requested = allocated = reserved = at_peak = 0
    for event in events:
        if event.nbytes and not allocator.allocate(event.name, event.nbytes):
            return Footprint(
                requested,
                allocated,
                reserved,
                at_peak,
                len(allocator.segments),
                fits=False,
                failed=event.nbytes,
            )
        if not event.nbytes:
            allocator.free(event.name)
        requested = max(requested, allocator.requested)
        reserved = max(reserved, allocator.reserved)
        if allocator.allocated > allocated:
            allocated, at_peak = allocator.allocated, allocator.reserved
    return Footprint(requested, allocated, reserved, at_peak, len(allocator.segments))
