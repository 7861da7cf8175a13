"""Random models: planned, written, judged, run. Whatever the planner shares, bits are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from peakfold.frontends import load
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.runtimes.tflite.apply_plan import apply_plan
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.interpreter import Job, Outcome, equal_outputs, run_all, varied
from tests.runtimes.tflite.build import Build

Shape = tuple[int, ...]


class Grow:
    """A random graph of operators that compute, move bytes, and ask for scratch."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.made = Build()
        rows = int(self.rng.integers(2, 6))
        self.values: list[tuple[int, Shape]] = []
        self.inputs = [self.new((1, rows, 4, 8)), self.new((1, rows, 4, 8))]
        steps = (
            self.unary,
            self.binary,
            self.concat,
            self.split,
            self.slice,
            self.reshape,
            self.mean,
            self.pool,
        )
        for _ in range(14):
            steps[int(self.rng.integers(len(steps)))]()
        outputs = [t for t, _ in self.values[-3:] if t not in self.inputs]
        self.made.ends(self.inputs, outputs or [self.unary()])
        self.results = len(self.made.graph.outputs)

    def new(self, shape: Shape) -> int:
        tensor = self.made.tensor("FLOAT32", shape)
        self.values.append((tensor, shape))
        return tensor

    def pick(self) -> tuple[int, Shape]:
        return self.values[int(self.rng.integers(max(0, len(self.values) - 6), len(self.values)))]

    def numbers(self, *values: int) -> int:
        return self.made.tensor("INT32", (len(values),), np.array(values, np.int32))

    def unary(self) -> int:
        source, shape = self.pick()
        out = self.new(shape)
        self.made.op(str(self.rng.choice(["RELU", "TANH", "LOGISTIC", "ABS"])), [source], [out])
        return out

    def binary(self) -> None:
        a, shape = self.pick()
        same = [t for t, s in self.values if s == shape]
        name, options = [("ADD", "AddOptions"), ("MUL", "MulOptions")][int(self.rng.integers(2))]
        self.made.op(name, [a, int(self.rng.choice(same))], [self.new(shape)], options)

    def concat(self) -> None:
        a, shape = self.pick()
        if len(shape) != 4 or shape[1] > 8:
            return
        same = [t for t, s in self.values if s[2:] == shape[2:] and s[0] == shape[0] and t != a]
        if same:
            b = int(self.rng.choice(same))
            rows = shape[1] + dict(self.values)[b][1]
            out = self.new((shape[0], rows, *shape[2:]))
            self.made.op("CONCATENATION", [a, b], [out], "ConcatenationOptions", axis=1)

    def split(self) -> None:
        source, shape = self.pick()
        if len(shape) == 4 and shape[1] % 2 == 0:
            half = (shape[0], shape[1] // 2, *shape[2:])
            axis = self.made.tensor("INT32", (), np.array(1, np.int32))
            self.made.op(
                "SPLIT",
                [axis, source],
                [self.new(half), self.new(half)],
                "SplitOptions",
                numSplits=2,
            )

    def slice(self) -> None:
        source, shape = self.pick()
        if len(shape) == 4 and shape[1] > 1:
            begin, end = self.numbers(0, 1, 0, 0), self.numbers(*shape)
            out = self.new((shape[0], shape[1] - 1, *shape[2:]))
            self.made.op(
                "STRIDED_SLICE",
                [source, begin, end, self.numbers(1, 1, 1, 1)],
                [out],
                "StridedSliceOptions",
            )

    def reshape(self) -> None:
        source, shape = self.pick()
        if len(shape) == 4:
            flat = (shape[0], shape[1] * shape[2], 1, shape[3])
            self.made.op(
                "RESHAPE",
                [source, self.numbers(*flat)],
                [self.new(flat)],
                "ReshapeOptions",
                newShape=list(flat),
            )

    def mean(self) -> None:
        source, shape = self.pick()
        if len(shape) == 4:
            out = self.new((shape[0], 1, 1, shape[3]))
            self.made.op(
                "MEAN", [source, self.numbers(1, 2)], [out], "ReducerOptions", keepDims=True
            )

    def pool(self) -> None:
        source, shape = self.pick()
        if len(shape) == 4 and min(shape[1:3]) >= 2:
            out = self.new((shape[0], shape[1] // 2, shape[2] // 2, shape[3]))
            self.made.op(
                "MAX_POOL_2D",
                [source],
                [out],
                "Pool2DOptions",
                padding=1,
                strideW=2,
                strideH=2,
                filterWidth=2,
                filterHeight=2,
            )


@pytest.mark.req("TFL1", "TFL3")
def test_random_models_keep_their_bits(tmp_path: Path) -> None:
    jobs, expected, hows = [], [], set()
    for seed in range(40):
        grown = Grow(seed)
        plain, planned = tmp_path / f"{seed}.tflite", tmp_path / f"{seed}-planned.tflite"
        plain.write_bytes(grown.made.bytes())
        graph = load(plain).graph
        order = "best" if seed % 2 else "file"
        plan = make_plan(graph, PlanOptions(target="tflm", order=order)).plan
        assert all(check.ok for check in verify_plan(graph, plan))
        applied = apply_plan(plain, graph, plan)
        planned.write_bytes(applied.data)
        check = judge_file(planned)
        assert check.ok, (seed, check.detail)
        hows |= {alias.how for alias in plan.aliases}
        expected.append((applied.unplanned, applied.head, plan.arena_bytes, applied.obeys))
        jobs += [Job(path, 1 << 20, 2, grown.results, (1, 2)) for path in (plain, planned)]
    outcomes = run_all(jobs)
    told = 0
    for seed, figures in enumerate(expected):
        before, after = outcomes[2 * seed : 2 * seed + 2]
        assert isinstance(before, Outcome), (seed, before)
        assert isinstance(after, Outcome), (seed, after)
        assert equal_outputs(before, after), seed
        unplanned, head, arena, obeys = figures
        assert (before.head, after.head) == (unplanned, head), seed
        assert after.head <= before.head
        assert after.head <= arena or not obeys
        told += varied(before)
    assert told > 30
    assert hows >= {"view", "inplace", "concat"}  # overlap comes with the real models
