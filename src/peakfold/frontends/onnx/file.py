"""A `.onnx` file -> a checked `ModelProto`, without reading weights it does not need.

Local functions are inlined, nodes of opsets below 7 are rewritten as they are met, and external
data stays on disk: its paths are checked (they may not leave the model's folder, ONNX IR
specification "External data"), its bytes are read only for small tensors whose values decide
shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from peakfold.boundary import foreign, read_file
from peakfold.errors import ModelError
from peakfold.frontends.onnx.bounds import check_functions, check_names, check_versions
from peakfold.frontends.onnx.data import Folders, check_data, value_of
from peakfold.frontends.onnx.functions import inlined
from peakfold.frontends.onnx.names import STANDARD
from peakfold.frontends.onnx.saved import nchwc_block
from peakfold.ir.check import MAX_NESTING

MAX_BYTES = 2**31 - 1
"""Of a file: protobuf's own limit. Weights beyond it are external."""

OLDEST_OPSET = 7
"""The oldest opset whose operators mean what today's schemas say."""


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A parsed model and the folders its external data may live in.

    Attributes:
        block: channels of a block, where ONNX Runtime saved the model with blocks; else 0.
        old: the opset that its nodes are written in where that is below `OLDEST_OPSET`; else 0.
    """

    model: ModelProto
    folders: Folders
    notes: tuple[str, ...] = ()
    block: int = 0
    old: int = 0

    def opset(self, domain: str = "") -> int:
        """The imported version of a domain; 1 when it is not imported."""
        versions: dict[str, int] = {e.domain: e.version for e in self.model.opset_import}
        if domain == "" and domain not in versions:
            return versions.get("ai.onnx", 1)
        return versions.get(domain, 1)

    def array(self, tensor: TensorProto) -> NDArray[np.generic]:
        """The value of a (small) tensor, read from the external file if it lies there.

        Raises:
            ModelError: the stored bytes do not fit the tensor's type and shape.
        """
        return value_of(tensor, self.folders)


def read_onnx(path: Path) -> OnnxFile:
    """Read, check and normalise a model file.

    Raises:
        UsageError: the file does not exist or cannot be read.
        ModelError: not an ONNX model, truncated, bad external data, or an unusable opset.
    """
    data = read_file(path, MAX_BYTES, "an ONNX model")
    model = ModelProto()
    hint = f"re-export or copy it again; bodies may nest {MAX_NESTING} deep"
    with foreign("not an ONNX model, or truncated", str(path), hint):
        model.ParseFromString(data)
    return normalise(model, (path.parent, path.resolve().parent), str(path))


def normalise(model: ModelProto, folders: Folders = (), where: str = "model") -> OnnxFile:
    """Check a parsed model and inline its functions.

    Raises:
        ModelError: what is wrong with the model.
    """
    graph = model.graph
    if not (graph.node or graph.output):
        raise ModelError("not an ONNX model: it holds no graph", where=where)
    if not model.ir_version:
        raise ModelError("it has no ir_version", where=where, hint="set it, or export it again")
    check_versions(model, where)
    check_names(graph, where)
    notes = [*check_data(graph, folders)]
    file = OnnxFile(model, folders)
    if model.functions:
        check_functions(model, where)
        model, left = inlined(model, where)
        check_names(model.graph, where)
        notes = [*check_data(model.graph, folders), *left]  # what the functions store, too
    old = 0
    uses_standard = any(node.domain in STANDARD for node in graph.node)
    if uses_standard and file.opset() < OLDEST_OPSET:
        old = file.opset()
        model = _lifted(model)
        notes.append(f"opset {old} was converted to {OLDEST_OPSET}, node by node")
    newest = onnx.defs.onnx_opset_version()
    if file.opset() > newest:
        notes.append(f"opset {file.opset()} is newer than onnx {onnx.__version__} ({newest})")
    block = nchwc_block(model)
    if block:
        notes.append(
            f"ONNX Runtime saved it for one processor: channels are padded to blocks of {block}, "
            "and counted so"
        )
    return OnnxFile(model, folders, tuple(notes), block, old)


def _lifted(model: ModelProto) -> ModelProto:
    """The model as one of the oldest opset that is read; its nodes follow (`onnx_old`)."""
    found = ModelProto()
    found.CopyFrom(model)
    for entry in found.opset_import:
        if entry.domain in STANDARD:
            entry.version = OLDEST_OPSET
    return found
