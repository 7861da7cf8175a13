"""Mutations of plans, as JSON trees: what a wrong planner or a liar would write.

Two sorts: named ones that keep a plan plausible, and one that walks the records of `Plan` and
changes any field of any of them, so that a field added later is attacked from its first day.
Each returns whether it found something to change.
"""

from __future__ import annotations

import random
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from peakfold.ir import Graph
from peakfold.planning.plan import Plan

Tree = dict[str, Any]
Mutation = Callable[[Tree, random.Random, Graph], bool]
MUTATIONS: dict[str, Mutation] = {}


def _mutation(function: Mutation) -> Mutation:
    MUTATIONS[function.__name__] = function
    return function


# Every field of every record.


def records() -> list[tuple[type, str]]:
    """Every field of `Plan` and of the records in it."""
    seen: list[type] = []
    queue: list[Any] = [Plan]
    while queue:
        kind = queue.pop(0)
        if kind in seen:
            continue
        seen.append(kind)
        for info in msgspec.structs.fields(kind):
            queue += [t for t in _types(info.type) if isinstance(t, type)
                      and issubclass(t, msgspec.Struct)]  # fmt: skip
    return [(kind, info.name) for kind in seen for info in msgspec.structs.fields(kind)]


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
        for info in msgspec.structs.fields(kind):
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
        info = next(i for i in msgspec.structs.fields(kind) if i.name == key)
        old = record[key]
        record[key] = changed(old, info.type, tree, rng, graph)
        return bool(record[key] != old)

    return change


def changed(old: Any, kind: Any, tree: Tree, rng: random.Random, graph: Graph) -> Any:
    """Another value of a field's type, near the old one or far from it."""
    choices = [c for t in _types(kind) if typing.get_origin(t) is typing.Literal
               for c in typing.get_args(t)]  # fmt: skip
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
    record = next((t for t in _types(kind)
                   if isinstance(t, type) and issubclass(t, msgspec.Struct)), None)  # fmt: skip
    if record is None:
        return _other_table(old, rng, graph)
    info = rng.choice([i for i in msgspec.structs.fields(record) if i.name in old])
    return {**old, info.name: changed(old[info.name], info.type, tree, rng, graph)}


def _other_number(old: int | None, tree: Tree, rng: random.Random) -> int | None:
    near = old or 0
    align = max(int(tree["policies"]["align"]), 1)
    return rng.choice([
        near + 1, max(near - 1, 0), near + align, max(near - align, 0), near // 2, near * 2, 0, 1,
        rng.randrange(16), tree["arena_bytes"], 2**31, 2**61, 2**63, 2**64, -1, None,
    ])  # fmt: skip


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


def _other_table(old: dict[str, Any], rng: random.Random, graph: Graph) -> dict[str, Any]:
    new = dict(old)
    key = rng.choice([op.name for op in graph.ops] + [op.kind for op in graph.ops] + list(old))
    if old and rng.random() < 0.4:
        new.pop(rng.choice(list(old)))
    else:
        new[key] = rng.choice([0, 1, 8, 2**40])
    return new


# Plausible lies about memory.


def _buffers(tree: Tree, what: str = "") -> list[Tree]:
    return [b for b in tree["buffers"] if not what or b["what"] == what]


def _pair(tree: Tree, rng: random.Random) -> tuple[Tree, Tree] | None:
    buffers = _buffers(tree)
    if len(buffers) < 2:
        return None
    one, two = rng.sample(buffers, 2)
    return one, two


