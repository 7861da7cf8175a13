"""Published interval records, inclusive ends turned half-open: (problem, offsets, arena)."""

from peakfold.packing import Problem


def _records(*rows):
    start, last, size = zip(*rows, strict=True)
    return Problem.of(start, [t + 1 for t in last], size)


P1 = _records((0, 1, 16), (1, 2, 8), (2, 3, 64), (3, 4, 32), (4, 5, 8))
P2 = _records(
    (0, 1, 32),
    (1, 4, 32),
    (2, 5, 8),
    (3, 5, 16),
    (4, 5, 8),
    (5, 7, 64),
    (6, 8, 8),
    (7, 8, 8),
    (8, 9, 16),
)
P3 = _records(
    (0, 1, 32), (1, 4, 28), (2, 5, 36), (3, 5, 16), (4, 5, 8), (5, 7, 64), (6, 8, 10), (7, 8, 40)
)
P4 = _records((0, 1, 100), (1, 2, 80), (2, 3, 60))

BY_SIZE = {
    "P1": (P1, [0, 64, 0, 64, 0], 96),
    "P2": (P2, [0, 32, 80, 64, 88, 0, 64, 72, 0], 96),
    "P3": (P3, [0, 32, 64, 100, 116, 0, 104, 64], 124),
    "P4": (P4, [0, 100, 0], 180),
}
