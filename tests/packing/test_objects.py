"""Shared objects: the published vectors, and laws against brute force."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.errors import UsageError
from peakfold.packing import Problem
from peakfold.packing.objects.assign import (
    OBJECT_STRATEGIES,
    Assignment,
    assign_objects,
    objects_bound,
)

P1 = [(0, 1, 16), (1, 2, 8), (2, 3, 64), (3, 4, 32), (4, 5, 8)]
P2 = [
    (0, 1, 32),
    (1, 4, 32),
    (2, 5, 8),
    (3, 5, 16),
    (4, 5, 8),
    (5, 7, 64),
    (6, 8, 8),
    (7, 8, 8),
    (8, 9, 16),
]
P3 = [(0, 1, 32), (1, 4, 28), (2, 5, 36), (3, 5, 16), (4, 5, 8), (5, 7, 64), (6, 8, 10), (7, 8, 40)]


def problem(records: list[tuple[int, int, int]]) -> Problem:
    """Records (first, last, size), both ends inclusive, as our half-open buffers."""
    return Problem.of(
        [first for first, _, _ in records],
        [last + 1 for _, last, _ in records],
        [size for _, _, size in records],
    )


@pytest.mark.req("P1", "R53")
def test_p1_chain() -> None:
    p = problem(P1)
    assert assign_objects(p, "naive").total == 128
    equal = assign_objects(p, "equality")
    assert (equal.ids, equal.sizes) == ((0, 1, 2, 3, 1), (16, 8, 64, 32))
    for strategy in ("in-order", "by-breadth", "improved", "min-cost-flow"):
        found = assign_objects(p, strategy)
        assert (found.ids, found.sizes) == ((0, 1, 0, 1, 0), (64, 32)), strategy


@pytest.mark.req("P2", "R53", "R54")
@pytest.mark.parametrize(
    ("strategy", "ids", "sizes"),
    [
        ("equality", (0, 1, 2, 3, 4, 5, 4, 2, 3), (32, 32, 8, 16, 8, 64)),
        ("in-order", (0, 1, 0, 2, 3, 1, 3, 2, 0), (32, 64, 16, 8)),
        ("by-breadth", (0, 4, 2, 1, 3, 0, 2, 3, 1), (64, 16, 8, 8, 32)),
        ("improved", (1, 0, 2, 1, 3, 0, 1, 2, 0), (64, 32, 8, 8)),
    ],
)
def test_p2_complex(strategy: str, ids: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    found = assign_objects(problem(P2), strategy)
    assert (found.ids, found.sizes) == (ids, sizes)


@pytest.mark.req("P2", "R53", "R54")
def test_p2_totals_and_bounds() -> None:
    p = problem(P2)
    assert assign_objects(p, "naive").total == 192
    assert objects_bound(p) == 112
    flow = assign_objects(p, "min-cost-flow")
    assert (flow.total, sorted(flow.sizes)) == (112, [8, 8, 32, 64])


@pytest.mark.req("P3", "R53", "R54")
def test_p3_paper_example() -> None:
    p = problem(P3)
    assert (assign_objects(p, "naive").total, objects_bound(p)) == (234, 128)
    for strategy in ("by-size", "improved", "by-breadth", "in-order"):
        assert assign_objects(p, strategy).total == 128, strategy


@pytest.mark.req("P5")
def test_p5_objects_to_offsets() -> None:
    found = Assignment((2, 0, 2, 1, 3, 3, 1, 5), (16, 8, 32, 32, 4, 16), "given")
    assert found.offsets() == (24, 0, 24, 16, 56, 56, 16, 92)


@pytest.mark.req("P5")
@pytest.mark.parametrize("strategy", OBJECT_STRATEGIES)
def test_p5_trivial_inputs(strategy: str) -> None:
    assert assign_objects(problem([]), strategy).total == 0
    one = assign_objects(problem([(0, 1, 16)]), strategy)
    assert (one.ids, one.total, objects_bound(problem([(0, 1, 16)]))) == ((0,), 16, 16)


def test_unknown_strategy_is_named() -> None:
    with pytest.raises(UsageError, match="magic"):
        assign_objects(problem(P1), "magic")


@pytest.mark.req("R28")
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=30))
def test_colouring_the_interference_graph_needs_as_few_objects_as_live_at_once(
    spans: list[tuple[int, int]],
) -> None:
    records = [(start, start + length, 1) for start, length in spans]
    alive = [sum(a <= t <= b for a, b, _ in records) for t in range(30)]
    assert assign_objects(problem(records), "coloring").total == max(alive)


RECORDS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 9)).map(
        lambda t: (t[0], t[0] + t[1], t[2])
    ),
    max_size=6,
)


def overlap(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def total(records: list[tuple[int, int, int]], ids: tuple[int, ...]) -> int | None:
    """Bytes of an assignment, or None when two tenants of an object live together."""
    for i, j in product(range(len(ids)), repeat=2):
        if i < j and ids[i] == ids[j] and overlap(records[i], records[j]):
            return None
    sizes: dict[int, int] = {}
    for obj, record in zip(ids, records, strict=True):
        sizes[obj] = max(sizes.get(obj, 0), record[2])
    return sum(sizes.values())


@pytest.mark.req("R53", "R54")
@given(RECORDS)
def test_every_strategy_is_valid_and_never_below_the_bound(
    records: list[tuple[int, int, int]],
) -> None:
    p = problem(records)
    n = len(records)
    optimum = min(
        (t for ids in product(range(n), repeat=n) if (t := total(records, ids)) is not None),
        default=0,
    )
    assert objects_bound(p) <= optimum
    for strategy in OBJECT_STRATEGIES:
        found = assign_objects(p, strategy)
        assert total(records, found.ids) == found.total, strategy
        assert found.total >= optimum
