"""Seeded mutations of exported programs in files: JSON structure, members, the container."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import Any

from tests.frontends.mutate import mutate_bytes
from tests.frontends.pt2_archives import CODE, tensor

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**70, -(2**70), 1.5, 1e308, "", "x", "Infinity", "s0",
    CODE, [], {}, [[]], {"as_int": 5}, {"as_expr": {"expr_str": "s0*2"}}, tensor("x"), "os.system",
    {"as_expr": {"expr_str": "Max(s0,1)//0"}}, "torch.ops.aten.add.Tensor", "a" * 5000,
    "torch.ops.aten.view.default", "torch.ops.aten.lstm.input", "torch.ops.aten.einsum.default",
    "torch.ops.aten.fft_fft.default", "torch.ops.higher_order.cond", "torch._C._jit", 99999999999,
)  # fmt: skip


def mutate_program(data: bytes, rng: random.Random) -> bytes:
    """Break what the JSON of a program says; it stays well formed."""
    members = _members(data)
    name = next(key for key in members if "models/" in key)
    program = json.loads(members[name])
    places = _places(program)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        _change(program, rng.choice(places), rng)
    members[name] = json.dumps(program).encode()
    return _archive(members, rng)


def mutate_members(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut and drop bytes of members, and of the container in which they lie."""
    members = _members(data)
    name = rng.choice(list(members))
    if rng.random() < 0.2:
        del members[name]
    else:
        members[name] = mutate_bytes(members[name], rng)
    made = _archive(members, rng)
    if rng.random() < 0.7:
        return made
    tail = len(made) - rng.randrange(min(len(made), 2000))
    return made[:tail] + mutate_bytes(made[tail:], rng)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(members: dict[str, bytes], rng: random.Random) -> bytes:
    stream = io.BytesIO()
    kind = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _places(whole: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with every key in it."""
    found, todo = [], [whole]
    while todo:
        at = todo.pop()
        pairs = at.items() if isinstance(at, dict) else enumerate(at)
        for key, value in pairs:
            found.append((at, key))
            if isinstance(value, dict | list):
                todo.append(value)
    return found


def _change(program: Any, place: tuple[Any, Any], rng: random.Random) -> None:
    parent, key = place
    missing = key not in parent if isinstance(parent, dict) else key >= len(parent)
    if missing:  # an earlier change took it
        return
    value = parent[key]
    way = rng.randrange(5)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, list):
        parent.insert(key, value)
    elif way == 2 and isinstance(value, int):
        parent[key] = value + rng.choice([-1, 1, 7, -100, 2**40])
    elif way == 3 and isinstance(value, str):
        parent[key] = rng.choice([value[:-1], f"{value}_", "p_l_weight", "x", "add", "view"])
    else:
        source, name = rng.choice(_places(program))
        parent[key] = rng.choice([*ODD, *[json.loads(json.dumps(source[name]))] * 5])
