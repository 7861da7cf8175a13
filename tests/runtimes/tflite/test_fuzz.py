"""Mutated files: each tool of this package ends with a result or one clear error."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from peakfold.errors import PeakfoldError
from peakfold.frontends import load
from peakfold.runtimes.tflite.arena import predict_arena
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import pack_model, parse_model
from peakfold.runtimes.tflite.scratch import table_scratch
from tests.fuzzing.mutate_bytes import mutate_bytes
from tests.runtimes.tflite.build import Build
from tests.runtimes.tflite.test_allocator import branching, random_model


@pytest.mark.req("TFL6")
def test_mutated_files(tmp_path: Path) -> None:
    rng = random.Random(11)
    sources = [
        rewrite(random_model(1).bytes(), Edit(offsets={(0, 0): 0})),
        branching("IF").bytes(),
        branching("WHILE").bytes(),
    ]
    path = tmp_path / "m.tflite"
    clean = 0
    for _ in range(150):
        data = mutate_bytes(rng.choice(sources), rng)
        path.write_bytes(data)
        with contextlib.suppress(PeakfoldError):
            rewrite(data, Edit(offsets={(0, 0): 0}))
        with contextlib.suppress(PeakfoldError):
            model = parse_model(data)
            sizes = table_scratch(model)
            predict_arena(model, {at: found for at, found in sizes.items() if found})
            if all(found is not None for found in sizes.values()):  # else operators would be run
                judge_file(path)
            clean += 1
    assert 10 < clean < 150


def test_operators_without_their_options(tmp_path: Path) -> None:
    """A variable without a name is one like any other; control flow without a body is an error."""
    made = Build()
    handle = made.tensor("RESOURCE", ())
    x = made.tensor("FLOAT32", (4,))
    y = made.tensor("FLOAT32", (4,))
    made.op("VAR_HANDLE", [], [handle])
    made.op("ASSIGN_VARIABLE", [handle], [])
    made.op("RELU", [x], [y])
    model = parse_model(made.ends([x], [y]).bytes())
    assert predict_arena(model, {}).tail > 0
    path = tmp_path / "if.tflite"
    for kind in ("IF", "WHILE"):
        model = branching(kind).model
        for op in model.subgraphs[0].operators:
            op.builtinOptions, op.builtinOptionsType = None, 0
        path.write_bytes(pack_model(model))
        with pytest.raises(PeakfoldError):
            load(path)
        with pytest.raises(PeakfoldError, match="no subgraph"):
            predict_arena(parse_model(path.read_bytes()), {})


def test_offsets_beyond_a_files_numbers() -> None:
    data = branching("IF").bytes()
    rewrite(data, Edit(offsets={(0, 0): 2**31 - 1}))
    with pytest.raises(PeakfoldError, match="32 bits"):
        rewrite(data, Edit(offsets={(0, 0): 2**31}))
