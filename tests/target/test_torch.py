"""The facts of PyTorch's targets: each has a source, and each is what decides."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from peakfold.analysis.cuda.caching_allocator import CachingAllocator
from peakfold.analysis.cuda.footprint import cuda_footprint, phase_footprints, with_libraries
from peakfold.ir.run import Run, Storage
from peakfold.target import load_eager, load_target

MIB = 1 << 20


@pytest.mark.req("R14")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_fact_has_a_source(device):
    target = load_target(f"torch-{device}")
    assert target.eager == load_eager(device)
    assert target.eager.device == device
    stated = {name for name, value in asdict(target.eager).items() if value not in (0, None)}
    assert stated | {"align"} <= set(target.sources) | {"device"}


def test_a_cpu_has_no_caching_allocator():
    assert load_eager("cpu").caching is None
    assert load_eager("cpu").product_workspace_bytes == 0


def test_the_allocator_goes_by_the_sizes_it_is_given():
    sizes = load_eager("cuda").caching
    plain, coarse = CachingAllocator(), CachingAllocator(sizes=replace(sizes, round=4096))
    for allocator in (plain, coarse):
        allocator.allocate(0, 513)
    assert (plain.allocated, coarse.allocated) == (1024, 4096)
    large = CachingAllocator(sizes=replace(sizes, large_segment=8 * MIB))
    large.allocate(0, 2 * MIB)
    assert large.reserved == 8 * MIB


RUN = Run(
    (
        Storage(MIB, 0, None, "parameter", "before"),
        Storage(700, 1, 4, "saved", "forward", "addmm"),
        Storage(600, 2, 5, "saved", "forward", "relu"),
        Storage(MIB, 3, 6, "temporary", "backward", "mm"),
    ),
    (("forward", 0), ("backward", 2), ("optimizer", 6)),
    6,
)


@pytest.mark.req("R14")
def test_each_thread_that_multiplies_keeps_a_workspace():
    kept = load_eager("cuda")
    one = kept.product_workspace_bytes
    first, steady = (with_libraries(RUN, kept, first=first) for first in (True, False))
    assert steady.static_bytes == RUN.static_bytes + 2 * one
    assert first.static_bytes == RUN.static_bytes
    peaks = [cuda_footprint(run).allocated for run in (RUN, first, steady)]
    assert peaks[1] == peaks[2] == peaks[0] + 2 * one
    phases = phase_footprints(first)
    assert phases["forward"].allocated == MIB + 1024 + 1024 + one
    assert phases["backward"].allocated == peaks[1]
    assert phases["optimizer"].allocated == MIB + 2 * one
    forward = replace(RUN, storages=RUN.storages[:3])
    assert with_libraries(forward, kept, first=False).static_bytes == MIB + one
    assert with_libraries(RUN, load_eager("cpu"), first=True) is RUN


def test_phases_are_parts_of_the_whole():
    phases, whole = phase_footprints(RUN), cuda_footprint(RUN)
    assert list(phases) == ["forward", "backward", "optimizer"]
    assert max(p.allocated for p in phases.values()) == whole.allocated
    assert max(p.reserved for p in phases.values()) == whole.reserved
