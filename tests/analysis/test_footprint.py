"""Runs replayed: footprints, and a snapshot that PyTorch's viewer takes."""

from __future__ import annotations

import pickle

import pytest

from peakfold.analysis.cuda.footprint import cuda_footprint, snapshot
from peakfold.ir.run import Run, Storage

MIB = 1 << 20
RUN = Run(
    (
        Storage(3 * MIB, 0, None, "parameter", "before"),
        Storage(700, 1, 3, "saved", "forward", "relu", "act"),
        Storage(2 * MIB, 2, 4, "temporary", "backward", "mm", "fc"),
        Storage(0, 5, 6, "temporary", "after"),
    ),
    (("forward", 0), ("backward", 2), ("after", 5)),
    6,
)


@pytest.mark.req("R14")
def test_footprint():
    found = cuda_footprint(RUN)
    assert found.requested == 5 * MIB + 700
    assert found.allocated == 5 * MIB + 1024
    assert found.reserved == 22 * MIB
    assert not cuda_footprint(RUN, capacity=20 * MIB).fits
    assert RUN.peak == 5 * MIB + 700
    assert RUN.phase_peaks() == {
        "forward": 3 * MIB + 700,
        "backward": 5 * MIB + 700,
        "after": 3 * MIB,
    }


@pytest.mark.torch
def test_the_viewer_draws_it():
    pytest.importorskip("torch")
    from torch.cuda._memory_viz import trace_plot

    data = pickle.loads(snapshot(RUN))
    actions = [entry["action"] for entry in data["device_traces"][0]]
    assert actions == [
        "alloc",
        "alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "free_requested",
        "free_completed",
    ]
    addresses = {e["addr"] for e in data["device_traces"][0] if e["action"] == "alloc"}
    assert len(addresses) == 3
    page = trace_plot(data)
    assert "<html" in page.lower() or "<!doctype" in page.lower() or "<script" in page.lower()
