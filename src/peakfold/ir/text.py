"""The text form `.pf`: one line per op, made to be read, diffed and sent in a bug report.

    peakfold-graph 1
    name "example"
    input x: float32[batch,8]
    parameter w: float32[8,4]
    h: float32[batch,4] = matmul(x, w)
    y: float32[batch,4] = relu(h) name="act" scope="block.1"
    output y

- A type is ``dtype[dims]``, ``dtype?`` when the shape is unknown; ``(16B)`` after it states
  the bytes, ``trainable`` or ``frozen`` whether training adjusts it. A role word before the
  type overrides the default: ``dh: gradient float32[4]``.
- ``_`` is an absent input or output. Keyword arguments are attributes.
- After the call: ``name scope reads writes`` and the stated facts ``inplace=[0]``,
  ``views=["0<1+128"]`` (output 0 is input 1 from byte 128), ``overlap=["0-16"]`` (output 0
  may be written over input 0 if it starts 16 bytes or more below it), ``workspace=1024``.
- A line that ends in ``begin`` is followed by ``region "label" captures=[..]`` blocks, each
  closed by ``end``, and one more ``end``.
- Names that are not plain words are JSON strings. ``#`` starts a comment line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from peakfold.ir.graph import AttrValue, Graph, Op, Role, Stated, Tensor
from peakfold.ir.parse import HEADER, default_op_name, parse_lines

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


def parse_graph(text: str, name: str = "") -> Graph:
    """Read the text form; the graph is not checked (see `check_graph`).

    Args:
        text: the whole file.
        name: what errors call the file.

    Raises:
        ModelError: a line that cannot be read, with its number.

    Example:
        >>> parse_graph("peakfold-graph 1\\ninput x: int4[3]\\noutput x")["x"].nbytes
        2
    """
    return parse_lines(text.splitlines(), name)


def print_graph(graph: Graph) -> str:
    """Write the text form; `parse_graph` gives an equal graph back.

    Example:
        >>> text = "peakfold-graph 1\\nname \\"g\\"\\ninput x: int4[3]\\noutput x\\n"
        >>> print_graph(parse_graph(text)) == text
        True
    """
    return "\n".join([HEADER, *_body(graph, "")]) + "\n"


def quote(name: str) -> str:
    """A name as the text form writes it."""
    return name if _PLAIN.fullmatch(name) and name != "_" else json.dumps(name)


def _body(graph: Graph, indent: str) -> Iterator[str]:
    if graph.name:
        yield f"{indent}name {json.dumps(graph.name)}"
    if graph.source:
        yield f"{indent}source {json.dumps(graph.source)}"
    for note in graph.notes:
        yield f"{indent}note {json.dumps(note)}"
    made = graph.producer
    inputs = set(graph.inputs)
    for name in graph.inputs:
        yield f"{indent}input {_declaration(graph[name], Role.INPUT)}"
    for tensor in graph.tensors:
        if tensor.name not in made and tensor.name not in inputs:
            yield f"{indent}{tensor.role.value} {_declaration(tensor, tensor.role)}"
    for op in graph.ops:
        yield from _op_lines(graph, op, indent)
    if graph.outputs:
        yield f"{indent}output {', '.join(quote(name) for name in graph.outputs)}"


def _declaration(tensor: Tensor, default: Role) -> str:
    role = "" if tensor.role is default else f"{tensor.role.value} "
    return f"{quote(tensor.name)}: {role}{format_type(tensor)}"


def format_type(tensor: Tensor) -> str:
    """The type of a tensor as the text form writes it."""
    dims = "?" if tensor.shape is None else f"[{','.join(map(_format_dim, tensor.shape))}]"
    stated = "" if tensor.stated_bytes is None else f"({tensor.stated_bytes}B)"
    trains = {None: "", True: " trainable", False: " frozen"}[tensor.trainable]
    return f"{tensor.dtype.name}{dims}{stated}{trains}"


def _format_dim(dim: int | str) -> str:
    return str(dim) if isinstance(dim, int) else quote(dim)


def _op_lines(graph: Graph, op: Op, indent: str) -> Iterator[str]:
    outs = ", ".join(_declaration(graph[o], Role.ACTIVATION) if o else "_" for o in op.outputs)
    args = [quote(name) if name else "_" for name in op.inputs]
    args += [f"{quote(key)}={_format_value(value)}" for key, value in sorted(op.attrs.items())]
    line = f"{indent}{outs}{' ' if outs else ''}= {quote(op.kind)}({', '.join(args)})"
    line += "".join(f" {key}={value}" for key, value in _modifiers(op))
    if not op.regions:
        yield line
        return
    yield f"{line} begin"
    for region in op.regions:
        yield f"{indent}  region {json.dumps(region.label)} captures={_names(region.captures)}"
        yield from _body(region.graph, indent + "    ")
        yield f"{indent}  end"
    yield f"{indent}end"


def _modifiers(op: Op) -> Iterator[tuple[str, str]]:
    if op.name != default_op_name(op.outputs):
        yield "name", json.dumps(op.name)
    if op.scope:
        yield "scope", json.dumps(op.scope)
    if op.reads:
        yield "reads", _names(op.reads)
    if op.writes:
        yield "writes", _names(op.writes)
    yield from _stated(op.stated)


def _stated(stated: Stated | None) -> Iterator[tuple[str, str]]:
    if stated is None:
        return
    if stated.inplace is not None:
        yield "inplace", _format_value(stated.inplace)
    if stated.views is not None:
        views = tuple(f"{v.output}<{v.input}+{v.offset}" for v in stated.views)
        yield "views", _format_value(views)
    if stated.overlap is not None:
        yield "overlap", _format_value(tuple(f"{o.input}-{o.distance}" for o in stated.overlap))
    if stated.workspace is not None:
        yield "workspace", str(stated.workspace)


def _names(names: tuple[str, ...]) -> str:
    return f"[{', '.join(quote(name) for name in names)}]"


def _format_value(value: AttrValue) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_format_value(item) for item in value)}]"
    if isinstance(value, float):
        # JSON has no infinities; repr of a finite float always reads back as a float.
        return repr(value)
    return json.dumps(value)
