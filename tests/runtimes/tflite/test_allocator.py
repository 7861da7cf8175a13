"""The model of the interpreter's allocator, against the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peakfold.errors import ModelError
from peakfold.runtimes.tflite.allocator import predict
from peakfold.runtimes.tflite.interpreter import Job, Outcome, run, run_all
from peakfold.runtimes.tflite.rewrite import Edit, rewrite
from peakfold.runtimes.tflite.schema import Signature, parse_model
from peakfold.runtimes.tflite.scratch import table_scratch
from tests.runtimes.tflite.build import Build
from tests.runtimes.tflite.models import FOLDED, SHIPPED, runnable

ARENA = 1 << 25


@pytest.mark.shared
@pytest.mark.req("TFL2")
def test_the_head_of_every_model_is_predicted_exactly(tmp_path: Path) -> None:
    jobs, predicted = [], []
    for name in (*SHIPPED, *FOLDED):
        data = runnable(name)
        model = parse_model(data)
        scratch = {at: sizes for at, sizes in table_scratch(model).items() if sizes is not None}
        assert len(scratch) == sum(len(graph.operators or ()) for graph in model.subgraphs)
        predicted.append(predict(model, scratch).head)
        path = tmp_path / f"{Path(name).name}.tflite"
        path.write_bytes(data)
        shape = Signature.of(model)
        jobs.append(Job(path, ARENA, shape.inputs, shape.results))
    measured = run_all(jobs)
    for job, outcome, head in zip(jobs, measured, predicted, strict=True):
        assert isinstance(outcome, Outcome), outcome
        assert outcome.head == head, job.model.name


def random_model(seed: int) -> Build:
    """A graph of binary and unary operators with dead results and an unused tensor."""
    rng = np.random.default_rng(seed)
    made = Build()
    sizes = [(1, int(n)) for n in rng.integers(1, 9, 4) * 4]
    values = [made.tensor("FLOAT32", shape) for shape in sizes]
    shapes = dict(zip(values, sizes, strict=True))
    inputs = list(values)
    made.tensor("FLOAT32", (7, 11))  # nobody's
    for _ in range(14):
        a = int(rng.choice(values))
        same = [v for v in values if shapes[v] == shapes[a]]
        out = made.tensor("FLOAT32", shapes[a])
        shapes[out] = shapes[a]
        if rng.random() < 0.5:
            made.op("ADD", [a, int(rng.choice(same))], [out], "AddOptions")
        else:
            made.op("TANH", [a], [out])
        values.append(out)
    outputs = sorted(int(v) for v in rng.choice(values[4:], 3, replace=False))
    return made.ends(inputs, outputs)


@pytest.mark.req("TFL2")
def test_random_graphs_with_some_tensors_placed(tmp_path: Path) -> None:
    jobs, predicted = [], []
    for seed in range(24):
        made = random_model(seed)
        rng = np.random.default_rng(seed + 1000)
        count = len(made.graph.tensors)
        offsets = {
            (0, t): int(rng.integers(0, 40)) * 16 for t in range(count) if rng.random() < 0.4
        }
        data = rewrite(made.bytes(), Edit(offsets=None if seed % 4 == 0 else offsets))
        predicted.append(predict(parse_model(data)).head)
        path = tmp_path / f"{seed}.tflite"
        path.write_bytes(data)
        jobs.append(Job(path, ARENA, 4, 3))
    for outcome, head in zip(run_all(jobs), predicted, strict=True):
        assert isinstance(outcome, Outcome), outcome
        assert outcome.head == head
    assert len(set(predicted)) > 12


def branching(kind: str) -> Build:
    """A model whose operator runs two subgraphs."""
    made = Build()
    x = made.tensor("FLOAT32", (1, 64))
    early = made.tensor("FLOAT32", (1, 64))
    condition = made.tensor("BOOL", (1,))
    limit = made.tensor("FLOAT32", (1,), np.array([0.5], np.float32))
    peak = made.tensor("FLOAT32", (1,))
    axes = made.tensor("INT32", (2,), np.array([0, 1], np.int32))
    out, late = made.tensor("FLOAT32", (1, 64)), made.tensor("FLOAT32", (1, 64))
    made.op("TANH", [x], [early])
    if kind == "IF":
        made.op("REDUCE_MAX", [x, axes], [peak], "ReducerOptions")
        made.op("GREATER", [peak, limit], [condition], "GreaterOptions")
        made.op(
            "IF", [condition, early], [out], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2
        )
    else:
        made.op("WHILE", [early], [out], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    made.op("ADD", [early, out], [late], "AddOptions")
    made.ends([x], [late])
    for number in (1, 2):
        made.subgraph()
        a = made.tensor("FLOAT32", (1, 64))
        if kind == "WHILE" and number == 1:
            top, low = made.tensor("FLOAT32", (1,)), made.tensor("FLOAT32", (1,), np.float32([0.3]))
            both = made.tensor("INT32", (2,), np.array([0, 1], np.int32))
            yes = made.tensor("BOOL", (1,))
            made.op("REDUCE_MAX", [a, both], [top], "ReducerOptions")
            made.op("GREATER", [top, low], [yes], "GreaterOptions")
            made.ends([a], [yes])
            continue
        b, c = made.tensor("FLOAT32", (1, 64)), made.tensor("FLOAT32", (1, 64))
        made.op("MUL", [a, a], [b], "MulOptions")
        made.op("SIN" if number == 1 else "COS", [b], [c])
        d = made.tensor("FLOAT32", (1, 64))
        made.op("MUL", [c, b], [d], "MulOptions")
        made.ends([a], [d])
    return made


@pytest.mark.req("TFL2")
@pytest.mark.parametrize("kind", ["IF", "WHILE"])
def test_called_subgraphs_count_inside_their_operator(kind: str, tmp_path: Path) -> None:
    data = branching(kind).bytes()
    model = parse_model(data)
    scratch = {at: sizes for at, sizes in table_scratch(model).items() if sizes is not None}
    path = tmp_path / "branch.tflite"
    path.write_bytes(data)
    assert run(Job(path, ARENA, 1, 1, (1,))).head == predict(model, scratch).head


def test_a_subgraph_that_calls_itself_is_refused() -> None:
    made = branching("IF")
    made.model.subgraphs[0].operators[3].builtinOptions.thenSubgraphIndex = 0
    with pytest.raises(ModelError, match="calls itself"):
        predict(parse_model(made.bytes()))


def test_a_table_of_wrong_length_is_refused() -> None:
    model = parse_model(rewrite(random_model(1).bytes(), Edit(offsets={(0, 0): 0})))
    model.subgraphs[0].tensors.append(model.subgraphs[0].tensors[0])
    with pytest.raises(ModelError, match="places"):
        predict(model)
