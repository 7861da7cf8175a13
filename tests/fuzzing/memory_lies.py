"""Plausible lies of a plan about who lies where."""

from __future__ import annotations

import random

from peakfold.ir import Graph

from .plan_fields import Mutation, Tree

LIES: dict[str, Mutation] = {}


def lie(function: Mutation) -> Mutation:
    """Register a mutation by its name."""
    LIES[function.__name__] = function
    return function


def buffers_of(tree: Tree, what: str = "") -> list[Tree]:
    return [b for b in tree["buffers"] if not what or b["what"] == what]


def pair_of(tree: Tree, rng: random.Random) -> tuple[Tree, Tree] | None:
    buffers = buffers_of(tree)
    if len(buffers) < 2:
        return None
    one, two = rng.sample(buffers, 2)
    return one, two


@lie
def move_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    align, top = tree["policies"]["align"], tree["arena_bytes"]
    buffer = rng.choice(tree["buffers"])
    buffer["offset"] = rng.randrange(top // align + 2) * align
    return True


@lie
def nudge_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    step = rng.choice([1, tree["policies"]["align"]]) * rng.choice([1, -1])
    buffer = rng.choice(tree["buffers"])
    buffer["offset"] = max(buffer["offset"] + step, 0)
    return True


@lie
def same_offset(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = pair_of(tree, rng)
    if pair:
        pair[0]["offset"] = pair[1]["offset"]
    return pair is not None


@lie
def swap_offsets(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = pair_of(tree, rng)
    if pair:
        pair[0]["offset"], pair[1]["offset"] = pair[1]["offset"], pair[0]["offset"]
    return pair is not None


@lie
def merge_buffers(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = pair_of(tree, rng)
    if not pair or not pair[1]["tensors"]:
        return False
    one, two = pair
    one["tensors"] = [*one["tensors"], *two["tensors"]]
    one["size"] = max(one["size"], two["size"])
    one["live"] = [*one["live"], *two["live"]]
    tree["buffers"].remove(two)
    return True


@lie
def split_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Tensors that shared a buffer get one each, at one address."""
    crowded = [b for b in tree["buffers"] if len(b["tensors"]) > 1]
    if not crowded:
        return False
    buffer = rng.choice(crowded)
    place = buffer["tensors"].pop(rng.randrange(len(buffer["tensors"])))
    tree["buffers"].append(
        {**buffer, "tensors": [place], "live": [dict(p) for p in buffer["live"]]}
    )
    return True


@lie
def move_tensor(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    pair = pair_of(tree, rng)
    if not pair or not pair[0]["tensors"]:
        return False
    place = pair[0]["tensors"].pop(rng.randrange(len(pair[0]["tensors"])))
    if rng.random() < 0.5:
        place["offset"] = 0
    pair[1]["tensors"].append(place)
    return True


@lie
def shift_place(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    homes = [h for h in (*tree["buffers"], *tree["external"]) if h["tensors"]]
    if not homes:
        return False
    place = rng.choice(rng.choice(homes)["tensors"])
    place["offset"] = rng.choice(
        [0, place["offset"] + 1, place["nbytes"], place["offset"] + tree["policies"]["align"]]
    )
    return True


@lie
def drop_tensor(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    homes = [h for h in (*tree["buffers"], *tree["external"]) if h["tensors"]]
    if not homes:
        return False
    home = rng.choice(homes)
    home["tensors"].pop(rng.randrange(len(home["tensors"])))
    return True


@lie
def drop_buffer(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["buffers"]:
        return False
    tree["buffers"].remove(rng.choice(tree["buffers"]))
    return True


@lie
def buffer_to_external(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """Memory that nobody has: the arena shrinks at will."""
    found = buffers_of(tree, "tensor")
    if not found:
        return False
    buffer = rng.choice(found)
    tree["buffers"].remove(buffer)
    tree["external"].append({"tensors": buffer["tensors"]})
    return True


@lie
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


@lie
def external_to_arena(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    found = [e for e in tree["external"] if e["tensors"]]
    if not found or not tree["buffers"]:
        return False
    external = rng.choice(found)
    tree["external"].remove(external)
    rng.choice(tree["buffers"])["tensors"] += external["tensors"]
    return True


@lie
def merge_externals(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if len(tree["external"]) < 2:
        return False
    one, two = rng.sample(tree["external"], 2)
    shift = rng.choice([0, 0, sum(p["nbytes"] for p in one["tensors"])])
    one["tensors"] = one["tensors"] + [{**p, "offset": p["offset"] + shift} for p in two["tensors"]]
    tree["external"].remove(two)
    return True


@lie
def drop_alias(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if tree["aliases"]:
        tree["aliases"].pop(rng.randrange(len(tree["aliases"])))
        return True
    return False


@lie
def relabel_alias(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    if not tree["aliases"]:
        return False
    rng.choice(tree["aliases"])["how"] = rng.choice(["view", "inplace", "overlap", "concat"])
    return True


@lie
def add_alias(tree: Tree, rng: random.Random, graph: Graph) -> bool:
    """A result is laid over an operand, with the record that says so."""
    at = rng.randrange(len(graph.ops))
    op = graph.ops[at]
    homes = {
        p["tensor"]: (b, p) for b in (*tree["buffers"], *tree["external"]) for p in b["tensors"]
    }
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
