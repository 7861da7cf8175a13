"""On a CUDA machine: six training steps predicted, then run, by the allocator's own statistics.

    python benchmarks/cuda_truth.py [--json FILE]

The same measuring as ``peakfold measure module:callable --runtime torch --train --device cuda``,
for six models in a few minutes. Every figure that peakfold marks as not verified on a GPU
(allocated and reserved bytes by phase, what the context takes) stands in the JSON beside what
this device measured. Without CUDA it says so and ends with 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.frontends.torch.training_models import MODELS

from peakfold.errors import BackendMissing
from peakfold.frontends.torch.training.step import StepOptions, fake_steps
from peakfold.runtimes.torch import fit
from peakfold.runtimes.torch.cuda import Allocator, CudaAllocator, measure_on_device

NAMES = ("mlp", "resnet", "mobilenet", "unet", "bert", "gpt2")
OPTIONS = StepOptions(optimizer="adamw", loss="cross-entropy", device="cuda", attention="fused")


def row_of(name: str, allocator: Allocator) -> dict[str, Any]:
    """One model: both steps, predicted and measured, by phase."""
    module, args, kwargs = MODELS[name]()
    found = measure_on_device(module.train(), args, kwargs, OPTIONS, allocator)
    growing = fit.footprints(fit.on_device(found.predicted, OPTIONS), expandable=True)
    return {
        "model": name,
        "first": asdict(found.first),
        "steady": asdict(found.steady),
        "predicted_expandable_reserved": [f.reserved for f in growing],
        "predicted_context": OPTIONS.rules.context_bytes,
        "outside_torch": found.outside,
    }


def predicted(name: str) -> dict[str, int]:
    """What the replayed allocator gives for a steady step; needs no device."""
    module, args, kwargs = MODELS[name]()
    steps = fit.on_device(fake_steps(module.train(), args, kwargs, OPTIONS), OPTIONS)
    plain, growing = fit.footprints(steps)[1], fit.footprints(steps, expandable=True)[1]
    return {
        "storages": steps.steady.peak,
        "allocated": plain.allocated,
        "reserved": plain.reserved,
        "expandable_reserved": growing.reserved,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("cuda_truth.json"))
    given = parser.parse_args()
    try:
        allocator = CudaAllocator()
    except BackendMissing as error:
        print(f"no CUDA device: {error}", file=sys.stderr)
        return 2
    rows = []
    for name in NAMES:
        rows.append(row_of(name, allocator))
        steady = rows[-1]["steady"]
        print(
            name,
            "steady: predicted",
            steady["predicted_scratch"],
            "allocated",
            steady["allocator"],
            flush=True,
        )
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    given.json.write_text(json.dumps({**about, "steps": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
