"""What the ops of a backward pass read, told from the registry's `grad` column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from peakfold.ir import Op
from peakfold.ops.spec import GradReads, GradSpec

Profile = Literal["minimal", "mxnet"]


def groups(
    spec: GradSpec, positions: list[int], profile: Profile
) -> Iterator[tuple[list[int], GradReads]]:
    """Operands whose gradients one op makes, parameters first: their readers die early.

    Args:
        spec: of the forward op.
        positions: of its operands that get a gradient.
        profile: which declaration holds.

    Example:
        >>> spec = GradSpec({0: GradReads(("dy", "x1")), 1: GradReads(("dy", "x0"))})
        >>> [(at, reads.tokens) for at, reads in groups(spec, [0, 1], "minimal")]
        [([1], ('dy', 'x0')), ([0], ('dy', 'x1'))]
    """
    if profile == "mxnet" and spec.mxnet is not None:
        yield positions, spec.mxnet
    elif spec.joint or profile == "mxnet":
        found = [spec.wrt.get(at) or spec.wrt[-1] for at in positions]
        tokens = dict.fromkeys(token for reads in found for token in reads.tokens)
        forms = {reads.form for reads in found}
        yield positions, GradReads(tuple(tokens), forms.pop() if len(forms) == 1 else "other")
    else:
        for at in sorted(positions, reverse=True):
            yield [at], spec.wrt.get(at) or spec.wrt[-1]


def operands_of(
    op: Op, reads: GradReads, group: list[int], incoming: tuple[str, ...]
) -> Iterator[str]:
    """Tensors that the gradient op of some operands reads; one may come twice.

    Args:
        op: the forward op.
        reads: what is declared.
        group: positions of the operands whose gradients it makes.
        incoming: gradients of the forward op's outputs; empty where there is none.
    """
    for token in reads.tokens:
        if token == "dy":
            yield from filter(None, incoming)
        elif token == "y":
            yield op.outputs[0]
        elif token == "y*":
            yield from op.results
        elif token in ("x*", "others"):
            left = group if token == "others" else []
            yield from (x for at, x in enumerate(op.inputs) if x and at not in left)
        else:
            names = op.outputs if token[0] == "o" else op.inputs
            at = int(token[1:])
            if at < len(names) and names[at]:
                yield names[at]
