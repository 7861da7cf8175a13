"""Recipes: graph steps by the names under which a plan records and replays them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from peakfold.arguments import digits
from peakfold.errors import InvalidPlan, UsageError
from peakfold.ir import Graph
from peakfold.transform.backward import Train
from peakfold.transform.fold import Fold
from peakfold.transform.split import Split

_STEPS = {"fold": Fold(), "fold-weights": Fold(weights=True)}
_TRAIN = "train"
_SPLIT = "split"
_FLAGS = {"yes": True, "no": False}


def split_step(split: Split) -> str:
    """The name under which a plan records a split.

    Example:
        >>> split_step(Split("y", 4))
        'split 4 y'
    """
    return f"{_SPLIT} {split.patches} {split.upto}"


def _split(name: str) -> Split:
    words = name.split(" ", 2)
    count = digits(words[1]) if len(words) == 3 else None
    if count is None:
        raise InvalidPlan(f"its recipe has the unreadable step {name!r}")
    return Split(words[2], count)


def train_step(train: Train) -> str:
    """The name under which a plan records a training step: its options that are not defaults.

    Example:
        >>> train_step(Train(optimizer="adam", input_grad=True))
        'train input_grad=yes optimizer=adam'
    """
    words = [_TRAIN]
    for option in fields(Train):
        value = getattr(train, option.name)
        if value != option.default:
            shown = {True: "yes", False: "no"}.get(value, value)
            words.append(f"{option.name}={shown}")
    return " ".join(words)


def _train(name: str) -> Train:
    options: dict[str, Any] = {}
    for word in name.split()[1:]:
        key, _, value = word.partition("=")
        options[key] = _FLAGS.get(value, value)
    known = {option.name for option in fields(Train)}
    if set(options) - known:
        raise InvalidPlan(f"its recipe has an unknown option in {name!r}")
    try:
        return Train(**options)
    except UsageError as error:
        raise InvalidPlan(f"its recipe has {error.what}", hint=error.hint) from None


def replay(graph: Graph, recipe: Iterable[str]) -> Graph:
    """The graph after the recorded steps, in order.

    Raises:
        InvalidPlan: a step this version does not know.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\ny: int8[4] = relu(x)\\noutput y")
        >>> replay(g, ["fold"]) is g
        True
    """
    for name in recipe:
        word = name.partition(" ")[0]
        if word in (_TRAIN, _SPLIT):
            graph = _train(name)(graph) if word == _TRAIN else _split(name)(graph)
            continue
        if name not in _STEPS:
            known = ", ".join((*_STEPS, _TRAIN, _SPLIT))
            raise InvalidPlan(f"its recipe has the unknown step {name!r}", hint=f"known: {known}")
        graph = _STEPS[name](graph)
    return graph
