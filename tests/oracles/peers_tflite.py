"""A peer's .tflite models, built anew from facts: their weights are zero, their sizes are its own.

`tools/peer_models.py` writes the facts. What it calls a value is a shape, an axis or a padding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from peakfold.runtimes.tflite.arena import Arena, predict_arena
from peakfold.runtimes.tflite.interpreter import Job, Outcome, run_all
from peakfold.runtimes.tflite.schema import Signature, parse_model
from peakfold.runtimes.tflite.scratch import known_scratch
from tests.runtimes.tflite.build import TYPES, Build

FACTS = Path(__file__).parents[1] / "data" / "peers_tflite.json"


@cache
def facts() -> dict[str, Any]:
    """Subgraphs by the name of the peer's file."""
    found: dict[str, Any] = json.loads(FACTS.read_text())
    return found


@cache
def built(name: str) -> bytes:
    """The bytes of a model that takes the same memory as the peer's."""
    made = Build()
    for at, graph in enumerate(facts()[name]):
        if at:
            made.subgraph()
        for tensor in graph["tensors"]:
            _tensor(made, *tensor)
        for operator in graph["operators"]:
            _operator(made, *operator)
        made.ends(graph["inputs"], graph["outputs"])
    return made.bytes()


def _tensor(
    made: Build,
    kind: str,
    dims: list[int],
    role: str,
    scales: list[int],
    value: list[int] | None = None,
) -> None:
    data, more = None, {}
    if role == "constant":
        data = np.zeros(dims, TYPES[kind]) if value is None else np.array(value, TYPES[kind])
    if scales:
        count, axis, power, zero = scales
        more = {"scale": [2.0**power] * count, "axis": axis, "zero": zero}
    at = made.tensor(kind, tuple(dims), data, variable=role == "variable", **more)
    if not scales:
        made.graph.tensors[at].quantization = None


def _operator(
    made: Build,
    name: str,
    inputs: list[int],
    outputs: list[int],
    more: dict[str, Any] | None = None,
) -> None:
    more = more or {}
    at = made.op(name, inputs, outputs, more.get("options", ""), **more.get("fields", {}))
    operator = made.graph.operators[at]
    operator.intermediates = more.get("intermediates")
    if "custom" in more:
        from flatbuffers import flexbuffers

        operator.customOptions = list(flexbuffers.Dumps(more["custom"]))


def predicted(name: str) -> Arena:
    """The arena that we tell."""
    model = parse_model(built(name))
    return predict_arena(model, known_scratch(model))


def complaint(name: str, expect: dict[str, int]) -> str:
    """What is wrong, by the peer's figures or by the interpreter; empty where nothing is."""
    found = predicted(name)
    if found.unknown:
        return f"not known: {found.unknown}"
    have = {"head": found.head, "head_and_tail": found.head + found.tail}
    return refused().get(name, "") if have == expect else f"{have}, the peer's {expect}"


@cache
def refused() -> dict[str, str]:
    """What the interpreter does otherwise than we tell, by the name of the model."""
    found = (said.partition(": ") for said in started(list(facts())))
    return {name: said for name, _, said in found}


def started(names: list[str]) -> Iterator[str]:
    """What the interpreter does otherwise than we tell: it starts in our total, in no less."""
    with TemporaryDirectory() as folder:
        jobs, told = [], []
        for at, name in enumerate(names):
            path, shape = Path(folder) / f"{at}.tflite", Signature.of(parse_model(built(name)))
            path.write_bytes(built(name))
            told.append(predicted(name))
            job = Job(path, told[-1].total, shape.inputs, shape.results, build_only=True)
            jobs += [job, replace(job, arena=job.arena - 16)]
        done = run_all(jobs)
    for name, arena, own, less in zip(names, told, done[::2], done[1::2], strict=True):
        if not isinstance(own, Outcome):
            yield f"{name}: does not start in {arena.total}"
        elif (own.head, own.tail) != (arena.head, arena.tail):
            yield f"{name}: {own.head} + {own.tail}, not {arena.head} + {arena.tail}"
        if isinstance(less, Outcome):
            yield f"{name}: starts in less than {arena.total}"