@_mutation
def move_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    align, top = tree["policies"]["align"], tree["arena_bytes"]
    buffer = rng.choice(tree["buffers"])
    buffer["offset"] = rng.randrange(top // align + 2) * align
    return True


@_mutation
def nudge_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    step = rng.choice([1, tree["policies"]["align"]]) * rng.choice([1, -1])
    buffer = rng.choice(tree["buffers"])
    buffer["offset"] = max(buffer["offset"] + step, 0)
    return True


@_mutation
def same_offset(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = _pair(tree, rng)
    if pair:
        pair[0]["offset"] = pair[1]["offset"]
    return pair is not None


@_mutation
def swap_offsets(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = _pair(tree, rng)
    if pair:
        pair[0]["offset"], pair[1]["offset"] = pair[1]["offset"], pair[0]["offset"]
    return pair is not None


@_mutation
def merge_buffers(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = _pair(tree, rng)
    if not pair or not pair[1]["tensors"]:
        return False
    one, two = pair
    one["tensors"] = [*one["tensors"], *two["tensors"]]
    one["size"] = max(one["size"], two["size"])
    one["live"] = [*one["live"], *two["live"]]
    tree["buffers"].remove(two)
    return True


@_mutation
def split_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Tensors that shared a buffer get one each, at one address."""
    crowded = [b for b in tree["buffers"] if len(b["tensors"]) > 1]
    if not crowded:
        return False
    buffer = rng.choice(crowded)
    place = buffer["tensors"].pop(rng.randrange(len(buffer["tensors"])))
    tree["buffers"].append({**buffer, "tensors": [place], "live": [dict(p) for p in
                                                                   buffer["live"]]})  # fmt: skip
    return True


@_mutation
def move_tensor(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = _pair(tree, rng)
    if not pair or not pair[0]["tensors"]:
        return False
    place = pair[0]["tensors"].pop(rng.randrange(len(pair[0]["tensors"])))
    if rng.random() < 0.5:
        place["offset"] = 0
    pair[1]["tensors"].append(place)
    return True


@_mutation
def shift_place(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    homes = [h for h in (*tree["buffers"], *tree["external"]) if h["tensors"]]
    if not homes:
        return False
    place = rng.choice(rng.choice(homes)["tensors"])
    place["offset"] = rng.choice([0, place["offset"] + 1, place["nbytes"],
                                  place["offset"] + tree["policies"]["align"]])  # fmt: skip
    return True


@_mutation
def drop_tensor(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    homes = [h for h in (*tree["buffers"], *tree["external"]) if h["tensors"]]
    if not homes:
        return False
    home = rng.choice(homes)
    home["tensors"].pop(rng.randrange(len(home["tensors"])))
    return True


@_mutation
def drop_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    tree["buffers"].remove(rng.choice(tree["buffers"]))
    return True


@_mutation
def buffer_to_external(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Memory that nobody has: the arena shrinks at will."""
    found = _buffers(tree, "tensor")
    if not found:
        return False
    buffer = rng.choice(found)
    tree["buffers"].remove(buffer)
    tree["external"].append({"tensors": buffer["tensors"]})
    return True


@_mutation
def tensor_to_external(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    found = [b for b in tree["buffers"] if b["tensors"]]
    if not found:
        return False
    places = rng.choice(found)["tensors"]
    place = {**places.pop(rng.randrange(len(places))), "offset": 0}
    if tree["external"] and rng.random() < 0.5:
        rng.choice(tree["external"])["tensors"].append(place)
    else:
        tree["external"].append({"tensors": [place]})
    return True


@_mutation
def external_to_arena(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    found = [e for e in tree["external"] if e["tensors"]]
    if not found or not tree["buffers"]:
        return False
    external = rng.choice(found)
    tree["external"].remove(external)
    rng.choice(tree["buffers"])["tensors"] += external["tensors"]
    return True


@_mutation
def merge_externals(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if len(tree["external"]) < 2:
        return False
    one, two = rng.sample(tree["external"], 2)
    shift = rng.choice([0, 0, sum(p["nbytes"] for p in one["tensors"])])
    one["tensors"] = one["tensors"] + [{**p, "offset": p["offset"] + shift}
                                       for p in two["tensors"]]  # fmt: skip
    tree["external"].remove(two)
    return True


@_mutation
def drop_alias(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if tree["aliases"]:
        tree["aliases"].pop(rng.randrange(len(tree["aliases"])))
        return True
    return False


@_mutation
def relabel_alias(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["aliases"]:
        return False
    rng.choice(tree["aliases"])["how"] = rng.choice(["view", "inplace", "overlap", "concat"])
    return True


@_mutation
def add_alias(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """A result is laid over an operand, with the record that says so."""
    at = rng.randrange(len(graph.ops))
    op = graph.ops[at]
    homes = {p["tensor"]: (b, p) for b in (*tree["buffers"], *tree["external"])
             for p in b["tensors"]}  # fmt: skip
    pairs = [(o, i) for o in op.results for i in op.operands if o in homes and i in homes]
    if not pairs:
        return False
    output, operand = rng.choice(pairs)
    (old, place), (new, base) = homes[output], homes[operand]
    old["tensors"].remove(place)
    new["tensors"].append({**place, "offset": base["offset"]})
    how = rng.choice(["view", "inplace", "inplace", "overlap"])
    if rng.random() < 0.8:
        tree["aliases"].append({"op": at, "output": output, "input": operand, "how": how})
    if not old["tensors"] and old in tree["buffers"]:
        tree["buffers"].remove(old)
    return True


@_mutation
def edit_life(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pieces = [p for b in tree["buffers"] for p in b["live"]]
    if not pieces:
        return False
    piece = rng.choice(pieces)
    key = rng.choice(["start", "stop", "lower", "upper"])
    piece[key] = max(piece[key] + rng.choice([-2, -1, 1, 2]), 0)
    return True


@_mutation
def cut_lives_and_share(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Two buffers at one address, with lives that are said not to meet."""
    pair = _pair(tree, rng)
    if not pair or not pair[0]["live"] or not pair[1]["live"]:
        return False
    one, two = pair
    two["offset"] = one["offset"]
    middle = rng.randrange(len(tree["order"]) + 1)
    for piece in one["live"]:
        piece["stop"] = min(piece["stop"], middle)
        piece["start"] = min(piece["start"], piece["stop"])
    for piece in two["live"]:
        piece["start"] = max(piece["start"], middle)
        piece["stop"] = max(piece["stop"], piece["start"])
    return True


@_mutation
def shrink_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    buffer = rng.choice(tree["buffers"])
    buffer["size"] = rng.choice([0, buffer["size"] // 2,
                                 max(buffer["size"] - tree["policies"]["align"], 0)])  # fmt: skip
    for piece in buffer["live"]:
        piece["upper"] = min(piece["upper"], buffer["size"])
        piece["lower"] = min(piece["lower"], piece["upper"])
    return True


@_mutation
def scratch(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    found = _buffers(tree, "workspace")
    if not found:
        return False
    buffer = rng.choice(found)
    how = rng.randrange(3)
    if how == 0:
        tree["buffers"].remove(buffer)
    elif how == 1:
        buffer["op"] = rng.randrange(len(graph.ops) + 1)
    else:
        buffer["offset"] = rng.choice(tree["buffers"])["offset"]
    return True


@_mutation
def swap_order(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    order = tree["order"]
    if len(order) < 2:
        return False
    at = rng.randrange(len(order) - 1)
    order[at], order[at + 1] = order[at + 1], order[at]
    return True


@_mutation
def other_order(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Another order that data edges allow."""
    made: set[str] = set()
    left, order = list(range(len(graph.ops))), []
    while left:
        ready = [at for at in left if all(n in made or n not in graph.producer
                                          for n in graph.ops[at].operands)]  # fmt: skip
        if not ready:
            return False
        at = rng.choice(ready)
        order.append(at)
        left.remove(at)
        made |= set(graph.ops[at].results)
    tree["order"] = order
    return True


@_mutation
def lanes(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """A serial plan is called parallel, or the other way round; ops change their lane."""
    count = len(graph.ops)
    if tree["lane"] and rng.random() < 0.5:
        tree["lane"][rng.randrange(len(tree["lane"]))] = rng.randrange(3)
        return True
    tree["lanes"] = rng.choice([1, 2, 3, "free"])
    numbered = isinstance(tree["lanes"], int) and tree["lanes"] > 1
    tree["lane"] = [rng.randrange(tree["lanes"]) for _ in range(count)] if numbered else []
    if tree["lanes"] == 1:
        tree["added"] = []
    return True


@_mutation
def added_edges(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if tree["added"] and rng.random() < 0.6:
        at = rng.randrange(len(tree["added"]))
        edge = tree["added"].pop(at)
        if rng.random() < 0.3:
            tree["added"].append(list(edge)[::-1])
        return True
    tree["added"] = [*tree["added"], [rng.randrange(len(graph.ops)) for _ in range(2)]]
    return tree["lanes"] != 1


@_mutation
def bodies(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Anything above, inside the plan of a body; or bodies dropped, swapped, told twice."""
    if not tree["bodies"]:
        return False
    how = rng.randrange(4)
    body = rng.choice(tree["bodies"])
    if how == 0:
        tree["bodies"].remove(body)
    elif how == 1:
        body["region"] = 1 - min(body["region"], 1)
    else:
        inner = graph.ops[body["op"]].regions[body["region"]].graph
        name = rng.choice([name for name in MUTATIONS if name != "bodies"])
        return bool(inner.ops) and MUTATIONS[name](body["plan"], rng, inner)
    return True


@_mutation
def copies(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    how = rng.randrange(3)
    made = _buffers(tree, "copy")
    if how == 0 and made:
        tree["buffers"].remove(rng.choice(made))
    elif how == 1 and tree["copies"]:
        tree["copies"].pop(rng.randrange(len(tree["copies"])))
    else:
        tree["copies"].append(rng.choice([*graph.outputs, graph.ops[0].results[0]]))
    return True


@_mutation
def profile(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Scratch that is said to have been measured: little, so that none need be reserved."""
    names = [op.name for op in graph.ops]
    tree["profile"] = {**tree["profile"], rng.choice(names): rng.choice([0, 0, 1, 64])}
    found = _buffers(tree, "workspace")
    if found and rng.random() < 0.7:
        buffer = rng.choice(found)
        tree["buffers"].remove(buffer)
        tree["profile"][names[min(buffer["op"], len(names) - 1)]] = 0
    return True


@_mutation
def proof(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    tree["proof"] = {"packing": True, "order": rng.random() < 0.7}
    tree["bound"] = dict.fromkeys(tree["bound"], tree["arena_bytes"])
    return True


@_mutation
def wasteful(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Nothing shares an address; the arena is as large as all buffers."""
    align, at = tree["policies"]["align"], 0
    if tree["mode"] != "arena" or not tree["buffers"]:
        return False
    for buffer in tree["buffers"]:
        buffer["offset"] = at
        at += -(-buffer["size"] // align) * align
    tree["arena_bytes"] = at
    return True


@_mutation
def longer_lives(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Buffers are said to live from the first step to the last, so that waste looks needed."""
    for buffer in tree["buffers"]:
        buffer["live"] = [{"start": 0, "stop": len(graph.ops), "lower": 0,
                           "upper": buffer["size"]}]  # fmt: skip
    return wasteful(tree, rng, graph)


for _kind, _name in records():
    _label = f"{_kind.__name__}.{_name}"
    MUTATIONS[_label] = field_of(_label)
