"""What forward ops make besides when they run for training: masks and saved statistics."""

from __future__ import annotations

from dataclasses import replace

from peakfold.ir import DTYPES, Graph, Op, Tensor
from peakfold.ops import lookup


def with_training_results(graph: Graph, *, masks: bool = True) -> Graph:
    """The graph whose ops run in training mode.

    A dropout also makes a mask (a byte for each element that may survive), a batch
    normalisation the mean and deviation of its batch, which its backward pass reads.

    Args:
        graph: a forward graph.
        masks: make dropout masks; MXNet's planner of 2016 kept them outside its arrays.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> g = parse_graph("peakfold-graph 1\\ninput x: float32[8]\\n"
        ...                 "y: float32[8] = dropout(x)\\noutput y")
        >>> with_training_results(g).ops[0].outputs
        ('y', 'y.mask')
    """
    tensors = dict(graph.by_name)
    ops = tuple(_in_training(op, tensors, masks=masks) for op in graph.ops)
    return replace(graph, tensors=tuple(tensors.values()), ops=ops)


def _in_training(op: Op, tensors: dict[str, Tensor], *, masks: bool) -> Op:
    grad = lookup(op.kind).grad
    if grad is None or (grad.mask is None and grad.statistics is None):
        return op
    outputs = list(op.outputs)

    def add(at: int, name: str, like: Tensor) -> None:
        outputs.extend([""] * (at + 1 - len(outputs)))
        if not outputs[at]:
            while name in tensors:
                name += "~"
            tensors[name] = replace(like, name=name)
            outputs[at] = name

    result = tensors[op.outputs[0]]
    if grad.mask is not None and masks:
        add(grad.mask, f"{result.name}.mask", replace(result, dtype=DTYPES["bool"]))
    if grad.statistics is not None:
        channels = (result.shape or ())[1:2]
        for at, what in enumerate(("mean", "deviation"), grad.statistics):
            add(at, f"{result.name}.{what}", replace(result, shape=channels))
    return replace(op, outputs=tuple(outputs), attrs={**op.attrs, "training_mode": 1})
