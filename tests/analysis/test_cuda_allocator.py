"""The replay against hand-worked cases and a slow model written from the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.analysis.cuda.caching_allocator import CachingAllocator, Event, replay

KIB, MIB = 1 << 10, 1 << 20


class Slow:
    """The rules in the plainest words: a list of segments, each a list of [size, owner]."""

    def __init__(self) -> None:
        self.segments: list[tuple[bool, list[list]]] = []

    def allocate(self, name: int, nbytes: int) -> None:
        size = -(-nbytes // 512) * 512
        small = size <= MIB
        candidates = [
            (block[0], s, at)
            for s, (kind, blocks) in enumerate(self.segments)
            for at, block in enumerate(blocks)
            if kind == small and block[1] is None and block[0] >= size
        ]
        if not candidates:
            total = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // MIB // 2)
            if not small and size >= 10 * MIB:
                total = -(-size // (2 * MIB)) * 2 * MIB
            self.segments.append((small, [[total, None]]))
            candidates = [(total, len(self.segments) - 1, 0)]
        _, s, at = min(candidates)
        blocks = self.segments[s][1]
        rest = blocks[at][0] - size
        if rest >= 512 if small else rest > MIB:
            blocks[at : at + 1] = [[size, name], [rest, None]]
        else:
            blocks[at][1] = name

    def free(self, name: int) -> None:
        for _, blocks in self.segments:
            for block in blocks:
                if block[1] == name:
                    block[1] = None
            at = 1
            while at < len(blocks):
                if blocks[at][1] is None and blocks[at - 1][1] is None:
                    blocks[at - 1][0] += blocks.pop(at)[0]
                else:
                    at += 1

    @property
    def allocated(self) -> int:
        return sum(b[0] for _, blocks in self.segments for b in blocks if b[1] is not None)

    @property
    def reserved(self) -> int:
        return sum(b[0] for _, blocks in self.segments for b in blocks)


SIZES = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 2 * MIB),
    st.integers(MIB, 30 * MIB),
    st.sampled_from([511, 512, 513, MIB, MIB + 1, 10 * MIB - 512, 10 * MIB, 19 * MIB, 20 * MIB]),
)
PROGRAMS = st.lists(st.tuples(SIZES, st.integers(0, 30)), min_size=1, max_size=40)


def events(program: list[tuple[int, int]]) -> list[Event]:
    """Allocations, each freed after some number of further ones."""
    found: list[tuple[int, int, Event]] = []
    for at, (size, life) in enumerate(program):
        found.append((at, 1, Event(at, size)))
        found.append((at + life + 1, 0, Event(at, 0)))
    return [event for _, _, event in sorted(found, key=lambda item: item[:2])]


@pytest.mark.req("R14")
@given(PROGRAMS)
def test_equal_to_the_slow_model(program):
    fast, slow = CachingAllocator(), Slow()
    for event in events(program):
        if event.nbytes:
            assert fast.allocate(event.name, event.nbytes)
            slow.allocate(event.name, event.nbytes)
        else:
            fast.free(event.name)
            slow.free(event.name)
        assert (fast.allocated, fast.reserved) == (slow.allocated, slow.reserved)


@given(PROGRAMS, st.booleans())
def test_laws(program, expandable):
    steps = events(program)
    found = replay(steps, expandable=expandable)
    assert found.requested <= found.allocated <= found.reserved
    assert found.reserved_at_peak <= found.reserved
    again = replay(steps, expandable=expandable, capacity=found.reserved)
    assert again.fits
    assert again.allocated == found.allocated
    assert not replay(steps, expandable=expandable, capacity=found.requested - 1).fits
    # A second, equal step asks for no more; a cached block may leave it a rest that is not split.
    twice = replay(steps + [Event(e.name + 1000, e.nbytes) for e in steps], expandable=expandable)
    assert twice.requested == found.requested
    assert found.allocated <= twice.allocated
    if expandable:  # whose rests are always split off
        assert twice.allocated == found.allocated


@pytest.mark.parametrize(
    ("sizes", "allocated", "reserved"),
    [
        ([1], 512, 2 * MIB),
        ([MIB], MIB, 2 * MIB),
        ([MIB + 1], MIB + 512, 20 * MIB),
        ([10 * MIB - 513], 10 * MIB - 512, 20 * MIB),
        ([10 * MIB], 10 * MIB, 10 * MIB),
        # A rest of up to 1 MiB is not split off in the large pool: it counts as allocated.
        ([11 * MIB + 1], 12 * MIB, 12 * MIB),
        ([19 * MIB, 600 * KIB], 20 * MIB + 600 * KIB, 20 * MIB + 2 * MIB),
        ([9 * MIB, 9 * MIB, 2 * MIB], 20 * MIB, 20 * MIB),
    ],
)
def test_segments_by_hand(sizes, allocated, reserved):
    found = replay([Event(n, size) for n, size in enumerate(sizes)])
    assert (found.allocated, found.reserved) == (allocated, reserved)


def test_an_unsplit_rest_counts_as_allocated():
    steps = [Event(0, 20 * MIB), Event(0, 0), Event(1, 19 * MIB)]
    found = replay(steps)
    assert found.requested == 20 * MIB
    allocator = CachingAllocator()
    allocator.allocate(0, 20 * MIB)
    allocator.free(0)
    allocator.allocate(1, 19 * MIB)
    assert allocator.allocated == 20 * MIB  # the rest of 1 MiB stays with its block


def test_fragmentation_needs_more_than_is_allocated_and_expandable_segments_do_not():
    # Many freed 12 MiB blocks cannot serve 14 MiB; a growing range can.
    steps = [Event(n, 12 * MIB) for n in range(8)]
    steps += [Event(n, 0) for n in range(8)]
    steps += [Event(100 + n, 14 * MIB) for n in range(6)]
    plain, growing = replay(steps), replay(steps, expandable=True)
    assert plain.allocated == growing.allocated == 96 * MIB
    assert plain.reserved == 96 * MIB + 6 * 14 * MIB
    assert growing.reserved == 100 * MIB  # 96 MiB in pages of 20 MiB


def test_caches_are_emptied_before_giving_up():
    steps = [Event(0, 30 * MIB), Event(0, 0), Event(1, 40 * MIB)]
    assert replay(steps, capacity=40 * MIB).fits
    found = replay([*steps, Event(2, 1)], capacity=40 * MIB)
    assert not found.fits
    assert found.failed == 1
    assert replay(steps, capacity=40 * MIB, expandable=True).fits
