"""Plausible lies of a plan about lives, order, lanes, bodies, copies, scratch and proofs."""

from __future__ import annotations

import random

from peakfold.ir import Graph

from .memory_lies import LIES, buffers_of, lie, pair_of
from .plan_fields import Tree


@lie
def edit_life(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pieces = [p for b in tree["buffers"] for p in b["live"]]
    if not pieces:
        return False
    piece = rng.choice(pieces)
    key = rng.choice(["start", "stop", "lower", "upper"])
    piece[key] = max(piece[key] + rng.choice([-2, -1, 1, 2]), 0)
    return True


@lie
def cut_lives_and_share(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Two buffers at one address, with lives that are said not to meet."""
    pair = pair_of(tree, rng)
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


@lie
def shrink_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    buffer = rng.choice(tree["buffers"])
    buffer["size"] = rng.choice(
        [0, buffer["size"] // 2, max(buffer["size"] - tree["policies"]["align"], 0)]
    )
    for piece in buffer["live"]:
        piece["upper"] = min(piece["upper"], buffer["size"])
        piece["lower"] = min(piece["lower"], piece["upper"])
    return True


@lie
def scratch(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    found = buffers_of(tree, "workspace")
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


@lie
def swap_order(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    order = tree["order"]
    if len(order) < 2:
        return False
    at = rng.randrange(len(order) - 1)
    order[at], order[at + 1] = order[at + 1], order[at]
    return True


@lie
def other_order(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Another order that data edges allow."""
    made: set[str] = set()
    left, order = list(range(len(graph.ops))), []
    while left:
        ready = [
            at
            for at in left
            if all(n in made or n not in graph.producer for n in graph.ops[at].operands)
        ]
        if not ready:
            return False
        at = rng.choice(ready)
        order.append(at)
        left.remove(at)
        made |= set(graph.ops[at].results)
    tree["order"] = order
    return True


@lie
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


@lie
def added_edges(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if tree["added"] and rng.random() < 0.6:
        at = rng.randrange(len(tree["added"]))
        edge = tree["added"].pop(at)
        if rng.random() < 0.3:
            tree["added"].append(list(edge)[::-1])
        return True
    tree["added"] = [*tree["added"], [rng.randrange(len(graph.ops)) for _ in range(2)]]
    return tree["lanes"] != 1


@lie
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
        name = rng.choice([name for name in LIES if name != "bodies"])
        return bool(inner.ops) and LIES[name](body["plan"], rng, inner)
    return True


@lie
def copies(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    how = rng.randrange(3)
    made = buffers_of(tree, "copy")
    if how == 0 and made:
        tree["buffers"].remove(rng.choice(made))
    elif how == 1 and tree["copies"]:
        tree["copies"].pop(rng.randrange(len(tree["copies"])))
    else:
        tree["copies"].append(rng.choice([*graph.outputs, graph.ops[0].results[0]]))
    return True


@lie
def profile(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Scratch that is said to have been measured: little, so that none need be reserved."""
    names = [op.name for op in graph.ops]
    tree["profile"] = {**tree["profile"], rng.choice(names): rng.choice([0, 0, 1, 64])}
    found = buffers_of(tree, "workspace")
    if found and rng.random() < 0.7:
        buffer = rng.choice(found)
        tree["buffers"].remove(buffer)
        tree["profile"][names[min(buffer["op"], len(names) - 1)]] = 0
    return True


@lie
def proof(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    tree["proof"] = {"packing": True, "order": rng.random() < 0.7}
    tree["bound"] = dict.fromkeys(tree["bound"], tree["arena_bytes"])
    return True


@lie
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


@lie
def longer_lives(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Buffers are said to live from the first step to the last, so that waste looks needed."""
    for buffer in tree["buffers"]:
        buffer["live"] = [{"start": 0, "stop": len(graph.ops), "lower": 0, "upper": buffer["size"]}]
    return wasteful(tree, rng, graph)
