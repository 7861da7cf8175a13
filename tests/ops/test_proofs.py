"""Rows are proven, not trusted: every claim of in place, view or part is tried on real data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from peakfold.ir.graph import ViewFact
from peakfold.ops import KINDS, lookup
from peakfold.ops.grad import GRADS, grad_kind

from .instances import every_instance, floats, make
from .proofs import (
    Instance,
    claimed_inplace,
    disproof_of_inplace,
    disproof_of_ranges,
    instance_of_case,
    missed_view,
)

pytestmark = [
    pytest.mark.req("R22", "R46"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Proven:
    """What the instances proved, and what they disproved."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.inplace: set[tuple[str, int]] = set()
        self.ranges: set[tuple[str, str]] = set()
        self.tried = 0

    def add(self, instance: Instance) -> None:
        results = instance.run(instance.feeds)
        ctx = instance.context(results)
        spec = lookup(ctx.op.kind)
        self.tried += 1
        for at in claimed_inplace(spec, ctx):
            wrong, sensitive = disproof_of_inplace(instance, at)
            if wrong:
                self.wrong.append(wrong)
            elif sensitive:
                self.inplace.add((spec.kind, at))
        wrong_ranges, made = disproof_of_ranges(spec, instance)
        self.wrong += wrong_ranges
        self.ranges |= {(spec.kind, what) for what in made}


@pytest.fixture(scope="module")
def generated() -> list[Instance]:
    return every_instance()


@pytest.fixture(scope="module")
def proven(generated) -> Proven:
    found = Proven()
    for instance in generated:
        found.add(instance)
    return found


def test_no_generated_instance_contradicts_a_row(proven):
    assert proven.tried > 1000
    assert not proven.wrong, "\n".join(proven.wrong[:20])


def test_every_claim_of_every_row_is_proven_by_a_generated_instance(proven):
    # Rows of backward ops are proven by formulas of their own, in test_grad.py.
    backward = {grad_kind(kind) for kind in GRADS} | {"softmax_output_grad"}
    assert not unproven([lookup(kind) for kind in KINDS if kind not in backward], proven)


# True of each, and left out on purpose: slopes are parameters, a condition is a byte wide, and
# an optimizer with a weight decay needs the old parameter for its other outputs.
UNCLAIMED = {("adam", 2), ("adagrad", 2), ("prelu", 1), ("qlinear_where", 0)}


def test_no_operand_that_could_be_overwritten_is_missed(generated):
    """The other direction: what no instance disproves must be claimed or listed above."""
    possible, disproved = set(), set()
    for instance in generated:
        ctx = instance.context(instance.run(instance.feeds))
        spec, everything = lookup(ctx.op.kind), replace(lookup(ctx.op.kind), inplace=(-1,))
        # Scalars and vectors would make a scale or a bias look like a full operand.
        if spec.views is not None or len(ctx.out_shape()) < 2:
            continue
        for at in claimed_inplace(everything, ctx):
            wrong, sensitive = disproof_of_inplace(instance, at)
            if wrong:
                disproved.add((spec.kind, at))
            elif sensitive and at not in spec.inplace_inputs(ctx):
                possible.add((spec.kind, at))
    assert possible - disproved == UNCLAIMED


def test_parts_are_claimed_exactly_where_bytes_agree(generated):
    tried = 0
    for instance in generated:
        joins = instance.node.op_type == "pack" or instance.truth is None
        if instance.node.op_type not in ("Concat", "pack") or not joins:
            continue
        row = lookup(instance.node.op_type.lower())
        if instance.feeds["i0"].dtype == np.bool_:
            continue  # two values only: bytes agree by chance
        results = instance.run(instance.feeds)
        claimed = {f.input: f.offset for f in row.parts(instance.context(results))}
        whole, expected, start = results["o0"].tobytes(), {}, 0
        for at, name in enumerate(instance.node.input):
            piece = instance.feeds[name].tobytes()
            if piece and whole[start : start + len(piece)] == piece:
                expected[at] = start
            start += len(piece)
        names = instance.node.input
        complete = len(expected) == sum(instance.feeds[name].size > 0 for name in names)
        assert claimed == (expected if complete else {}), instance.label
        tried += len(claimed)
    assert tried > 25


def unproven(rows, proven):
    """Claims that no instance exercised: a row must not be taken at its word."""
    missing = []
    for spec in rows:
        positions = (0, 1) if spec.inplace == (-1,) else spec.inplace
        positions += (0,) if spec.inplace_if is not None else ()
        missing += [(spec.kind, at) for at in positions if (spec.kind, at) not in proven.inplace]
        for what in ("views", "parts"):
            if getattr(spec, what) is not None and (spec.kind, what) not in proven.ranges:
                missing.append((spec.kind, what))
    return missing


