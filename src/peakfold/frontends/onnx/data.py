"""Stored tensors of an ONNX model: where their bytes lie, and whether they are as many as needed.

External data may not leave the model's folder (ONNX IR specification, "External data"): the one
it was named in, or the one that holds the file a link leads to, since caches of models are folders
of links. Nothing but sizes is looked at here; bytes are read one tensor at a time, and only when
asked for, so that data may be absent where nothing but shapes is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from os.path import normpath
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from peakfold.boundary import first_line, foreign, is_pointer
from peakfold.errors import ModelError
from peakfold.frontends.onnx.types import dtype_of
from peakfold.ir import MAX_RANK, DType

# Typed fields, and the element types that lie in them (onnx.proto, message TensorProto).
_FIELDS: Final[Mapping[int, str]] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.STRING: "string_data",
}
_TYPED: Final = (*dict.fromkeys(_FIELDS.values()), "int32_data")
_PAIRS: Final = frozenset({TensorProto.COMPLEX64, TensorProto.COMPLEX128})


Folders = tuple[Path, ...]
"""Where a model's external data may lie: the folder the model was named in, then that of the file
a link leads to."""

_IN_MEMORY: Final = "*/_ORT_MEM_ADDR_/*"


@dataclass(frozen=True, slots=True)
class _Data:
    """A file of external data, its bytes, and what is the matter where it is not there."""

    path: Path
    size: int
    absent: str = ""


def stored_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every stored tensor: initializers and attributes, in subgraphs too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _attribute_tensors(node)


def _attribute_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield attribute.t
        yield from attribute.tensors
        if attribute.type == AttributeProto.GRAPH:
            yield from stored_tensors(attribute.g)
        for body in attribute.graphs:
            yield from stored_tensors(body)


def check_data(graph: GraphProto, folders: Folders) -> tuple[str, ...]:
    """Compare the data of every stored tensor with what its type and shape need.

    Args:
        graph: the model's, or that of a function's nodes.
        folders: of the model; external data lies in one of them.

    Returns:
        A note for each file of data that is not there.

    Raises:
        ModelError: the first tensor whose data is too short or too long, or lies elsewhere.
    """
    files: dict[str, _Data] = {}
    for tensor in stored_tensors(graph):
        where = f"tensor {tensor.name!r}"
        if len(tensor.dims) > MAX_RANK:
            raise ModelError(f"it has more than {MAX_RANK} dimensions", where=where)
        for dim in tensor.dims:
            if not 0 <= dim < 2**48:
                raise ModelError(f"dimension {dim} is negative or absurd", where=where)
        if tensor.data_location == TensorProto.EXTERNAL:
            _external(tensor, folders, files, where)
        else:
            _check_inline(tensor, where)
    return tuple(
        f"{data.absent}: sizes are known, values are not" for data in files.values() if data.absent
    )


def _needed(tensor: TensorProto) -> int | None:
    """Bytes that type and shape need; `None` where elements have no fixed width."""
    return dtype_of(tensor.data_type).nbytes(prod(tensor.dims))


def _check_inline(tensor: TensorProto, where: str) -> None:
    dtype, count = dtype_of(tensor.data_type), prod(tensor.dims)
    if tensor.HasField("raw_data"):
        held, needed, unit = len(tensor.raw_data), dtype.nbytes(count), "bytes"
    else:
        held, needed = _typed(tensor, dtype, count, where)
        unit = "entries"
    # Tools that strip weights keep shapes: a model whose data is absent altogether is planned.
    if held and needed is not None and held != needed:
        raise ModelError(f"{held} {unit} are stored, its type and shape need {needed}", where=where)


def _typed(tensor: TensorProto, dtype: DType, count: int, where: str) -> tuple[int, int | None]:
    """Entries of the typed field that an element type lies in, and how many it should have."""
    name = _FIELDS.get(tensor.data_type, "int32_data")
    held = len(getattr(tensor, name))
    for other in _TYPED:
        if not held and other != name and len(getattr(tensor, other)):
            raise ModelError(f"its data lies in {other}, not in {name}", where=where)
    if tensor.data_type in _PAIRS:
        return held, 2 * count
    # In int32_data an entry holds one element, or one byte of packed ones.
    packed = name == "int32_data" and (dtype.bits is None or dtype.bits < 8)
    return held, dtype.nbytes(count) if packed else count


def _external(
    tensor: TensorProto, folders: Folders, files: dict[str, _Data], where: str
) -> tuple[_Data, int, int]:
    """File, first byte and length of a tensor's external data.

    Args:
        tensor: the tensor.
        folders: of the model.
        files: those that this model has named so far.
        where: the tensor, for errors.

    Raises:
        ModelError: no such place, or its length is not the tensor's.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not isinstance(location, str) or "\0" in location:
        raise ModelError("external data location is no path", where=where)
    if not location:
        raise ModelError("external data without a location", where=where)
    if not folders:
        raise ModelError("external data needs the model's folder", where=where)
    if location not in files:
        files[location] = _file_of(location, folders, where)
    data = files[location]
    start, length = (_entry(entries.get(key, "0"), where) for key in ("offset", "length"))
    needed = _needed(tensor)
    if length and needed is not None and length != needed:
        raise ModelError(
            f"{length} bytes of external data are stored, its type and shape need {needed}",
            where=where,
        )
    length = length or needed or 0
    if start < 0 or length < 0 or (not data.absent and start + length > data.size):
        raise ModelError(f"external data {location!r} is too short", where=where)
    return data, start, length


def _entry(written: str, where: str) -> int:
    digits = isinstance(written, str) and len(written) < 40
    try:
        return int(written if digits else "")
    except ValueError:
        raise ModelError("external data has no integer offset and length", where=where) from None


def _file_of(location: str, folders: Folders, where: str) -> _Data:
    """The file of external data, which lies inside the model's folder."""
    what = f"external data {location!r}"
    if location == _IN_MEMORY:
        return _Data(
            Path(location),
            0,
            "the weights lay in a process's memory when the model was saved "
            f"({location}), and are in no file",
        )
    with foreign(f"{what} cannot be read", where):  # a loop of links, a name that is too long
        path = (folders[0] / location).resolve()
        roots = [folder.resolve() for folder in folders]
        inside = any(path.is_relative_to(root) for root in roots)
        written = normpath(roots[0] / location)
        if not inside or Path(location).is_absolute() or not Path(written).is_relative_to(roots[0]):
            raise ModelError(f"{what} lies outside the model's folder", where=where)
        if not path.is_file():
            return _Data(path, 0, f"{what} is missing from {folders[0]}")
        if is_pointer(path):
            return _Data(path, 0, f"{what} is a Git LFS pointer (git lfs pull fetches it)")
        return _Data(path, path.stat().st_size)


def value_of(tensor: TensorProto, folders: Folders) -> NDArray[np.generic]:
    """The value of a stored tensor, read from the external file if it lies there.

    Raises:
        ModelError: the stored bytes do not fit the tensor's type and shape.
    """
    where = f"tensor {tensor.name!r}"
    if tensor.data_location == TensorProto.EXTERNAL:
        data, start, length = _external(tensor, folders, {}, where)
        if data.absent:
            raise ModelError(f"its value is needed, and {data.absent}", where=where)
        with foreign("its external data cannot be read", where), data.path.open("rb") as stream:
            stream.seek(start)
            raw = stream.read(length)
        tensor = TensorProto(
            name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=raw
        )
    try:  # not `foreign`: it says nothing, and is asked for every small tensor
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:
        what = f"its bytes do not fit its type: {first_line(error)}"
        raise ModelError(what, where=where) from None
