"""Operators that nobody wrote down: they may write whatever they are given.

What they may have written is a result of theirs. Where nothing reads it, nobody can tell whether
it was written, and it is taken away again: most such operators write nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from peakfold.frontends.aten.schema import Signature
from peakfold.ir import Op, Stated


@dataclass(frozen=True, slots=True)
class Doubt:
    """Results that an op may make.

    Attributes:
        sure: how many results, the first ones, it makes for sure.
        over: per result the operand that it is a new version of; `None` for one that lies
            elsewhere, or in a static tensor.
    """

    sure: int
    over: tuple[int | None, ...]


def is_doubtful(signature: Signature, kind: str, made: int) -> bool:
    """Whether an operator may write what it is given.

    Args:
        signature: its schema.
        kind: its kind; what the registry knows of another domain than ATen's computes results.
        made: how many tensors it makes; of a higher order, one that makes none is there to write.

    Example:
        >>> warp = Signature("mine", "warp", (), (), guessed=True)
        >>> is_doubtful(warp, "mine::warp", 1)
        True
    """
    if signature.domain == "higher_order":
        return made == 0
    known = "::" not in kind and signature.domain != "aten"
    return signature.guessed and not (known and made and not signature.operator.endswith("_"))


def settled(
    ops: Sequence[Op], doubts: Mapping[int, Doubt], used: Collection[str]
) -> tuple[tuple[Op, ...], set[str]]:
    """Ops without the results that they may make and nothing reads, and the names of these.

    Args:
        ops: all ops.
        doubts: what is in doubt, by position.
        used: names that are read or are outputs.
    """
    found, gone = list(ops), set[str]()
    for at, doubt in doubts.items():
        op = ops[at]
        kept = [i for i, name in enumerate(op.outputs) if i < doubt.sure or name in used]
        kept = kept or [len(op.outputs) - 1]  # a call is never dropped
        gone.update(set(op.outputs) - {op.outputs[i] for i in kept})
        stated = op.stated or Stated()
        views = tuple(
            replace(view, output=kept.index(view.output))
            for view in stated.views or ()
            if view.output in kept
        )
        first = doubt.over[kept[0]]
        stated = replace(stated, inplace=() if first is None else (first,), views=views)
        found[at] = replace(op, outputs=tuple(op.outputs[i] for i in kept), stated=stated)
    return tuple(found), gone
