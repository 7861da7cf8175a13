"""The JSON of an exported program, as typed records: what is not of these types is refused.

The names are those of PyTorch's schema (8.x). A union is a record of which one field is given;
fields that nobody here needs are skipped. Strings stay strings: none is ever resolved or run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from peakfold.boundary import foreign
from peakfold.errors import ModelError
from peakfold.frontends.pt2.archive import TRUST

MAJOR = 8
"""The version of the schema that is understood."""
MAX_ITEMS = 8_000_000
"""Records, lists and items of the JSON texts of one file; an operator takes under a hundred."""

_T = TypeVar("_T")

Float = float | Literal["Infinity", "-Infinity", "NaN"]
"""A number, or what PyTorch writes for one that JSON has not."""


class Named(Struct):
    """A tensor or another value, by its name in the graph."""

    name: str


class Hint(Struct):
    """The number that a size had when the program was captured; flags are no sizes."""

    as_int: int | None = None


class Expr(Struct):
    """A size as text, with the number it had when the program was captured."""

    expr_str: str
    hint: Raw = Raw()

    @property
    def hinted(self) -> int | None:
        """The number it had, if the file says so in the way that is known."""
        try:
            return msgspec.json.decode(self.hint, type=Hint).as_int
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None


class SymInt(Struct):
    """A size: a number or an expression."""

    as_expr: Expr | None = None
    as_int: int | None = None


class SymArgument(Struct):
    """A size, number or condition given to an operator: by name or as it is."""

    as_name: str | None = None
    as_int: int | None = None
    as_float: Float | None = None
    as_bool: bool | None = None


class Device(Struct):
    """Where a tensor lives."""

    type: str
    index: int | None = None


class TensorMeta(Struct):
    """What a tensor is; sizes, strides and offset in elements."""

    dtype: int
    sizes: list[SymInt]
    requires_grad: bool
    device: Device
    strides: list[SymInt]
    storage_offset: SymInt
    layout: int


class OptionalTensor(Struct):
    """A tensor of a list that may have gaps."""

    as_tensor: Named | None = None
    as_none: bool | None = None


class GraphArgument(Struct):
    """A body of control flow."""

    name: str
    graph: Graph


class Argument(Struct):
    """What an operator is given or makes."""

    as_none: bool | None = None
    as_tensor: Named | None = None
    as_tensors: list[Named] | None = None
    as_int: int | None = None
    as_ints: list[int] | None = None
    as_float: Float | None = None
    as_floats: list[Float] | None = None
    as_string: str | None = None
    as_sym_int: SymArgument | None = None
    as_sym_ints: list[SymArgument] | None = None
    as_scalar_type: int | None = None
    as_bool: bool | None = None
    as_bools: list[bool] | None = None
    as_sym_bool: SymArgument | None = None
    as_graph: GraphArgument | None = None
    as_optional_tensors: list[OptionalTensor] | None = None
    as_sym_float: SymArgument | None = None
    as_optional_tensor: OptionalTensor | None = None


class NamedArgument(Struct):
    """An argument by the name that the operator's schema gives it."""

    name: str
    arg: Argument


class Node(Struct):
    """One call: its operator is a text that is looked up, never imported."""

    target: str
    inputs: list[NamedArgument]
    outputs: list[Argument]
    metadata: dict[str, str]
    name: str | None = None


class Graph(Struct):
    """A program, or a body."""

    inputs: list[Argument]
    outputs: list[Argument]
    nodes: list[Node]
    tensor_values: dict[str, TensorMeta]
    sym_int_values: dict[str, SymInt]


class UserInput(Struct):
    """An input of the user's."""

    arg: Argument


class Parameter(Struct):
    """An input that is a parameter."""

    arg: Named
    parameter_name: str


class Buffer(Struct):
    """An input that is a buffer."""

    arg: Named
    buffer_name: str


class TensorConstant(Struct):
    """An input that is a constant."""

    arg: Named
    tensor_constant_name: str


class InputSpec(Struct):
    """What an input of the graph stands for."""

    user_input: UserInput | None = None
    parameter: Parameter | None = None
    buffer: Buffer | None = None
    tensor_constant: TensorConstant | None = None


class Output(Struct):
    """An output of the user's; which one, the graph says."""


class OutputSpec(Struct):
    """What an output of the graph is for; the others are side effects."""

    user_output: Output | None = None
    loss_output: Output | None = None


class Signature(Struct):
    """Inputs and outputs of the program."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]


class GraphModule(Struct):
    """A graph with its signature."""

    graph: Graph
    signature: Signature


class RangeConstraint(Struct):
    """Between which numbers a symbol lies; `None` for no end."""

    min_val: int | None = None
    max_val: int | None = None


class SchemaVersion(Struct):
    """The version of what is written."""

    major: int
    minor: int = 0


class Program(Struct):
    """An exported program."""

    graph_module: GraphModule
    range_constraints: dict[str, RangeConstraint]
    schema_version: SchemaVersion


class Payload(Struct):
    """Where a parameter, buffer or constant lies; pickled ones are never opened."""

    path_name: str
    use_pickle: bool = False
    tensor_meta: TensorMeta | None = None


class PayloadConfig(Struct):
    """Payloads by the names of what they hold."""

    config: dict[str, Payload]


class _Versioned(Struct):
    schema_version: SchemaVersion


def decoded_program(text: bytes) -> Program:
    """The program that a JSON text describes.

    Raises:
        ModelError: it is no such JSON, or of another major version.
    """
    version = _decoded(text, _Versioned, "no exported program").schema_version.major
    if version != MAJOR:
        raise ModelError(f"its schema has version {version}, known is {MAJOR}", hint=TRUST)
    return _decoded(text, Program, "no exported program")


def decoded_payloads(text: bytes) -> dict[str, Payload]:
    """Where parameters or constants lie, by name; an archive need not say.

    Raises:
        ModelError: it is no such JSON.
    """
    return (
        _decoded(text, PayloadConfig, "its list of weights cannot be read").config if text else {}
    )


def check_items(texts: Iterable[bytes]) -> None:
    """Bound what JSON texts become, which takes far more memory than they do.

    Raises:
        ModelError: together they hold more than `MAX_ITEMS`.
    """
    if sum(text.count(mark) for text in texts for mark in (b"{", b"[", b",")) > MAX_ITEMS:
        raise ModelError("no exported program: it describes too many things")


def _decoded(text: bytes, kind: type[_T], what: str) -> _T:
    with foreign(what):
        return msgspec.json.decode(text, type=kind)
