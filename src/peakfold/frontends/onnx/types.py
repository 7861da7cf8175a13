"""Between onnx's type records and ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import onnx
from onnx import TensorProto, TypeProto

from peakfold.ir import DTYPES, OPAQUE, Dim, DType, Shape

_NAMES = {
    TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16", TensorProto.FLOAT8E4M3FN: "float8e4m3fn",
    TensorProto.FLOAT8E4M3FNUZ: "float8e4m3fnuz", TensorProto.FLOAT8E5M2: "float8e5m2",
    TensorProto.FLOAT8E5M2FNUZ: "float8e5m2fnuz", TensorProto.INT64: "int64",
    TensorProto.INT32: "int32", TensorProto.INT16: "int16", TensorProto.INT8: "int8",
    TensorProto.UINT64: "uint64", TensorProto.UINT32: "uint32", TensorProto.UINT16: "uint16",
    TensorProto.UINT8: "uint8", TensorProto.BOOL: "bool", TensorProto.COMPLEX64: "complex64",
    TensorProto.COMPLEX128: "complex128", TensorProto.STRING: "string",
}  # fmt: skip
# Element types that came with later releases of onnx: looked up by name, so older ones load.
_LATER = {
    "INT4": "int4",
    "UINT4": "uint4",
    "INT2": "int2",
    "UINT2": "uint2",
    "FLOAT4E2M1": "float4e2m1",
    "FLOAT8E8M0": "float8e8m0",
}
ELEMENT_TYPES: dict[int, DType] = {code: DTYPES[name] for code, name in _NAMES.items()} | {
    getattr(TensorProto, code): DTYPES[name]
    for code, name in _LATER.items()
    if hasattr(TensorProto, code)
}
_CODES = {dtype.name: code for code, dtype in ELEMENT_TYPES.items()}


def dtype_of(code: int) -> DType:
    """The element type of a `TensorProto` code; unknown codes are opaque."""
    return ELEMENT_TYPES.get(code, OPAQUE)


@lru_cache(maxsize=4096)  # a model has few types, and building one costs 5 us
def tensor_type(dtype: DType, shape: Shape | None) -> TypeProto:
    """Our type as onnx writes it; symbols become ``dim_param``. Shared: never change it."""
    proto = TypeProto()
    tensor = proto.tensor_type
    tensor.elem_type = _CODES.get(dtype.name, TensorProto.UNDEFINED)
    if shape is not None:
        tensor.shape.SetInParent()
        add = tensor.shape.dim.add
        for dim in shape:
            if isinstance(dim, str):
                add(dim_param=dim)
            else:
                add(dim_value=dim)
    return proto


def dtype_and_shape(proto: TypeProto | None) -> tuple[DType, Shape | None]:
    """Element type and shape; `None` for a shape with a dimension that has no name or number.

    A number below 0 is none: exporters write -1 where a dimension is open.

    Sequences, maps, optionals and sparse tensors are opaque: no graph states their size.
    """
    if proto is None or proto.WhichOneof("value") != "tensor_type":
        return OPAQUE, None
    tensor = proto.tensor_type  # every access to a submessage makes an object
    dtype = dtype_of(tensor.elem_type)
    if not tensor.HasField("shape"):
        return dtype, None
    dims: list[Dim] = []
    for entry in tensor.shape.dim:
        which = entry.WhichOneof("value")
        if which == "dim_value" and entry.dim_value >= 0:
            dims.append(entry.dim_value)
        elif which == "dim_param" and entry.dim_param:
            dims.append(entry.dim_param)
        else:
            return dtype, None
    return dtype, tuple(dims)


def bound_type(proto: TypeProto, dims: Mapping[str, int]) -> TypeProto:
    """A tensor type whose shape is known in part, with numbers for its symbols."""
    found = TypeProto()
    found.CopyFrom(proto)
    for entry in found.tensor_type.shape.dim:
        if entry.dim_param in dims:
            entry.dim_value = dims[entry.dim_param]
        elif entry.WhichOneof("value") == "dim_value" and entry.dim_value < 0:
            entry.Clear()
    return found


def is_complete(proto: TypeProto | None) -> bool:
    """Whether a tensor type has an element type and a number for every dimension."""
    if proto is None:
        return False
    if proto.WhichOneof("value") != "tensor_type":
        return proto.WhichOneof("value") is not None
    dtype, shape = dtype_and_shape(proto)
    if dtype.bits is None and proto.tensor_type.elem_type != TensorProto.STRING:
        return False
    return shape is not None and all(isinstance(dim, int) for dim in shape)


def tensor_of_value(name: str, value: np.ndarray) -> TensorProto:
    """A known value as a stored tensor, for onnx's inference."""
    return onnx.numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
