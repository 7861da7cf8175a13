"""The backend cases that onnx carries: models with inputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""The rest, `real`, is fetched from elsewhere."""

STORED = 64
"""Elements of an input that `bare` puts into the file."""


@dataclass(frozen=True, slots=True)
class Case:
    kind: str
    name: str
    model: ModelProto
    feeds: dict[str, Any]


def cases(kinds: tuple[str, ...] = KINDS) -> Iterator[Case]:
    """Every case with its first data set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in kinds:
            yield from (_case(kind, case) for case in load_model_tests(kind=kind))


def _case(kind: str, case: TestCase) -> Case:
    if case.model is not None:
        _anywhere(case.model)
        names = [value.name for value in case.model.graph.input]
        return Case(
            kind, case.name, case.model, dict(zip(names, case.data_sets[0][0], strict=True))
        )
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    _anywhere(model)
    stored = {tensor.name for tensor in model.graph.initializer}
    asked = [value for value in model.graph.input if value.name not in stored]
    data = folder / "test_data_set_0"
    feeds = {v.name: _read(data / f"input_{at}.pb", v) for at, v in enumerate(asked)}
    return Case(kind, case.name, model, feeds)


def _anywhere(model: ModelProto) -> None:
    """Let strings be normalised by the one locale that every machine has."""
    for node in model.graph.node:
        if node.op_type == "StringNormalizer":
            kept = [item for item in node.attribute if item.name != "locale"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("locale", "C")])


def bare(case: Case) -> ModelProto:
    """The model without what it declares of its results, and with its short inputs stored.

    So that our own rules must tell every size: shapes are often decided by the values of such
    inputs, which a file does not hold.
    """
    model = ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    del graph.value_info[:]
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for value in list(graph.input):
        fed = case.feeds.get(value.name)
        tensor = fed if isinstance(fed, TensorProto) else _stored(fed)
        if tensor is not None and len(tensor.dims) <= 1 and prod(tensor.dims) <= STORED:
            graph.initializer.append(tensor)
            graph.initializer[-1].name = value.name
            if model.ir_version > 3:  # up to 3 what is stored is listed as an input, too
                graph.input.remove(value)
    return model


def _stored(fed: Any) -> TensorProto | None:
    if not isinstance(fed, np.ndarray | np.generic) or fed.dtype.kind in "OUS":
        return None
    return onnx.numpy_helper.from_array(np.asarray(fed))


def _read(path: Path, value: onnx.ValueInfoProto) -> Any:
    kind = value.type.WhichOneof("value")
    if kind == "tensor_type":
        tensor = TensorProto()
        tensor.ParseFromString(path.read_bytes())
        return tensor
    sequence = onnx.SequenceProto() if kind == "sequence_type" else onnx.OptionalProto()
    sequence.ParseFromString(path.read_bytes())
    read = onnx.numpy_helper.to_list if kind == "sequence_type" else onnx.numpy_helper.to_optional
    return read(sequence)
