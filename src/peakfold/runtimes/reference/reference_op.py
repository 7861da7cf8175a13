"""Kernels of onnx's own reference implementation, one node at a time."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import ModelProto, NodeProto

from peakfold.ir import Op
from peakfold.runtimes.reference.kernels import Args, Kernel
from peakfold.runtimes.reference.program import CannotRun, slots


def reference_kernel(model: ModelProto, op: Op, node: NodeProto) -> Kernel:
    """The kernel of a node; it is built once and keeps the meaning of the model's opsets.

    Args:
        model: the model, for its opsets.
        op: the op the node became.
        node: the node.

    Raises:
        CannotRun: onnx has no kernel for it.
    """
    from onnx.reference import ReferenceEvaluator

    given = slots(op)
    names = list(dict.fromkeys(filter(None, given)))
    try:
        evaluator = ReferenceEvaluator(_single(model, _seeded(op, node), names, op.results))
    except Exception as error:  # whatever onnx raises for an operator it has no kernel for
        reason = str(error).split(" in ")[0]
        raise CannotRun(
            f"no kernel for {node.op_type!r} of domain {node.domain!r}: {reason}",
            where=f"op {op.name!r} ({op.kind})",
        ) from None
    at = [given.index(name) for name in names]
    asked = [number for number, name in enumerate(op.outputs) if name]

    def run(args: Args) -> tuple[Any, ...]:
        made = evaluator.run(None, {name: args[n] for name, n in zip(names, at, strict=True)})
        results: list[Any] = [None] * len(op.outputs)
        for number, value in zip(asked, made, strict=True):
            results[number] = value
        return tuple(results)

    return Kernel(f"onnx.reference {node.op_type}", run)


def _single(
    model: ModelProto, node: NodeProto, reads: list[str], makes: tuple[str, ...]
) -> ModelProto:
    empty = onnx.helper.make_empty_tensor_value_info
    graph = onnx.helper.make_graph([node], "op", [*map(empty, reads)], [*map(empty, makes)])
    return onnx.helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version
    )


def _seeded(op: Op, node: NodeProto) -> NodeProto:
    """A random node with a seed, so that two runs can be compared."""
    if not op.writes or any(a.name == "seed" for a in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.attribute.append(onnx.helper.make_attribute("seed", 1.0))
    return copy
