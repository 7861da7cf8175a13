"""Bands of rows in the file: the interpreter computes the same bits in the planned arena."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from peakfold.errors import InvalidPlan, UsageError
from peakfold.frontends import load
from peakfold.judges.plan import verify_plan
from peakfold.planning import PlanOptions, make_plan
from peakfold.planning.context import prepare
from peakfold.planning.fit.patch_search import total_macs
from peakfold.runtimes.tflite.apply_plan import Applied, after_recipe, apply_plan
from peakfold.runtimes.tflite.arena import predict_arena
from peakfold.runtimes.tflite.file_judge import judge_file
from peakfold.runtimes.tflite.interpreter import Job, Outcome, equal_outputs, run_all, varied
from peakfold.runtimes.tflite.measure import measure_tflm
from peakfold.runtimes.tflite.schema import operator_name, pack_model, parse_model
from peakfold.runtimes.tflite.scratch import known_scratch
from peakfold.transform import Split, replay
from tests.runtimes.tflite.build import Build
from tests.runtimes.tflite.models import FOLDED, path_of

PERSON = "models/tflite/person_detect"
REAL = {
    PERSON: ("MobilenetV1/MobilenetV1/Conv2d_4_depthwise/Relu6", 8, 28_800),
    "data/mlperf_tiny/pretrainedResnet": ("model/activation_2/Relu;model/add/add", 3, 131_072),
    "models/tflite/face_detection_short_range": ("add_2__xeno_compat__1", 5, 596_000),
}
"""Where to split, into how many bands, and what the arena must not exceed."""


def applied(
    path: Path, split: Split, *, fold_weights: bool = False, limit: float = 1.0
) -> tuple[Applied, int]:
    loaded = load(path)
    options = PlanOptions(target="tflm", split=split, fold_weights=fold_weights, time_limit=limit)
    plan = make_plan(loaded.graph, options).plan
    assert all(check.ok for check in verify_plan(loaded.graph, plan))
    return apply_plan(path, loaded.graph, plan), plan.arena_bytes


@cache
def real(name: str) -> tuple[Applied, int]:
    upto, patches, _ = REAL[name]
    # Long enough for its bound on a busy machine, too; a plan that is proven ends before.
    return applied(path_of(name), Split(upto, patches), fold_weights=name in FOLDED, limit=5.0)


@pytest.mark.shared
@pytest.mark.req("TFL5", "TFL6")
@pytest.mark.parametrize("name", REAL, ids=lambda name: Path(name).name)
def test_real_networks_run_in_bands(name: str, tmp_path: Path) -> None:
    made, arena = real(name)
    path = tmp_path / "bands.tflite"
    path.write_bytes(made.data)
    check = judge_file(path)
    assert check.ok, check.detail
    found = measure_tflm(made, name, runs=3)
    assert found.after == arena == made.head <= REAL[name][2] < found.before == made.unplanned
    assert found.outputs_equal
    assert found.tensors_equal  # every result that both files have
    assert found.tensors
    model = parse_model(made.data)
    predicted = predict_arena(model, known_scratch(model))
    assert predicted.total == found.after_total
    assert predicted.unknown == ()


@pytest.mark.shared
def test_nothing_but_rows_differs() -> None:
    """Weights are shared, bands keep the options, and the rest of the file is as it was."""
    made, _ = real(PERSON)
    before, after = parse_model(made.plain), parse_model(made.data)
    tensors = before.subgraphs[0].tensors, after.subgraphs[0].tensors
    for old, new in zip(*tensors, strict=False):
        if before.buffers[old.buffer].data is not None:
            assert (old.buffer, old.name) == (new.buffer, new.name)
    added = [t for t in tensors[1][len(tensors[0]) :] if after.buffers[t.buffer].data is not None]
    assert {t.name.decode().partition(":")[0] for t in added} == {"bands"}
    assert all(len(after.buffers[t.buffer].data) == 16 for t in added)  # four numbers of int32
    names = [operator_name(after, op) for op in after.subgraphs[0].operators]
    assert names.count("CONCATENATION") == 1
    assert names.index("CONCATENATION") > names.index("SLICE")
    assert names[-6:] == [operator_name(before, o) for o in before.subgraphs[0].operators[-6:]]
    loaded = load(path_of(PERSON)).graph
    upto, patches, _ = REAL[PERSON]
    work = replay(loaded, ["fold", f"split {patches} {upto}"])
    assert len(names) == len(work.ops)


@pytest.mark.shared
def test_work_of_bands_is_that_of_the_file(tmp_path: Path) -> None:
    """The halo's multiply-accumulates are counted from the written file, too."""
    made, _ = real(PERSON)
    path = tmp_path / "bands.tflite"
    path.write_bytes(made.data)
    upto, patches, _ = REAL[PERSON]
    options = PlanOptions(target="tflm", split=Split(upto, patches))
    graph = load(path_of(PERSON)).graph
    planned = total_macs(prepare(graph, options, lambda *_: None).graph)
    assert total_macs(load(path).graph) == planned
    assert planned > (total_macs(graph) or 0)


