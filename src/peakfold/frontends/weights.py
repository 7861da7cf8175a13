"""The values of stored weights, read one at a time and only when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peakfold.errors import UsageError

Values = Callable[[str], NDArray[np.generic] | None]
"""From a tensor's name in the graph to its stored elements; `None` where there are none."""


def open_weights(path: str | Path) -> Values:
    """A reader of a model file's weights.

    Args:
        path: a ``.onnx`` or ``.tflite`` file.

    Raises:
        UsageError: another kind of model, which holds no weights peakfold reads.
        ModelError: the file is broken.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        return _onnx(path)
    if path.suffix == ".tflite":
        return _tflite(path)
    raise UsageError(
        "its weights cannot be read", where=str(path), hint="known: .onnx and .tflite files"
    )


def _onnx(path: Path) -> Values:
    from peakfold.frontends.onnx.file import read_onnx
    from peakfold.frontends.onnx.names import STANDARD
    from peakfold.frontends.onnx.nodes import constant_tensor

    file = read_onnx(path)
    graph = file.model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in STANDARD and node.output:
            stored[node.output[0]] = constant_tensor(node)

    def values(name: str) -> NDArray[np.generic] | None:
        tensor = stored.get(name)
        return None if tensor is None else file.array(tensor)

    return values


def _tflite(path: Path) -> Values:
    from peakfold.frontends.tflite.file import read_tflite
    from peakfold.frontends.tflite.names import names_of_model

    file = read_tflite(path)
    at = names_of_model(file).tensor_at

    def values(name: str) -> NDArray[np.generic] | None:
        if name not in at:
            return None
        subgraph, index = at[name]
        tensor = file.subgraphs[subgraph].tensors[index]
        numpy_name = _NUMPY.get(tensor.dtype.name)
        data = file.stored(tensor)
        if numpy_name is None or tensor.index_bytes is not None or tensor.external:
            return None
        if len(data) != tensor.dtype.nbytes(prod(tensor.shape)):
            return None
        return np.frombuffer(data, dtype=numpy_name).reshape(tensor.shape)

    return values


# Unsigned weights have a zero point that the graph does not state.
_NUMPY = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "int8": "i1", "int16": "<i2"}
