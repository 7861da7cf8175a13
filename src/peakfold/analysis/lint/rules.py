"""Advice from costs: which ops move bytes, or keep them, that another design would not.

The rules for convolutional networks are the four guidelines of ShuffleNet V2 (Ma et al. 2018);
their counterparts for Transformers are keys and values, scores, vocabulary and head size. A
lint says what the bytes would be, never that the model would be as accurate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakfold.analysis.cost.records import Cost
from peakfold.analysis.lint.attention import head_size, keys, scores, vocabulary
from peakfold.analysis.lint.conv import (
    access_bound,
    branches,
    channels,
    elementwise,
    groups,
    pointwise_access,
    small,
)
from peakfold.analysis.lint.record import Lint
from peakfold.ir import Graph


def lints(graph: Graph, cost: Cost) -> tuple[Lint, ...]:
    """Every piece of advice, the largest saving first.

    Args:
        graph: what was counted; bodies of control flow are not looked into.
        cost: of it.
    """
    rules: tuple[Callable[[Graph, Cost], Iterator[Lint]], ...] = (
        channels,
        groups,
        branches,
        small,
        elementwise,
        keys,
        scores,
        vocabulary,
        head_size,
    )
    found = [lint for rule in rules for lint in rule(graph, cost)]
    return tuple(sorted(found, key=lambda lint: -(lint.saves_bytes or 0)))


__all__ = ["Lint", "access_bound", "lints", "pointwise_access"]
