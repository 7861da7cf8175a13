"""Seeded mutations of text by token: our text form, CSV, TOML."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from .mutate_bytes import NUMBERS, WORDS

_TOKEN = re.compile(r"[A-Za-z_][\w./-]*|\d+|\s+|.", re.DOTALL)
PF_WORDS = (
    "input", "output", "parameter", "state", "gradient", "if", "loop", "begin", "end", "region",
    "captures", "inplace", "views", "overlap", "workspace", "reads", "writes", "name", "scope",
    "opaque", "float32", "int4", "complex128", "string", "bool", "concat", "split", "reshape",
    "matmul", "conv", "transpose", "slice", "gather", "_", "?", "(16B)", "0<1+128", "0-16",
    "peakfold-graph 2", "trainable",
)  # fmt: skip
CSV_WORDS = ("id", "lower", "upper", "size", "alignment", "gaps", "offset", "1-3", "a:b", ";", "\t")
TOML_WORDS = (
    "[peak.vector]",
    "[[memory]]",
    "title",
    "gb",
    "gb_s",
    "tflops",
    "source",
    "kind",
    "1979-05-27",
    "nan",
    "inf",
    "1_000",
    "0x10",
    "true",
)


def mutate_text(data: bytes, rng: random.Random, words: Sequence[str] = ()) -> bytes:
    """Change one token or line of a text.

    Args:
        data: the text as UTF-8; what is none is replaced.
        rng: decides.
        words: of the format's own vocabulary.
    """
    text = data.decode("utf-8", "replace")
    if rng.random() < 0.2:
        return _lines(text, rng).encode()
    tokens = _TOKEN.findall(text) or [""]
    at = rng.randrange(len(tokens))
    how = rng.randrange(16)
    if how >= 7:
        _same_sort(tokens, rng)
    elif how == 0:
        del tokens[at]
    elif how == 1:
        tokens.insert(at, tokens[at])
    elif how == 2:
        other = rng.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    elif how == 3:
        tokens[at] = rng.choice(tokens)
    elif how == 4:
        numbers = [n for n, token in enumerate(tokens) if token.isdigit()] or [at]
        tokens[rng.choice(numbers)] = str(rng.choice(NUMBERS))
    elif how == 5:
        tokens[at] = rng.choice([*words, *WORDS])
    else:
        tokens[at] = tokens[at] * rng.choice([3, 300, 20_000])
    return "".join(tokens).encode("utf-8", "replace")


def _same_sort(tokens: list[str], rng: random.Random) -> None:
    """A number for a number or a word for a word: the text can still be read."""
    test = rng.choice([str.isdigit, str.isidentifier])
    found = [at for at, token in enumerate(tokens) if test(token)]
    if not found:
        return
    at = rng.choice(found)
    if test is str.isdigit and rng.random() < 0.7:
        near = int(tokens[at][:300])
        tokens[at] = str(rng.choice([0, 1, near + 1, abs(near - 1), near * 2, 2**31, 2**62]))
    else:
        tokens[at] = tokens[rng.choice(found)]


def _lines(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(other, lines[at])
    elif how == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 3:
        lines[at:at] = [lines[other]] * rng.choice([2, 40])
    else:
        return "\ufeff" + text if rng.random() < 0.3 else text.replace("\n", "\r\n")
    return "\n".join(lines)
