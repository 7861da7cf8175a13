"""The script for a CUDA machine: what of it can run without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cuda_truth.py"


def test_predictions_are_ordered_and_a_missing_device_is_said():
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import cuda_truth
    finally:
        sys.path.remove(str(SCRIPT.parent))
    from peakfold.frontends.torch_step import StepOptions

    options = StepOptions(optimizer="adamw", device="cuda")
    found = cuda_truth.predicted(cuda_truth.MODELS["mlp"], options)
    assert found["storages"] <= found["allocated"] <= found["reserved"]
    assert found["allocated"] <= found["expandable_reserved"]
    if not torch.cuda.is_available():
        done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
        assert done.returncode == 2
        assert "no CUDA device" in done.stderr