class Net:
    """A network of local operators behind what converters put first, made operator by operator."""

    def __init__(self, kind: str, rows: int, seed: int, *, layout: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.made = Build()
        self.kind = kind
        self.scale = 0.05 if kind == "INT8" else None
        self.shape = (rows, 9, 3)
        self.first = self.last = self.tensor((1, 3, rows, 9) if layout else (1, *self.shape))
        if layout:
            perm = self.made.tensor("INT32", (4,), np.array([0, 2, 3, 1], np.int32))
            self.put("TRANSPOSE", [perm], self.shape, "TransposeOptions")
        self.start = self.last

    def tensor(self, shape: tuple[int, ...], data: object = None) -> int:
        return self.made.tensor(self.kind, shape, data, scale=self.scale)

    def put(
        self, name: str, others: list[int], shape: tuple[int, ...], options: str, **fields: int
    ) -> None:
        out = self.tensor((1, *shape))
        self.made.op(name, [self.last, *others], [out], options, **fields)
        self.last, self.shape = out, shape

    def weights(self, shape: tuple[int, ...]) -> int:
        if self.kind == "INT8":
            return self.tensor(shape, self.rng.integers(-90, 90, shape).astype(np.int8))
        return self.tensor(shape, self.rng.standard_normal(shape).astype(np.float32))

    def bias(self, count: int) -> int:
        values = 100 * self.rng.standard_normal(count)
        if self.kind == "INT8":
            return self.made.tensor("INT32", (count,), values.astype(np.int32), scale=0.0025)
        return self.made.tensor("FLOAT32", (count,), values.astype(np.float32) / 100)

    def size(self, taps: int, stride: int, valid: int) -> tuple[int, int]:
        rows, columns = (
            -(-(n - taps + 1) // stride) if valid else -(-n // stride) for n in self.shape[:2]
        )
        return rows, columns

    def window(self, name: str, taps: int, stride: int, valid: int, channels: int = 0) -> None:
        """A convolution or a pool; left out where the image is too small."""
        size, depth = self.size(taps, stride, valid), self.shape[2]
        if min(size) < 1:
            return
        fields = {"padding": valid, "strideH": stride, "strideW": stride}
        spread = {"dilationHFactor": 1, "dilationWFactor": 1}
        if name == "CONV_2D":
            operands = [self.weights((channels, taps, taps, depth)), self.bias(channels)]
            self.put(name, operands, (*size, channels), "Conv2DOptions", **fields, **spread)
        elif name == "DEPTHWISE_CONV_2D":
            operands = [self.weights((1, taps, taps, depth)), self.bias(depth)]
            self.put(
                name,
                operands,
                (*size, depth),
                "DepthwiseConv2DOptions",
                **fields,
                **spread,
                depthMultiplier=1,
            )
        else:
            self.put(
                name,
                [],
                (*size, depth),
                "Pool2DOptions",
                **fields,
                filterHeight=taps,
                filterWidth=taps,
            )

    def pad(self) -> None:
        rows, columns, depth = self.shape
        pads = self.made.tensor("INT32", (4, 2), np.array([0, 0, 1, 2, 2, 1, 0, 0], np.int32))
        self.put("PAD", [pads], (rows + 3, columns + 3, depth), "PadOptions")

    def add(self) -> None:
        self.put("ADD", [self.last], self.shape, "AddOptions")

    def bytes(self, path: Path) -> None:
        path.write_bytes(self.made.ends([self.first], [self.last]).bytes())


@pytest.mark.parametrize("kind", ["FLOAT32", "INT8"])
@pytest.mark.parametrize(("padded", "layout"), [(False, False), (True, False), (True, True)])
def test_small_networks_obey_plans_of_bands(
    kind: str, padded: bool, layout: bool, tmp_path: Path
) -> None:
    net = Net(kind, 24, 7, layout=layout)
    if padded:
        net.pad()
    net.window("CONV_2D", 3, 1, int(padded), 16)
    net.window("MAX_POOL_2D", 3, 2, 1)
    path, plain, written = (tmp_path / name for name in ("a.tflite", "b.tflite", "c.tflite"))
    net.bytes(path)
    made, arena = applied(path, Split(f"t{net.last}", 3))
    assert made.obeys
    plain.write_bytes(made.plain)
    written.write_bytes(made.data)
    assert judge_file(written).ok
    seeds = (1, 2, 3)
    before, after = run_all([Job(one, 1 << 20, 1, 1, seeds) for one in (plain, written)])
    assert isinstance(before, Outcome), before
    assert isinstance(after, Outcome), after
    assert after.head == arena < before.head
    assert equal_outputs(before, after)
    assert varied(before)


def test_random_networks_compute_the_same_in_bands(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    jobs = []
    for number in range(24):
        net = Net(
            "INT8" if number % 2 else "FLOAT32",
            int(rng.integers(9, 24)),
            number,
            layout=bool(rng.integers(2)),
        )
        for _ in range(int(rng.integers(1, 5))):
            name = str(rng.choice(["CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "ADD", "PAD"]))
            if name in ("ADD", "PAD"):
                (net.add if name == "ADD" else net.pad)()
            else:
                taps, stride = int(rng.choice([1, 2, 3, 5])), int(rng.choice([1, 1, 2, 3]))
                net.window(name, taps, stride, int(rng.integers(2)), int(rng.integers(1, 5)))
        path = tmp_path / f"{number}.tflite"
        net.bytes(path)
        graph = load(path).graph
        try:
            split = after_recipe(path, graph, [f"split {rng.integers(2, 6)} t{net.last}"])
        except UsageError:
            continue  # no window, fewer rows than bands, a band of nothing but padding
        written = tmp_path / f"{number}.bands.tflite"
        written.write_bytes(pack_model(split))
        jobs += [Job(one, 1 << 20, 1, 1, (1, 2)) for one in (path, written)]
    outcomes = run_all(jobs)
    assert len(jobs) >= 20
    for before, after in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert isinstance(before, Outcome), before
        assert isinstance(after, Outcome), after
        assert equal_outputs(before, after)


@pytest.mark.shared
def test_more_bands_than_the_interpreter_joins_are_refused() -> None:
    upto = REAL[PERSON][0]
    with pytest.raises(InvalidPlan, match="at most 10"):
        applied(path_of(PERSON), Split(upto, 11))
