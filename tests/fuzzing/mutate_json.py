"""Seeded mutations of JSON trees, and of archives whose members are such trees."""

from __future__ import annotations

import copy
import io
import json
import random
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from .mutate_bytes import NUMBERS, WORDS, mutate_bytes

PROGRAM_WORDS = (
    "Infinity",
    "s0",
    "s0*2",
    "Max(s0,1)//0",
    "os.system",
    "__import__('os').system('x')",
    "torch.ops.aten.add.Tensor",
    "torch.ops.aten.view.default",
    "torch.ops.aten.lstm.input",
    "torch.ops.aten.einsum.default",
    "torch.ops.higher_order.cond",
    "torch._C._jit",
    "p_l_weight",
)
"""Texts that a loader of exported programs evaluates or resolves."""


def mutate_json(data: bytes, rng: random.Random, words: Sequence[str] = ()) -> bytes:
    """Change one node of a JSON document; bytes that are none are changed as bytes."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, rng)
    if rng.random() < 0.02:
        return b"[" * 100_000 if rng.random() < 0.5 else json.dumps({"a": tree}).encode()
    spots = list(_spots(tree))
    if not spots:
        return mutate_bytes(data, rng)
    owner, key = rng.choice(spots)
    _change(owner, key, spots, rng, (*WORDS, *words))
    return json.dumps(tree).encode()


def _spots(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree: the list or object, and the index or key."""
    pairs: Any = enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(tree.items() if isinstance(tree, dict) else pairs):
        yield tree, key
        if isinstance(value, list | dict):
            yield from _spots(value)


def _change(
    owner: Any, key: Any, spots: list[tuple[Any, Any]], rng: random.Random, words: Sequence[str]
) -> None:
    old = owner[key]
    how = rng.randrange(8)
    if how == 0:
        del owner[key]
    elif how == 1:
        other, other_key = rng.choice(spots)
        owner[key] = copy.deepcopy(other[other_key])
    elif how == 2 and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(old))
    elif how == 2:
        owner[rng.choice(words)] = copy.deepcopy(old)
    elif how == 3 and isinstance(old, list):
        owner[key] = rng.choice([[], old[::-1], old * 2, (old * 300)[:2000]])
    elif how == 4:
        owner[key] = rng.choice([None, True, False, [], {}, [[]], 0.5, -0.0, 1e308])
    elif isinstance(old, str) or how == 5:
        owner[key] = rng.choice([*words, f"{old}x", "9" * 400])
    else:
        near = old if isinstance(old, int) else 1
        owner[key] = rng.choice([*NUMBERS, near + 1, near - 1, near * 2, float("nan")])


def mutate_archive(data: bytes, rng: random.Random) -> bytes:
    """Change a member of a zip archive, or the list of its members."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        RuntimeError,
        NotImplementedError,
        OSError,
        EOFError,
    ):
        return mutate_bytes(data, rng)
    if not members:
        return mutate_bytes(data, rng)
    graphs = [at for at, (name, _) in enumerate(members) if name.endswith(".json")]
    at = rng.choice(graphs) if graphs and rng.random() < 0.7 else rng.randrange(len(members))
    name, held = members[at]
    how = rng.randrange(12)
    if how == 0:
        del members[at]
    elif how == 1:
        members[at] = (rng.choice([f"{name}x", f"../{name}", "/x", name.upper()]), held)
    elif how == 2:
        members.append((name, mutate_bytes(held, rng)))
    elif how == 3:
        members[at] = (name, b"\0" * 30_000_000)  # it takes little room in the archive
    elif how == 4:
        members[at] = (name, members[rng.randrange(len(members))][1])
    elif how == 5:
        members[at] = (name, mutate_bytes(held, rng))
    else:
        members[at] = (name, mutate_json(held, rng, PROGRAM_WORDS))
    return _zipped(members, zipfile.ZIP_DEFLATED if how == 3 else zipfile.ZIP_STORED)


def _zipped(members: list[tuple[str, bytes]], kind: int) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", kind) as archive:
        warnings.simplefilter("ignore")  # a name that stands twice is meant
        for name, held in members:
            info = zipfile.ZipInfo(name)  # a fixed date: the same mutant has the same bytes
            info.compress_type = kind
            archive.writestr(info, held)
    return out.getvalue()
