"""Time bounds against closed forms and the known answers of the lecture's devices."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakfold.analysis.time.batch_sweep import sweep, turning_batch
from peakfold.analysis.time.roofline import Work, op_time, roofline, utilisation
from peakfold.device import device_names, load_device, read_device
from peakfold.errors import UsageError

T4 = load_device("t4")
CONV = Work(
    name="conv",
    kind="conv",
    macs=231_211_008,
    other_ops=0,
    bytes_moved=2_703_360,
    fixed_bytes=294_912,
    engine="matrix",
)
DEPTHWISE = Work(
    name="dw", kind="conv", macs=1_806_336, other_ops=0, bytes_moved=1_607_936, engine="vector"
)
FC = Work(
    name="fc",
    kind="gemm",
    macs=4_096_000,
    other_ops=0,
    bytes_moved=16_404_384,
    fixed_bytes=16_384_000,
    engine="matrix",
)


def some_work(macs: st.SearchStrategy, other: st.SearchStrategy, moved: st.SearchStrategy):
    return st.builds(
        Work,
        name=st.just("op"),
        kind=st.just("op"),
        macs=macs,
        other_ops=other,
        bytes_moved=moved,
        fixed_bytes=st.integers(0, 10**8),
        engine=st.sampled_from(["matrix", "vector", "copy", "none"]),
        dtype=st.sampled_from(["float32", "float16", "bfloat16", "int8", "int4", "int64"]),
    )


COUNTS = (st.integers(0, 10**12), st.integers(0, 10**10), st.integers(0, 10**10))
whole = some_work(*COUNTS)
works = some_work(*(st.none() | count for count in COUNTS))


@pytest.mark.req("R73", "R79")
@pytest.mark.parametrize(
    ("work", "microseconds", "bound", "intensity"),
    [
        (CONV, 57.1, "compute", 171.05),
        (DEPTHWISE, 5.36, "memory", 2.247),
        (FC, 54.7, "memory", 0.499),
    ],
)
def test_known_answers_on_the_t4(
    work: Work, microseconds: float, bound: str, intensity: float
) -> None:
    found = op_time(work, T4)
    assert found.time_s is not None
    assert float(f"{found.time_s * 1e6:.3g}") == microseconds
    assert found.bound == bound
    assert work.intensity is not None
    assert work.intensity == pytest.approx(intensity, abs=0.01)


@pytest.mark.req("R73")
def test_a_vector_op_is_not_rated_at_matrix_speed() -> None:
    a100 = load_device("a100-80gb")
    softmax = Work(
        name="s",
        kind="softmax",
        macs=0,
        other_ops=10**9,
        bytes_moved=8,
        engine="vector",
        dtype="float16",
    )
    found = op_time(softmax, a100)
    assert found.compute_s == pytest.approx(1e9 / 19.5e12)
    # Nor are the additions of a convolution's bias.
    conv = Work(
        name="c",
        kind="conv",
        macs=1,
        other_ops=10**9,
        bytes_moved=8,
        engine="matrix",
        dtype="float16",
    )
    assert op_time(conv, a100).compute_s == pytest.approx(1e9 / 19.5e12)


def test_work_on_one_engine_adds_up_and_on_two_overlaps() -> None:
    a100 = load_device("a100-80gb")
    both = Work(
        name="c",
        kind="conv",
        macs=10**9,
        other_ops=10**9,
        bytes_moved=0,
        engine="matrix",
        dtype="float32",
    )
    assert op_time(both, a100).compute_s == pytest.approx(3e9 / 19.5e12)
    half = Work(
        name="c",
        kind="conv",
        macs=10**12,
        other_ops=10**9,
        bytes_moved=0,
        engine="matrix",
        dtype="float16",
    )
    assert op_time(half, a100).compute_s == pytest.approx(2e12 / 312e12)


def test_what_is_not_known_is_said() -> None:
    unknown = Work(name="u", kind="mystery", macs=None, other_ops=None, bytes_moved=None)
    only_bytes = Work(name="b", kind="mystery", macs=None, other_ops=0, bytes_moved=300)
    found = roofline([unknown, only_bytes, CONV], T4)
    assert (found.unknown, found.partial) == (1, 1)
    assert [op.time_s for op in found.ops[:2]] == [None, pytest.approx(1e-9)]
    assert roofline([unknown], T4).time_s is None
    assert roofline([], T4).time_s == 0.0
    # No peak: the bytes still are a bound. No bandwidth: the arithmetic is.
    pi, board = load_device("raspberry-pi-5"), load_device("stm32h743")
    assert op_time(CONV, pi).bound == "memory"
    assert op_time(CONV, pi).partial
    assert op_time(CONV, board).bound == "compute"
    assert op_time(CONV, board).partial
    assert op_time(CONV, load_device("esp32-s3")).time_s is None


def test_views_take_no_time_and_launches_bound_from_below() -> None:
    board = read_device(
        "[peak.vector]\nfloat32 = { gflops = 1 }\n[memory]\nbandwidth = { gb_s = 1 }\n"
        "[chip]\nlaunch = { us = 5 }",
        "b",
        "b.toml",
    )
    view = Work(name="v", kind="reshape", macs=0, other_ops=0, bytes_moved=0, engine="none")
    small = Work(name="s", kind="relu", macs=0, other_ops=4, bytes_moved=32)
    large = Work(name="l", kind="relu", macs=0, other_ops=4, bytes_moved=32_000)
    found = roofline([view, small, large], board)
    assert [op.bound for op in found.ops] == [None, "launch", "memory"]
    assert [op.time_s for op in found.ops] == pytest.approx([0.0, 5e-6, 32e-6])
    assert found.time_s == pytest.approx(37e-6)
    assert found.bound == "memory"


@given(whole, st.sampled_from(device_names()))
def test_the_bound_is_the_largest_of_its_parts(work: Work, name: str) -> None:
    found = op_time(work, load_device(name))
    parts = {"compute": found.compute_s, "memory": found.memory_s}
    if found.time_s is None:
        assert set(parts.values()) == {None}
        return
    known = [part for part in parts.values() if part is not None]
    assert found.time_s == max(known)
    assert found.partial == (len(known) < 2)
    if found.bound is not None:
        assert parts[found.bound] == found.time_s


@given(whole, st.sampled_from(device_names()), st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_work_never_takes_less_time(work: Work, name: str, macs: int, moved: int) -> None:
    device = load_device(name)
    more = Work(
        name="op",
        kind="op",
        macs=(work.macs or 0) + macs,
        other_ops=work.other_ops,
        bytes_moved=(work.bytes_moved or 0) + moved,
        engine=work.engine,
        dtype=work.dtype,
    )
    before, after = op_time(work, device), op_time(more, device)
    if before.time_s is not None and after.time_s is not None and after.partial <= before.partial:
        assert after.time_s >= before.time_s


@given(st.lists(works, max_size=8))
def test_the_total_is_the_sum_and_shares_add_up(ops: list[Work]) -> None:
    found = roofline(ops, T4)
    times = [op.time_s for op in found.ops if op.time_s is not None]
    assert found.unknown == len(ops) - len(times)
    assert math.isclose(found.time_s or 0.0, sum(times))
    assert math.isclose(sum(found.seconds.values()), sum(times), abs_tol=1e-18)


@pytest.mark.req("R77")
def test_utilisation_counts_operations_not_macs() -> None:
    # The chapter divides MACs by a peak in operations: a factor 2.
    macs, seconds = 4_089_184_256, 0.004
    used = utilisation(2 * macs, seconds, T4, engine="vector", dtype="float32")
    assert used == pytest.approx(2 * macs / seconds / 8.1e12)
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError):
            utilisation(1, wrong, T4, engine="vector", dtype="float32")
    with pytest.raises(UsageError, match="no peak"):
        utilisation(1, 1.0, load_device("esp32-s3"), engine="vector", dtype="int8")


def test_weights_are_read_once_a_batch() -> None:
    points = sweep([FC], T4, [1, 16, 256])
    assert [p.batch for p in points] == [1, 16, 256]
    assert points[0].time_s == pytest.approx(16_404_384 / 3e11)
    assert points[1].time_s == pytest.approx((16_384_000 + 16 * 20_384) / 3e11)
    assert points[2].time_s == pytest.approx(256 * 8_192_000 / 8.1e12)
    assert [p.compute_share for p in points] == [0.0, 0.0, 1.0]
    assert points[0].per_sample_s > points[1].per_sample_s > points[2].per_sample_s
    with pytest.raises(UsageError):
        sweep([FC], T4, [0])
    with pytest.raises(UsageError, match="no time"):
        sweep([FC], load_device("esp32-s3"), [1])


@given(st.lists(whole, min_size=1, max_size=6), st.integers(1, 64))
def test_the_turning_batch_is_the_first_one(ops: list[Work], most: int) -> None:
    shares = [point.compute_share for point in sweep(ops, T4, range(1, most + 1))]
    first = next((batch for batch, share in enumerate(shares, 1) if share >= 0.5), None)
    assert turning_batch(ops, T4, most) == first


def test_a_depthwise_model_never_turns() -> None:
    assert turning_batch([DEPTHWISE], T4) is None
    assert turning_batch([CONV], T4) == 1
    assert turning_batch([], T4) is None
