"""The attack on the readers: mutated files through the real command line.

A mutant is its reader, seed and number. A run must succeed, or say one line on stderr and end
with a documented code; anything else is a finding.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from . import corpus
from .corpus import Seed
from .mutate_bytes import mutate_bytes
from .mutate_json import mutate_archive, mutate_json
from .mutate_onnx import mutate_structure as mutate_onnx
from .mutate_text import CSV_WORDS, PF_WORDS, TOML_WORDS, mutate_text
from .mutate_tflite import mutate_structure as mutate_tflite
from .server import SECONDS, Run, Server

Mutator = Callable[[bytes, random.Random], bytes]
Commands = tuple[tuple[str, ...], ...]
CODES = (0, 1, 2, 3, 4, 5)
LINE = 2000
"""Characters of the longest error line."""
FILE = "{}"

_MODEL: tuple[Commands, ...] = (
    (("inspect", FILE, "-q"),),
    (("inspect", FILE, "-q", "--json", "--lint"),),
    (("inspect", FILE, "-q", "--csv", "-"),),
    (("inspect", FILE, "-q", "--formulas"),),
    (("plan", FILE, "-q", "--time-limit", "1", "-o", "p.json"), ("verify", FILE, "p.json", "-q")),
    (("plan", FILE, "-q", "--time-limit", "1", "--json", "--target", "tflm"),),
    (("plan", FILE, "-q", "--time-limit", "1", "--lanes", "free", "--align", "1"),),
    (("fit", FILE, "-q", "--time-limit", "0.3", "--budget", "64KiB"),),
    (("plan", FILE, "-q", "--time-limit", "1", "--mode", "both"),),
)
_TFLITE: tuple[Commands, ...] = (
    *_MODEL,
    (("verify", FILE, "-q"),),
    (("apply", FILE, "-q", "-o", "out.tflite"),),
)


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of file: its corpus, how it is broken, and the commands that read it."""

    name: str
    suffix: str
    seeds: Callable[[], tuple[Seed, ...]]
    mutators: tuple[Mutator, ...]
    commands: tuple[Commands, ...]


