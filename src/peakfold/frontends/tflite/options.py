"""Options of operators as attributes: every scalar and list by its schema name, in snake case.

Zeros, empty lists and absent texts are left out: they are the defaults, and a field that a later
schema adds then changes no attribute of an older model. Numbers that stand for a word (padding,
fused activation, kernel types) become the word, in small letters.
"""

from __future__ import annotations

import re
from typing import Any, Final

from peakfold.frontends.tflite.schema import names_of, schema
from peakfold.frontends.tflite.types import dtype_of
from peakfold.ir import AttrValue

_WORDS: Final = {
    "fused_activation_function": ("fused_activation", "ActivationFunctionType"),
    "padding": ("padding", "Padding"),
    "kernel_type": ("kernel_type", "LSTMKernelType"),
    "weights_format": ("weights_format", "FullyConnectedOptionsWeightsFormat"),
    "comparison_direction": ("comparison_direction", "StablehloComparisonDirection"),
    "reduce_function": ("reduce_function", "ReduceWindowFunction"),
}
_TYPES: Final = (
    "in_data_type",
    "out_data_type",
    "out_type",
    "output_type",
    "idx_out_type",
    "key_dtype",
    "value_dtype",
)
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


def options_of(op: Any) -> tuple[dict[str, AttrValue], str]:
    """Attributes of an operator, and a note when its options are of an unknown type.

    Args:
        op: the schema's reader of an operator.
    """
    for holder in ("BuiltinOptions", "BuiltinOptions2"):
        kind = getattr(op, holder + "Type")()
        table = getattr(op, holder)()
        if not kind or table is None:
            continue
        name = names_of(holder).get(kind)
        if name is None:
            return {}, f"options of the unknown type {kind} are not read"
        record = getattr(schema(), name + "T").InitFromBuf(table.Bytes, table.Pos)
        return _attributes(vars(record)), ""
    return {}, ""


def snake(name: str) -> str:
    """A name of the object API in snake case.

    Example:
        >>> snake("dilationWFactor"), snake("adjX"), snake("strideH"), snake("seed2")
        ('dilation_w_factor', 'adj_x', 'stride_h', 'seed2')
    """
    return re.sub(r"(?<=[A-Z])([A-Z])(?=[a-z])", r"_\1", _CAPITAL.sub(r"_\1", name)).lower()


def _attributes(fields: dict[str, Any]) -> dict[str, AttrValue]:
    attrs: dict[str, AttrValue] = {}
    for written, value in fields.items():
        name = snake(written)
        if name in _WORDS and isinstance(value, int):
            name, enumeration = _WORDS[name]
            word = names_of(enumeration).get(value)
            if word is None:
                attrs[name] = f"unknown_{value}"
            elif name == "padding" or value:
                attrs[name] = word.lower()
        elif name in _TYPES and isinstance(value, int):
            attrs[name] = dtype_of(value).name
        else:
            plain = _plain(value)
            if plain is not None:
                attrs[name] = plain
    return attrs


def _plain(value: Any) -> AttrValue | None:
    if value is None or isinstance(value, bytearray):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace") or None
    if isinstance(value, bool):
        return value or None
    if isinstance(value, int | float | str):
        return value if value else None
    items = value.tolist() if hasattr(value, "tolist") else list(value)
    return tuple(items) if items and all(isinstance(i, int | float) for i in items) else None
