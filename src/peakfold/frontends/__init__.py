"""Model files -> graphs. Each front end is imported only when a file of its kind is read."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from peakfold.boundary import first_line, is_pointer, route, strict, trusted, trusting
from peakfold.errors import ModelError, PeakfoldError, UsageError
from peakfold.ir import Graph, check_graph
from peakfold.ir.bindings import Bindings, GivenShape
from peakfold.ops.doubts import doubts

FORMATS = (".onnx", ".tflite", ".pf", ".pt2")
_TORCH = "a PyTorch file holds weights or code: name package.module:callable, or export a .pt2"
_KERAS = "convert it with tf.lite.TFLiteConverter to .tflite, or with tf2onnx to .onnx"
_MADE_FROM = {
    ".ort": "made from an .onnx model, which is read; ONNX Runtime saves one when "
    "optimized_model_filepath ends in .onnx",
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".gguf": "it holds weights without a graph: export the network with torch.onnx or torch.export",
    ".onnxtxt": "onnx.parser.parse_model reads it, onnx.save writes an .onnx",
    ".keras": _KERAS,
    ".h5": _KERAS,
    ".mlmodel": "export the network it was made from to .onnx or .pt2",
}
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A graph and the numbers that were put into it.

    Attributes:
        graph: checked; its size may still hold symbols nobody bound.
        bindings: what a plan must record to load the same graph again.
        path: the file.
    """

    graph: Graph
    bindings: Bindings
    path: str


def load(path: str | Path, bindings: Bindings | None = None, *, trust: bool = False) -> Loaded:
    """Read a model file. No code of it is run, but for ``package.module:callable``.

    Args:
        path: a ``.onnx``, ``.tflite``, ``.pf`` or ``.pt2`` file, or ``package.module:callable``.
        bindings: numbers for symbolic dimensions and unknown shapes.
        trust: let PyTorch's own loader read a ``.pt2`` file, which runs code of the file.

    Raises:
        UsageError: no such file, an unknown format, or bindings that name nothing.
        ModelError: the file is broken, with the op or tensor at fault; or something of it is
            doubtful inside `boundary.being_strict`.
    """
    bindings = bindings or Bindings()
    if _CALLABLE.fullmatch(str(path)):
        from peakfold.frontends.torch.load import load_callable

        graph, bindings = load_callable(str(path), bindings)
        check_graph(graph)
        return _certain(Loaded(graph, bindings, str(path)))
    path = Path(path)
    if route():
        raise UsageError("--route is for package.module:callable", where=str(path))
    if path.suffix not in FORMATS:
        known = f"known: {', '.join(FORMATS)}, package.module:callable"
        raise UsageError(
            f"unknown model format {path.suffix!r}",
            where=str(path),
            hint=_MADE_FROM.get(path.suffix, known),
        )
    if is_pointer(path):
        raise ModelError(
            "it is a Git LFS pointer, not the model",
            where=str(path),
            hint="git lfs pull fetches it",
        )
    try:
        with trusting() if trust else nullcontext():
            graph, bindings = _READERS[path.suffix](path, bindings)
        check_graph(graph)
    except PeakfoldError as error:
        if str(path) in error.where or not isinstance(error, ModelError):
            raise
        where = ", ".join(part for part in (str(path), error.where) if part)
        raise ModelError(error.what, where=where, hint=error.hint) from None
    except Exception as error:  # a reader's own slip: its traceback stays for --traceback
        bounded = isinstance(error, (RecursionError, MemoryError))
        reason = first_line(error) if bounded else f"{type(error).__name__}: {first_line(error)}"
        hint = "" if bounded else "please report it, with the file"
        raise ModelError(f"cannot be read: {reason}", where=str(path), hint=hint) from error
    return _certain(Loaded(graph, bindings, str(path)))


def _certain(loaded: Loaded) -> Loaded:
    """What was loaded, unless ``--strict`` refuses what is doubtful of it."""
    if strict() and (found := doubts(loaded.graph)):
        raise ModelError(
            f"doubtful, and --strict is on: {'; '.join(found)}",
            where=loaded.path,
            hint="without --strict the figures are shown with these notes",
        )
    return loaded


def _load_onnx(path: Path, bindings: Bindings) -> tuple[Graph, Bindings]:
    from peakfold.frontends.onnx.file import read_onnx
    from peakfold.frontends.onnx.graph import build_graph

    return build_graph(read_onnx(path), bindings)


def _load_tflite(path: Path, bindings: Bindings) -> tuple[Graph, Bindings]:
    from peakfold.frontends.tflite.file import read_tflite
    from peakfold.frontends.tflite.graph import build_graph

    return build_graph(read_tflite(path), bindings)


def _load_text(path: Path, bindings: Bindings) -> tuple[Graph, Bindings]:
    from peakfold.frontends.pf import load_text

    return load_text(path, bindings)


def _load_program(path: Path, bindings: Bindings) -> tuple[Graph, Bindings]:
    if trusted():
        from peakfold.frontends.torch.load import load_trusted

        return load_trusted(path, bindings)
    from peakfold.frontends.pt2.load import load_program

    return load_program(path, bindings)


_READERS = {".onnx": _load_onnx, ".tflite": _load_tflite, ".pf": _load_text, ".pt2": _load_program}

__all__ = ["FORMATS", "Bindings", "GivenShape", "Loaded", "load"]
