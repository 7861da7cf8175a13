"""What a file of ONNX Runtime's own making tells only between the lines."""

from __future__ import annotations

from typing import Final

from onnx import ModelProto

from peakfold.frontends.onnx_bounds import every_node

BLOCKED: Final = "com.microsoft.nchwc"
"""Domain of operators whose channels lie in blocks."""

_BLOCKS: Final = (16, 8)


def nchwc_block(model: ModelProto) -> int:
    """Channels of a block, by the weights that a session padded for its processor.

    Padded counts are multiples of it. Where all are multiples of 16 a block of 8 would pad the
    same counts to the same sizes.

    Returns:
        8 or 16; 0 for a model without such operators.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    padded: set[int] = set()
    found = False
    for node in every_node(model.graph.node):
        if node.domain != BLOCKED:
            continue
        found = True
        weight = shapes.get(node.input[1]) if node.op_type == "Conv" and len(node.input) > 1 else ()
        if weight:
            # Channels that a filter sees are as they were where it reads plain data.
            padded.add(weight[0])
    return next((b for b in _BLOCKS if all(size % b == 0 for size in padded)), 8) if found else 0
