"""A graph of ours against the sizes of a run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from peakfold.errors import PeakfoldError
from peakfold.frontends import Bindings, GivenShape, load
from peakfold.ir import Graph, Shape, element_count

from .running import Ran


@dataclass(slots=True)
class Verdict:
    """What became of one case.

    Attributes:
        equal: tensors whose shape and bytes are those that ran.
        below: tensors that ran within an upper bound of ours.
        unknown: tensors of which we say that we do not know.
        wrong: tensors of which we say something else than what ran, with both.
        refused: why the model was not read at all.
    """

    equal: int = 0
    below: int = 0
    unknown: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    refused: str = ""


_AT_MOST = re.compile(r"tensor '(.*)': at most")
"""How a graph says that a size is an upper bound."""


def read(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """Read a model as a file of a user's, with the shapes of its inputs as `--shape`.

    Raises:
        PeakfoldError: the file is refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(model.SerializeToString())
        return load(path, Bindings(shapes={n: GivenShape(d) for n, d in shapes.items()})).graph


def judge(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], ran: Mapping[str, Ran]
) -> Verdict:
    """Read the model, and compare every tensor that ran."""
    try:
        return compare(read(model, shapes), ran)
    except PeakfoldError as error:
        return Verdict(refused=error.what)


def compare(graph: Graph, ran: Mapping[str, Ran]) -> Verdict:
    """Compare the tensors that both know by name."""
    verdict = Verdict()
    known = {tensor.name: tensor for tensor in graph.tensors}
    bounded = set(_AT_MOST.findall("\n".join(graph.doubts)))
    for name, size in ran.items():
        if name not in known:
            verdict.wrong.append(f"{name}: not in the graph, {size.dims} ran")
            continue
        tensor = known[name]
        if tensor.shape is None or element_count(tensor.shape) is None:
            verdict.unknown.append(name)
        elif name in bounded and _within(size.dims, tensor.shape):
            verdict.below += 1
        elif tensor.shape != size.dims:
            verdict.wrong.append(
                f"{name}: {tensor.dtype}{list(tensor.shape)}, {list(size.dims)} ran"
            )
        elif size.nbytes is not None and tensor.nbytes != size.nbytes:
            verdict.wrong.append(f"{name}: {tensor.nbytes} bytes, {size.nbytes} ran")
        else:
            verdict.equal += 1
    return verdict


def _within(ran: tuple[int, ...], bound: Shape) -> bool:
    return len(ran) == len(bound) and all(
        isinstance(most, int) and size <= most for size, most in zip(ran, bound, strict=True)
    )
