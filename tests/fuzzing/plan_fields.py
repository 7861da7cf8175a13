"""Any field of any record of a plan changed: a field added later is attacked from its first day."""

from __future__ import annotations

import random
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

from peakfold.ir import Graph
from peakfold.planning.plan import Plan

Tree = dict[str, Any]
Mutation = Callable[[Tree, random.Random, Graph], bool]
"""Changes a plan's tree; false where it found nothing to change."""

_fields = cache(msgspec.structs.fields)  # it evaluates annotations each time


def records() -> list[tuple[type, str]]:
    """Every field of `Plan` and of the records in it."""
    seen: list[type] = []
    queue: list[Any] = [Plan]
    while queue:
        kind = queue.pop(0)
        if kind in seen:
            continue
        seen.append(kind)
        for info in _fields(kind):
            queue += [
                t
                for t in _types(info.type)
                if isinstance(t, type) and issubclass(t, msgspec.Struct)
            ]
    return [(kind, info.name) for kind in seen for info in _fields(kind)]


def _types(of: Any) -> Iterator[Any]:
    yield of
    for inner in typing.get_args(of):
        yield from _types(inner)


def sites(tree: Any, kind: Any) -> Iterator[tuple[type, Tree]]:
    """Every record in a plan's tree, with its type."""
    if isinstance(tree, list):
        inner = next(iter(typing.get_args(kind)), None)
        for item in tree:
            yield from sites(item, inner)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(tree, dict):
        yield kind, tree
        for info in _fields(kind):
            if info.name in tree:
                yield from sites(tree[info.name], info.type)


def field_of(name: str) -> Mutation:
    """The mutation that changes one field, ``Record.name``, somewhere in a plan."""

    def change(tree: Tree, rng: random.Random, graph: Graph) -> bool:
        owner, _, key = name.partition(".")
        found = [t for kind, t in sites(tree, Plan) if kind.__name__ == owner and key in t]
        if not found:
            return False
        record = rng.choice(found)
        kind = next(k for k, k_name in records() if k.__name__ == owner and k_name == key)
        info = next(i for i in _fields(kind) if i.name == key)
        old = record[key]
        record[key] = changed(old, info.type, tree, rng, graph)
        return bool(record[key] != old)

    return change


def changed(old: Any, kind: Any, tree: Tree, rng: random.Random, graph: Graph) -> Any:
    """Another value of a field's type, near the old one or far from it."""
    choices = [
        c
        for t in _types(kind)
        if typing.get_origin(t) is typing.Literal
        for c in typing.get_args(t)
    ]
    if choices and rng.random() < 0.8:
        return rng.choice(choices)
    if isinstance(old, bool):
        return not old
    if isinstance(old, list):
        return _other_list(old, tree, rng)
    if isinstance(old, dict):
        return _other_record(old, kind, tree, rng, graph)
    if isinstance(old, str):
        return rng.choice([t.name for t in graph.tensors] + ["", "generic", "fold", old + "x"])
    if isinstance(old, int) or old is None:
        return _other_number(old, tree, rng)
    return old


def _other_record(
    old: dict[str, Any], kind: Any, tree: Tree, rng: random.Random, graph: Graph
) -> dict[str, Any]:
    record = next(
        (t for t in _types(kind) if isinstance(t, type) and issubclass(t, msgspec.Struct)), None
    )
    if record is None:
        numbers = int in _types(kind) or any(isinstance(v, int) for v in old.values())
        return _other_table(old, rng, graph, [0, 1, 8, 2**40] if numbers else ["1x4", "", "x"])
    info = rng.choice([i for i in _fields(record) if i.name in old])
    return {**old, info.name: changed(old[info.name], info.type, tree, rng, graph)}


def _other_number(old: int | None, tree: Tree, rng: random.Random) -> int | None:
    near = old or 0
    align = max(int(tree["policies"]["align"]), 1)
    return rng.choice(
        [
            near + 1,
            max(near - 1, 0),
            near + align,
            max(near - align, 0),
            near // 2,
            near * 2,
            0,
            1,
            rng.randrange(16),
            tree["arena_bytes"],
            2**31,
            2**61,
            2**63,
            2**64,
            -1,
            None,
        ]
    )


def _other_list(old: list[Any], tree: Tree, rng: random.Random) -> list[Any]:
    new = list(old)
    how = rng.randrange(5)
    if not new or how == 0:
        twin = [item for item in _lists(tree) if item and (not old or _alike(item[0], old[0]))]
        return new + ([rng.choice(rng.choice(twin))] if twin else [0])
    at = rng.randrange(len(new))
    if how == 1:
        del new[at]
    elif how == 2:
        new.insert(rng.randrange(len(new) + 1), new[at])
    elif how == 3:
        other = rng.randrange(len(new))
        new[at], new[other] = new[other], new[at]
    else:
        new = rng.choice([[], new[::-1], new[:1]])
    return new


def _alike(one: Any, two: Any) -> bool:
    return type(one) is type(two) and (not isinstance(one, dict) or set(one) == set(two))


def _lists(tree: Any) -> Iterator[list[Any]]:
    if isinstance(tree, list):
        yield tree
    for item in tree if isinstance(tree, list) else tree.values() if isinstance(tree, dict) else ():
        yield from _lists(item)


def _other_table(
    old: dict[str, Any], rng: random.Random, graph: Graph, values: list[Any]
) -> dict[str, Any]:
    new = dict(old)
    key = rng.choice([op.name for op in graph.ops] + [op.kind for op in graph.ops] + list(old))
    if old and rng.random() < 0.4:
        new.pop(rng.choice(list(old)))
    else:
        new[key] = rng.choice(values)
    return new
