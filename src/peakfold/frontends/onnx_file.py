"""A `.onnx` file -> a checked `ModelProto`, without reading weights it does not need.

Local functions are inlined, opsets below 7 go through onnx's version converter, and external
data stays on disk: its paths are checked (they may not leave the model's folder, ONNX IR
specification "External data"), its bytes are read only for small tensors whose values decide
shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto

from peakfold.errors import ModelError, UsageError

OLDEST_OPSET = 7
"""The oldest opset whose operators mean what today's schemas say."""


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A parsed model and the folder its external data may live in."""

    model: ModelProto
    folder: Path | None
    notes: tuple[str, ...] = ()

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
        try:
            folder = "" if self.folder is None else str(self.folder)
            return np.asarray(onnx.numpy_helper.to_array(tensor, base_dir=folder))
        except Exception as error:  # numpy_helper raises whatever numpy or the file system does
            raise ModelError(
                f"its bytes do not fit its type: {error}", where=f"tensor {tensor.name!r}"
            ) from None


def read_onnx(path: Path) -> OnnxFile:
    """Read, check and normalise a model file.

    Raises:
        UsageError: the file does not exist or cannot be read.
        ModelError: not an ONNX model, truncated, bad external data, or an unusable opset.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read it: {error.strerror or error}", where=str(path)) from None
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError):
        raise ModelError(
            "not an ONNX model, or truncated", where=str(path), hint="re-export or copy it again"
        ) from None
    return normalise(model, path.parent, str(path))


def normalise(model: ModelProto, folder: Path | None = None, where: str = "model") -> OnnxFile:
    """Check a parsed model, inline its functions and lift old opsets.

    Raises:
        ModelError: what is wrong with the model.
    """
    graph = model.graph
    if not model.ir_version or not (graph.node or graph.output):
        raise ModelError("not an ONNX model: it holds no graph", where=where)
    for entry in model.opset_import:
        if not 1 <= entry.version < 2**31:
            raise ModelError(f"opset version {entry.version} of {entry.domain!r}", where=where)
    _require_text(graph, where)
    sizes: dict[str, int] = {}
    for tensor in _tensors(graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            _check_external(tensor, folder, sizes)
    notes: list[str] = []
    file = OnnxFile(model, folder)
    if model.functions:
        model = _inlined(model, where)
    uses_standard = any(node.domain in ("", "ai.onnx") for node in graph.node)
    if uses_standard and file.opset() < OLDEST_OPSET:
        model = _lifted(model, file.opset(), where)
        notes.append(f"opset {file.opset()} was converted to {OLDEST_OPSET}")
    newest = onnx.defs.onnx_opset_version()
    if file.opset() > newest:
        notes.append(f"opset {file.opset()} is newer than onnx {onnx.__version__} ({newest})")
    return OnnxFile(model, folder, tuple(notes))


def _require_text(graph: GraphProto, where: str) -> None:
    """Refuse names that are not UTF-8, which protobuf hands out as bytes.

    Raises:
        ModelError: the first such name.
    """
    names: list[object] = [graph.name]
    for info in (*graph.input, *graph.output, *graph.value_info):
        names.append(info.name)
        names += [dim.dim_param for dim in info.type.tensor_type.shape.dim]
    names += [tensor.name for tensor in graph.initializer]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [item.name for item in node.attribute]
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"the name {name!r} is not text", where=where)
    for node in graph.node:
        for item in node.attribute:
            if item.type == AttributeProto.GRAPH:
                _require_text(item.g, where)


def _inlined(model: ModelProto, where: str) -> ModelProto:
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the C++ inliner raises plain RuntimeErrors
        raise ModelError(f"its functions cannot be inlined: {error}", where=where) from None


def _lifted(model: ModelProto, opset: int, where: str) -> ModelProto:
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # the C++ converter raises plain RuntimeErrors
        raise ModelError(
            f"opset {opset} cannot be converted to {OLDEST_OPSET}: {error}",
            where=where,
            hint="export the model again with opset 7 or newer",
        ) from None


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every stored tensor: initializers and attributes, in subgraphs too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
            if attribute.type == AttributeProto.GRAPH:
                yield from _tensors(attribute.g)
            for body in attribute.graphs:
                yield from _tensors(body)


def _check_external(tensor: TensorProto, folder: Path | None, sizes: dict[str, int]) -> None:
    """Check where a tensor's bytes lie; `sizes` remembers the files of one model."""
    where = f"tensor {tensor.name!r}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if "\0" in location:
        raise ModelError("external data location is no path", where=where)
    if not location:
        raise ModelError("external data without a location", where=where)
    if folder is None:
        raise ModelError("external data needs the model's folder", where=where)
    if location not in sizes:
        sizes[location] = _external_size(location, folder, where)
    try:
        start = int(entries.get("offset", "0"))
        length = int(entries.get("length", "0"))
    except ValueError:
        raise ModelError("external data has no integer offset and length", where=where) from None
    if start < 0 or length < 0 or start + length > sizes[location]:
        raise ModelError(f"external data {location!r} is too short", where=where)


def _external_size(location: str, folder: Path, where: str) -> int:
    """Bytes of a file of external data, which lies inside the model's folder."""
    root = folder.resolve()
    path = (root / location).resolve()
    if Path(location).is_absolute() or not path.is_relative_to(root):
        raise ModelError(f"external data {location!r} lies outside the model's folder", where=where)
    if not path.is_file():
        raise ModelError(
            f"external data {location!r} is missing", where=where, hint=f"put it into {folder}"
        )
    return path.stat().st_size
