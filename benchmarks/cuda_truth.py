"""On a CUDA machine: six training steps predicted, then run, by the allocator's own statistics.

    python benchmarks/cuda_truth.py [--json FILE]

Takes a few minutes. Every figure that peakfold marks as not verified on a GPU (allocated and
reserved bytes, what the context takes) stands in the JSON beside what this device measured.
Without CUDA it says so and ends with 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.frontends.training_models import MODELS

from peakfold.analysis.footprint import cuda_footprint
from peakfold.frontends.torch_phases import Nobody
from peakfold.frontends.torch_step import StepOptions, fake_steps, one_step

NAMES = ("mlp", "resnet", "mobilenet", "unet", "bert", "gpt2")


def predicted(make: Callable[[], Any], options: StepOptions) -> dict[str, int]:
    """What the replayed allocator gives for a steady step."""
    module, args, kwargs = make()
    run = fake_steps(module.train(), args, kwargs, options).steady
    plain, growing = cuda_footprint(run), cuda_footprint(run, expandable=True)
    return {"storages": run.peak, "allocated": plain.allocated, "reserved": plain.reserved,
            "expandable_reserved": growing.reserved}  # fmt: skip


def measured(make: Callable[[], Any], options: StepOptions) -> dict[str, int]:
    """The same on the device: the second step's statistics."""
    module, args, kwargs = make()
    module = module.cuda().train()
    args = tuple(a.cuda() for a in args)
    kwargs = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    optimizer = options.make(module.parameters())
    one_step(module, (args, kwargs), options, optimizer, Nobody())
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    one_step(module, (args, kwargs), options, optimizer, Nobody())
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "outside_torch": total - free - torch.cuda.memory_reserved(),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("cuda_truth.json"))
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing can be verified here", file=sys.stderr)
        return 2
    options = StepOptions(optimizer="adamw", device="cuda")
    rows = []
    for name in NAMES:
        row = {"model": name, "predicted": predicted(MODELS[name], options),
               "measured": measured(MODELS[name], options)}  # fmt: skip
        rows.append(row)
        print(row, flush=True)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    given.json.write_text(json.dumps({**about, "steps": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
