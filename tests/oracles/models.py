"""The shared models as they are, and as ONNX Runtime saves them at each level."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from .contrib import Array
from .running import session

LEVELS = ("as it is", "basic", "extended", "all")

_SIZES = {
    "unk__749": 2,
    "N": 2,
    "M1": 37,
    "M2": 29,
    "p2o.DynamicDimension.0": 2,
    "p2o.DynamicDimension.1": 64,
    "p2o.DynamicDimension.2": 96,
    "batch": 2,
    "sequence": 576,
}
"""For the dimensions that files leave open: a batch of two, height unlike width."""


@dataclass(frozen=True, slots=True)
class Form:
    """A model file as ONNX Runtime makes it at a level; 0 is the file itself."""

    path: Path
    level: int

    @property
    def name(self) -> str:
        """Of the case."""
        return f"{self.path.stem}, {LEVELS[self.level]}"

    def model(self) -> ModelProto:
        """The model.

        Raises:
            NotRun: ONNX Runtime does not load the file.
        """
        if not self.level:
            return onnx.load(self.path)
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / "saved.onnx"
            session(str(self.path), self.level, str(saved))
            return onnx.load(saved)


def forms(folder: Path) -> Iterator[Form]:
    """Every model of a folder at every level."""
    for path in sorted(folder.glob("*.onnx")):
        yield from (Form(path, level) for level in range(len(LEVELS)))


def feeds(model: ModelProto) -> dict[str, Array]:
    """Inputs of a model, random and the same in every run; open dimensions by `_SIZES`."""
    stored = {tensor.name for tensor in model.graph.initializer}
    made = {}
    for value in model.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        dims = [dim.dim_value or _SIZES[dim.dim_param] for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "i":  # a sampling rate
            made[value.name] = np.full(dims, 16_000, dtype)
        else:
            made[value.name] = np.random.default_rng(0).random(dims).astype(dtype)
    return made
