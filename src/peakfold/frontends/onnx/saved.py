"""What a file of ONNX Runtime's own making tells only between the lines."""

from __future__ import annotations

from typing import Final

from onnx import ModelProto

from peakfold.frontends.onnx.bounds import every_node

BLOCKED: Final = "com.microsoft.nchwc"
"""Domain of operators whose channels lie in blocks."""

_BLOCKS: Final = (16, 8)


def nchwc_block(model: ModelProto) -> int:
    """Channels of a block, by the weights that a session padded for its processor.

    Filters are always padded to a multiple of it; the channels they see only where the data lies
    in blocks, which those below a block never do.

    Returns:
        8 or 16; 0 for a model without such weights, where nobody can tell.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    padded: set[int] = set()
    for node in every_node(model.graph.node):
        if node.domain == BLOCKED and node.op_type == "Conv" and len(node.input) > 1:
            filters, channels, *_ = (*shapes.get(node.input[1], ()), 0, 0)
            padded |= {filters, channels if channels >= _BLOCKS[0] else 0} - {0}
    fits = (block for block in _BLOCKS if all(size % block == 0 for size in padded))
    return next(fits, _BLOCKS[-1]) if padded else 0
