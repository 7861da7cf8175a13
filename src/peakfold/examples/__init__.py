"""Models to try peakfold on, of real sizes, written out in plain torch: no other package, no file.

    peakfold plan peakfold.examples:bert --train --device t4
    peakfold inspect peakfold.examples:resnet50

Each is a function that returns an `Example`: a module in training mode with inputs, and names for
`--dim`. Called on torch's `meta` device, as the command line does, they cost no memory.
"""

from __future__ import annotations

from peakfold.errors import BackendMissing

try:
    import torch  # noqa: F401 - said here, once, if it is missing
except ImportError:
    raise BackendMissing(
        "the examples need PyTorch", hint='pip install "peakfold[torch]"'
    ) from None

from peakfold.examples.images import mlp, resnet50, unet
from peakfold.examples.texts import bert, gpt2, moe

__all__ = ["bert", "gpt2", "mlp", "moe", "resnet50", "unet"]
