"""NNVM's planner of 2016 once more, from its definition, for the published chart (R44, R45).

Internal arrays only. A backward step per layer in reverse order: convolutions and products read
their input, activations, pools and LRN input and output, a softmax its output, all but the last
the gradient of their result. Requests look for the smallest free block of up to sixteen times
their size, then for the largest of down to a sixteenth, which grows; equals are first in, first
out. Nothing here is the project's but the text form's reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from peakfold.ir import Graph

_BOTH = {"relu", "max_pool", "global_average_pool", "lrn"}
_INPUT = {"conv", "gemm"}
_IN_PLACE = {
    "relu",
    "flatten",
    "dropout",
    "softmax",
    "relu.grad",
    "flatten.grad",
    "dropout.grad",
    "sum",
}
RANGE = 16


@dataclass(frozen=True, slots=True)
class Step:
    """One op: what it makes and what it reads; it may overwrite the first."""

    kind: str
    makes: tuple[str, ...]
    reads: tuple[str, ...]


def forward(graph: Graph) -> list[Step]:
    """The steps of a graph whose ops have one result each."""
    return [Step(op.kind, op.outputs, op.inputs) for op in graph.ops]


def backward(steps: list[Step], sizes: dict[str, int]) -> list[Step]:
    """Forward and backward; sizes of the gradients are added to `sizes`."""
    pieces: dict[str, list[str]] = {}
    made = list(steps)

    def gradient(name: str) -> str:
        found = pieces[name]
        if len(found) > 1:
            sizes[f"{name}.sum"] = sizes[name]
            made.append(Step("sum", (f"{name}.sum",), tuple(found)))
            return f"{name}.sum"
        return found[0]

    for at, step in reversed(list(enumerate(steps))):
        result = step.makes[0]
        reads = [result] if step.kind == "softmax" else [gradient(result)]
        if step.kind in _INPUT | _BOTH:
            reads += step.reads
        if step.kind in _BOTH:
            reads.append(result)
        grads = tuple(f"{name}.grad{at}" for name in step.reads)
        for name, grad in zip(step.reads, grads, strict=True):
            sizes[grad] = sizes[name]
            pieces.setdefault(name, []).append(grad)
        made.append(Step(f"{step.kind}.grad", grads, tuple(reads)))
    return made


@dataclass(slots=True)
class _Block:
    size: int
    age: int = 0


def total(
    steps: list[Step], sizes: dict[str, int], kept: set[str], inside: bool, shared: bool
) -> int:
    """Bytes of all blocks.

    Args:
        steps: in order.
        sizes: bytes by name; a name that no step makes is external.
        kept: what survives the run.
        inside: whether steps overwrite what they alone still read.
        shared: whether blocks are used again.
    """
    left = Counter(name for step in steps for name in step.reads)
    left.update(kept)
    blocks: list[_Block] = []
    free: list[_Block] = []
    at: dict[str, _Block] = {}
    clock = 0
    for step in steps:
        first = step.reads[0]
        for name in sorted(step.makes, key=lambda n: -sizes[n]):
            fits = inside and step.kind in _IN_PLACE and first in at and left[first] == 1
            if fits and sizes[first] == sizes[name]:
                at[name] = at.pop(first)
            else:
                at[name] = next(_fitting(free, sizes[name]), None) or _Block(0)
                if at[name] in free:
                    free.remove(at[name])
                else:
                    blocks.append(at[name])
                at[name].size = max(at[name].size, sizes[name])
        left.subtract(step.reads)
        for name in dict.fromkeys((*step.reads, *step.makes)):
            if left[name] == 0 and name in at:
                block = at.pop(name)
                if shared:
                    clock += 1
                    block.age = clock
                    free.append(block)
    return sum(block.size for block in blocks)


def _fitting(free: list[_Block], size: int) -> Iterator[_Block]:
    above = [block for block in free if size <= block.size <= RANGE * size]
    below = [block for block in free if size <= RANGE * block.size and block.size < size]
    yield from sorted(above, key=lambda block: (block.size, block.age))
    yield from sorted(below, key=lambda block: (-block.size, block.age))
