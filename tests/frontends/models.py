"""Small ONNX models written in onnx's own text syntax."""

from __future__ import annotations

from pathlib import Path

import onnx

from peakfold.frontends import Bindings, Loaded, load


def save(path: Path, text: str) -> Path:
    """Parse onnx's text syntax and write a model file."""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def read(path: Path, text: str, *dims: str, shapes: tuple[str, ...] = ()) -> Loaded:
    """Write a model and load it with our front end."""
    return load(save(path / "m.onnx", text), Bindings.parse(dims, shapes))


def model(body: str, opset: int = 17, more: str = "") -> str:
    """A model text around a graph."""
    return f'<ir_version: 8, opset_import: ["" : {opset}{more}]>\n{body}'
