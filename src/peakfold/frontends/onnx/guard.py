"""What must hold of a node before onnx's C++ sees it.

Its shape functions trust some numbers of a node: they index types by an axis, or shift lists by
a count, without asking whether it lies inside. What they would run over is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from onnx import AttributeProto, NodeProto

from peakfold.ir import MAX_RANK

_WORDS: Final = re.compile(r"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?")
# Attributes that count axes, from either end.
_AXES: Final = frozenset(
    {"axis", "axes", "new_axis", "batch_axis", "time_axis", "batch_dims", "perm",
     "scan_input_axes", "scan_output_axes"}
)  # fmt: skip
# Operators whose axis must lie inside their first operand, and how far beyond it may not.
_INSIDE: Final[Mapping[str, str]] = {
    "LayerNormalization": "axis",
    "RMSNormalization": "axis",
    "GatherND": "batch_dims",
}


def misuse(node: NodeProto, ranks: Sequence[int | None]) -> str:
    """Why a node may not be given to onnx's shape functions; empty if it may.

    Args:
        node: the node.
        ranks: of its inputs, by position; `None` where unknown or absent.

    Example:
        >>> from onnx import helper
        >>> misuse(helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=2**31), [2, 1])
        "attribute 'axis' is out of range"
        >>> misuse(helper.make_node("Split", ["x"], ["a", "b"], num_outputs=3), [1])
        'it has 2 outputs, and num_outputs 3'
    """
    known = [rank for rank in ranks if rank is not None]
    inside = _INSIDE.get(node.op_type)
    for item in node.attribute:
        if item.name in _AXES:
            values = item.ints if item.type == AttributeProto.INTS else (item.i,)
            least, most = -MAX_RANK, MAX_RANK - 1
            if item.name == inside:
                most = min(known, default=0) if inside == "batch_dims" else ranks[0] or 0
                least = 0 if inside == "batch_dims" else -most
                most -= 1
            elif known and item.type == AttributeProto.INT:
                least, most = -max(known) - 1, max(known)
            if len(values) > MAX_RANK or not all(least <= value <= most for value in values):
                return f"attribute {item.name!r} is out of range"
        elif item.name == "num_outputs" and item.i != len(node.output):
            return f"it has {len(node.output)} outputs, and num_outputs {item.i}"
        elif item.name == "equation" and not _is_equation(item.s):
            return "its equation cannot be read"
    return ""


def _is_equation(written: bytes) -> bool:
    """Whether an Einsum's equation has the form ``ij,...k->i``."""
    before, _, after = written.decode("utf-8", "replace").partition("->")
    return all(_WORDS.fullmatch(term) for term in (*before.split(","), after))
