"""Seeded mutations of the text form: numbers, kinds, types and attributes that fit nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from peakfold.ir import DTYPES
from peakfold.ops import KINDS

_NUMBERS = ["-1", "0", "1", "3", "64", str(2**31), str(2**48), str(2**62), str(2**63), str(2**64),
            "1e400", "nan", "-inf", "9" * 50]  # fmt: skip
_ATTRIBUTES = ["axis", "axes", "num_outputs", "perm", "strides", "pads", "kernel_shape", "shape",
               "to", "k", "starts", "size", "group", "trips"]  # fmt: skip
_FORMS = ["{}", "[{}]", "[1,{}]", "[[{}]]"]

Words = list[str]


def mutate_text(data: bytes, rng: random.Random) -> bytes:
    """Replace, repeat or drop words of a graph, so that its lines stay readable."""
    words = re.split(r"(\W)", data.decode())
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        rng.choice(_EDITS)(words, rng)
    return "".join(words).encode("utf-8", "replace")


def _replace(words: Words, rng: random.Random, old: Callable[[str], bool], new: str) -> None:
    found = [at for at, word in enumerate(words) if old(word)]
    if found:
        words[rng.choice(found)] = new


def _number(words: Words, rng: random.Random) -> None:
    _replace(words, rng, str.isdigit, rng.choice(_NUMBERS))


def _kind(words: Words, rng: random.Random) -> None:
    _replace(words, rng, KINDS.__contains__, rng.choice(KINDS))


def _type(words: Words, rng: random.Random) -> None:
    _replace(words, rng, DTYPES.__contains__, rng.choice(list(DTYPES)))


def _attribute(words: Words, rng: random.Random) -> None:
    value = rng.choice(_FORMS).format(rng.choice([*_NUMBERS, "1.5", "true", '"x"']))
    _replace(words, rng, ")".__eq__, f", {rng.choice(_ATTRIBUTES)}={value})")


def _drop(words: Words, rng: random.Random) -> None:
    at = rng.randrange(len(words))
    del words[at : at + rng.randrange(1, 6)]


def _repeat(words: Words, rng: random.Random) -> None:
    at = rng.randrange(len(words) + 1)
    words[at:at] = words[at : at + rng.randrange(1, 200)]


_EDITS = [_number, _kind, _type, _attribute, _attribute, _drop, _repeat]