READERS: dict[str, Reader] = {reader.name: reader for reader in (
    Reader("onnx", ".onnx", corpus.onnx, (mutate_bytes, mutate_onnx, mutate_onnx), _MODEL),
    Reader("tflite", ".tflite", corpus.tflite, (mutate_bytes, mutate_tflite, mutate_tflite),
           _TFLITE),
    Reader("pf", ".pf", corpus.text, (mutate_bytes, *[partial(mutate_text, words=PF_WORDS)] * 3),
           _MODEL),
    Reader("csv", ".csv", corpus.csv, (mutate_bytes, *[partial(mutate_text, words=CSV_WORDS)] * 2),
           ((("pack", FILE, "-q", "--time-limit", "1"),),
            (("pack", FILE, "-q", "--time-limit", "0.5", "--json", "--minimize"),),
            (("pack", FILE, "-q", "--time-limit", "0.5", "--capacity", "100", "--explain"),),
            (("pack", FILE, "-q", "--time-limit", "0.5", "-o", "o.csv", "--anonymise", "r.csv"),))),
    Reader("plan", ".plan.json", corpus.plans, (mutate_bytes, *[mutate_json] * 3),
           ((("verify", "model.pf", FILE, "-q"),), (("verify", "model.pf", FILE, "-q", "--json"),),
            (("verify", "model.pf", FILE, "-q", "--run"),),
            (("apply", "model.pf", FILE, "-q", "--to", "c", "-o", "o.h"),),
            (("apply", "model.pf", FILE, "-q", "--to", "csv", "-o", "-"),))),
    Reader("device", ".toml", corpus.devices,
           (mutate_bytes, *[partial(mutate_text, words=TOML_WORDS)] * 2),
           ((("devices", FILE),), (("devices", FILE, "--json"),),
            (("inspect", "model.pf", "-q", "--device", FILE),),
            (("fit", "model.pf", "-q", "--time-limit", "0.3", "--device", FILE),))),
    Reader("profile", ".json", corpus.profiles, (mutate_bytes, *[mutate_json] * 3),
           ((("plan", "model.pf", "-q", "--profile", FILE),),
            (("plan", "model.pf", "-q", "--json", "--profile", FILE),))),
    Reader("pt2", ".pt2", corpus.programs, (mutate_bytes, *[mutate_archive] * 4),
           _MODEL),
)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken file and what reads it."""

    reader: str
    number: int
    seed_name: str
    steps: int
    data: bytes
    beside: tuple[tuple[str, bytes], ...]
    commands: Commands

    @property
    def file(self) -> str:
        """Its name in the folder of the run."""
        return f"m{READERS[self.reader].suffix}"


def mutant(reader: Reader, seed: int, number: int, steps: int | None = None) -> Mutant:
    """Mutant `number` of a reader's corpus.

    Args:
        reader: which kind of file.
        seed: of the run.
        number: of the mutant.
        steps: how many of its mutations to do, from the first; all by default.
    """
    rng = random.Random(f"{seed} {reader.name} {number}")
    start = rng.choice(reader.seeds())
    commands = rng.choice(reader.commands)
    wanted = rng.choice([1, 1, 2, 2, 4])
    only = rng.choice(reader.mutators) if rng.random() < 0.8 else None
    data = start.data
    for step in range(wanted if steps is None else steps):
        own = random.Random(f"{seed} {reader.name} {number} step {step}")
        data = (only or own.choice(reader.mutators))(data, own)
    named = tuple(
        tuple(f"m{reader.suffix}" if word == FILE else word for word in command)
        + (start.numbers if command[0] in ("inspect", "plan", "fit") else ())
        for command in commands
    )
    done = wanted if steps is None else steps
    return Mutant(reader.name, number, start.name, done, data, start.beside, named)


def run(server: Server, one: Mutant) -> Run:
    """Give a mutant to the command line."""
    return server.run(one.commands, {**dict(one.beside), one.file: one.data})


def finding(one: Mutant, ran: Run) -> str | None:
    """What is wrong with a run, in one line that is equal for equal faults; `None` if nothing."""
    if ran.signal:
        return f"ended by signal {ran.signal} ({ran.cpu_s:.0f} s CPU)"
    lines = ran.err.strip().splitlines()
    last = lines[-1] if lines else ""
    code = ran.codes[-1] if ran.codes else -1
    if "Traceback (most recent call last)" in ran.err or "internal error" in ran.err:
        return f"internal: {last}"
    if code not in CODES:
        return f"exit code {code}: {last}"
    if len(ran.codes) == 2 and code:
        return f"its own plan fails: code {code}: {last or ran.out.strip().splitlines()[-1:]}"
    if "not enough memory" in last:
        return f"asks for more than 4 GiB: {last}"
    if ran.cpu_s > SECONDS:
        return f"{ran.cpu_s:.0f} s CPU"
    if code == 0 and lines:
        return f"words on stderr of a quiet run: {last}"
    if code and (len(lines) != 1 or not last.startswith("peakfold: error: ")):
        return f"code {code} with {len(lines)} lines: {lines[0] if lines else 'nothing'}"
    if len(last) > LINE:
        return "an error line of thousands of characters"
    return _traces(one, ran, code)


def _traces(one: Mutant, ran: Run, code: int) -> str | None:
    """Files that should not be there, and documents that are none."""
    named = {word for command in one.commands for word in command}
    left = [name for name in ran.files if code or name not in named]
    if left and not (code and len(ran.codes) == 2):
        return f"left behind: {left[0]}"
    if code == 0 and "--json" in one.commands[-1] and len(ran.out) < 20_000:
        try:
            json.loads(ran.out)
        except ValueError as error:
            return f"no JSON document: {error}"
    return None


def signature(text: str) -> str:
    """A finding without its numbers and names."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", text)
    return re.sub(r"-?\d+(\.\d+)?", "N", text)[:160]


def smallest(server: Server, one: Mutant, seed: int, found: str) -> tuple[Mutant, str]:
    """The same finding after as few of its mutations as show it."""
    reader = READERS[one.reader]
    for steps in range(1, one.steps):
        less = mutant(reader, seed, one.number, steps)
        told = finding(less, run(server, less))
        if told is not None and signature(told) == signature(found):
            return less, told
    return one, found