def test_a_claim_without_an_instance_is_noticed(proven):
    new = replace(lookup("concat"), kind="brand_new", inplace=(1,))
    assert unproven([new], proven) == [
        ("brand_new", 1),
        ("brand_new", "views"),
        ("brand_new", "parts"),
    ]
    more = replace(lookup("clip"), inplace=(0, 2))
    assert unproven([more], proven) == [("clip", 2)]


def test_no_contiguous_piece_is_missed(generated):
    movers = {
        "Slice",
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Expand",
        "Tile",
        "strided_slice",
        "tfl_slice",
        "stablehlo_slice",
        "stablehlo_transpose",
    }
    missed = [
        instance.label
        for instance in generated
        if instance.node.op_type in movers
        and instance.feeds["i0"].dtype == np.float32
        and missed_view(instance, lookup(instance.node.op_type.lower()))
    ]
    assert not missed


def test_no_backend_case_contradicts_a_row(cases):
    cases = [case for case in cases if len(case.model.graph.node) == 1]
    found, unusable = Proven(), 0
    for case in cases:
        for instance in instance_of_case(case):
            if not all(isinstance(v, np.ndarray) for v in instance.feeds.values()):
                unusable += 1  # sequences and optionals: opaque, nothing is claimed of them
                continue
            if "training" in case.name or "random" in case.name or "bernoulli" in case.name:
                unusable += 1  # two runs differ
                continue
            try:
                instance.run(instance.feeds)
            except Exception:  # a kernel the reference evaluator lacks
                unusable += 1
                continue
            found.add(instance)
    print(f"{found.tried} cases, {len(found.inplace)} in-place claims, {unusable} not usable")
    assert not found.wrong, "\n".join(found.wrong[:20])
    assert found.tried > 1300


SQUARE = floats((3, 3))
WRONG_INPLACE = [
    make("Softmax", SQUARE),
    make("CumSum", SQUARE, np.array(0)),
    make("MatMul", SQUARE, floats((3, 3), 1)),
    make("LayerNormalization", SQUARE, floats((3,), 1)),
    make("Transpose", SQUARE),
    make("ReverseSequence", SQUARE, np.array([2, 3, 1], np.int64)),
    make(
        "BatchNormalization",
        SQUARE,
        *[floats((3,), n) for n in range(4)],
        opset=15,
        training_mode=1,
        outputs=3,
    ),
]


@pytest.mark.parametrize("instance", WRONG_INPLACE, ids=lambda i: i.node.op_type)
def test_a_wrong_inplace_claim_is_caught(instance):
    ctx = instance.context(instance.run(instance.feeds))
    assert lookup(ctx.op.kind).inplace_inputs(ctx) == ()
    wrong_row = replace(lookup(ctx.op.kind), inplace=(0,), inplace_if=None)
    assert claimed_inplace(wrong_row, ctx) == [0]
    assert disproof_of_inplace(instance, 0)[0]


def test_a_claim_that_spoils_another_output_is_caught():
    rate, step = np.array(0.1, np.float32), np.array(3, np.int64)
    weights = [floats((2, 3), seed) for seed in range(3)]
    more = {"alpha": 0.9, "beta": 0.1, "mode": "standard", "norm_coefficient": 0.5}
    momentum = make(
        "Momentum", rate, step, *weights, domain="ai.onnx.preview.training", outputs=2, **more
    )
    assert "reaches output o1" in disproof_of_inplace(momentum, 2)[0]


@pytest.mark.parametrize(
    ("instance", "fact", "what"),
    [
        (make("Transpose", floats((2, 3))), ViewFact(0, 0, 0), "views"),
        (make("Slice", floats((4, 3)), np.array([1]), np.array([3])), ViewFact(0, 0, 0), "views"),
        (make("Concat", floats((2,)), floats((2,), 1), axis=0), ViewFact(0, 1, 4), "parts"),
        (make("Concat", floats((2, 1)), floats((2, 1), 1), axis=1), ViewFact(0, 1, 8), "parts"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_wrong_range_is_caught(instance, fact, what):
    ctx = instance.context(instance.run(instance.feeds))
    wrong_row = replace(lookup(ctx.op.kind), **{what: lambda _ctx: (fact,)})
    wrong, made = disproof_of_ranges(wrong_row, instance)
    assert made == {what} or what in made
    assert wrong
