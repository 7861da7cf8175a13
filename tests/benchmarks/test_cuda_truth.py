"""The script for a CUDA machine: what of it can run without one."""

from __future__ import annotations

import json
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
    found = cuda_truth.predicted("mlp")
    assert found["storages"] <= found["allocated"] <= found["reserved"]
    assert found["allocated"] <= found["expandable_reserved"]
    if not torch.cuda.is_available():
        done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
        assert done.returncode == 2
        assert "no CUDA device" in done.stderr


def test_a_row_holds_both_steps_by_phase(monkeypatch):
    from tests.runtimes.torch.card import Card, Carried, without_dropout

    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import cuda_truth
    finally:
        sys.path.remove(str(SCRIPT.parent))
    card = Card()
    monkeypatch.setattr(Carried, "card", card)
    module, args, kwargs = without_dropout(cuda_truth.MODELS["mlp"]())
    monkeypatch.setitem(cuda_truth.MODELS, "mlp", lambda: (Carried(module), args, kwargs))
    with card:
        row = json.loads(json.dumps(cuda_truth.row_of("mlp", card)))
    assert row["outside_torch"] == card.outside()
    assert set(row["first"]["device"]) == {"forward", "backward", "optimizer", "after"}
    # AdamW's counts of steps are on the host for the prediction, this card holds them.
    counts = 512 * len(list(module.parameters()))
    predicted, measured = row["steady"]["predicted_scratch"], row["steady"]["allocator"]
    assert 0 <= measured - predicted <= 3 * counts
