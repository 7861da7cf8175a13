"""ONNX nodes with real arrays, as the registry sees them. Tests only; independent of the
front end, so that both can be wrong only together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto

from peakfold.frontends.onnx.names import onnx_kind
from peakfold.ir.graph import AttrValue, Graph, Op, Region, Tensor
from peakfold.ir.types import DTYPES, OPAQUE, DType, Shape
from peakfold.ops import VALUE_INPUTS, Context, context, lookup

SPECIAL = {"FLOAT": "float32", "DOUBLE": "float64"}


def dtype_of(code: int) -> DType:
    name = TensorProto.DataType.Name(code)
    name = SPECIAL.get(name, name.lower())
    return DTYPES.get(name, OPAQUE)


def dtype_of_array(array: object) -> DType:
    if not isinstance(array, np.ndarray | np.generic):
        return OPAQUE
    if array.dtype.kind in "OUST":
        return DTYPES["string"]
    return dtype_of(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def attributes(node: NodeProto) -> dict[str, AttrValue]:
    attrs: dict[str, AttrValue] = {}
    for item in node.attribute:
        value = onnx.helper.get_attribute_value(item)
        if item.type == AttributeProto.STRING:
            attrs[item.name] = value.decode()
        elif item.type in (AttributeProto.INT, AttributeProto.FLOAT):
            attrs[item.name] = value
        elif item.type == AttributeProto.STRINGS:
            attrs[item.name] = tuple(v.decode() for v in value)
        elif item.type in (AttributeProto.INTS, AttributeProto.FLOATS):
            attrs[item.name] = tuple(value)
        elif item.type == AttributeProto.TENSOR and item.name == "value":
            attrs["value_dtype"] = dtype_of(value.data_type).name
            attrs["value_shape"] = tuple(value.dims)
    if node.op_type == "ConstantOfShape":
        attrs.setdefault("value_dtype", "float32")
    return attrs


def plain(array: np.ndarray) -> AttrValue:
    return array.item() if array.ndim == 0 else tuple(array.tolist())


def tensor(name: str, value: object, dtype: DType | None = None) -> Tensor:
    if isinstance(value, TensorProto):
        return Tensor(name, dtype_of(value.data_type), tuple(value.dims))
    found = dtype or dtype_of_array(value)
    shape = tuple(np.shape(value)) if found is not OPAQUE else None
    return Tensor(name, found, shape)


def region(label: str, graph: onnx.GraphProto) -> Region:
    tensors, seen = [], set()
    for info in [*graph.input, *graph.output, *graph.value_info]:
        if info.name not in seen and info.type.HasField("tensor_type"):
            seen.add(info.name)
            kind = info.type.tensor_type
            dims = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim]
            known = kind.HasField("shape") and all(isinstance(d, int) or d for d in dims)
            shape: Shape | None = tuple(dims) if known else None
            tensors.append(Tensor(info.name, dtype_of(kind.elem_type), shape))
    for info in [*graph.input, *graph.output]:
        if info.name not in seen:
            seen.add(info.name)
            tensors.append(Tensor(info.name, OPAQUE, None))
    inputs, outputs = (tuple(i.name for i in part) for part in (graph.input, graph.output))
    return Region(label, Graph(label, tuple(tensors), (), inputs, outputs))


def as_context(
    node: NodeProto,
    values: Mapping[str, object],
    dtypes: Mapping[str, DType] | None = None,
    *,
    with_values: bool = True,
    with_outputs: bool = False,
) -> Context:
    """The node with real operands; shape-like operands become attributes when `with_values`."""
    dtypes = dtypes or {}
    kind = onnx_kind(node.op_type, node.domain)
    attrs = attributes(node)
    for at, name in VALUE_INPUTS.get(kind, {}).items() if with_values else ():
        if at < len(node.input) and node.input[at]:
            attrs[name] = plain(np.asarray(values[node.input[at]]))
    regions = tuple(
        region(item.name, item.g) for item in node.attribute if item.type == AttributeProto.GRAPH
    )
    op = Op(node.name or node.op_type, kind, tuple(node.input), tuple(node.output), attrs, regions)
    given = tuple(tensor(n, values[n], dtypes.get(n)) if n else None for n in node.input)
    made: Sequence[Tensor | None] = ()
    if with_outputs:
        made = [tensor(n, values[n], dtypes.get(n)) if n else None for n in node.output]
    return Context(op, given, tuple(made))


def ctx_of(kind, shapes, outputs=1, dtype="float32", **attrs) -> Context:
    """A context whose output shapes come from the row's own shape rule."""
    tensors = {
        f"i{at}": Tensor(f"i{at}", DTYPES[dtype], shape)
        for at, shape in enumerate(shapes)
        if shape is not None
    }
    names = tuple(f"i{at}" if shape is not None else "" for at, shape in enumerate(shapes))
    results = tuple(f"o{at}" for at in range(outputs))
    tensors |= {name: Tensor(name, DTYPES[dtype], None) for name in results}
    op = Op("n", kind, names, results, attrs)
    rule = lookup(kind).shape
    types = (rule(context(op, tensors)) if rule else None) or ()
    for name, told in zip(results, types, strict=False):
        if told is not None:
            tensors[name] = Tensor(name, *told)
    return context(op, tensors)
