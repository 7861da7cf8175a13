"""Products of tensors by index: what PyTorch makes of `einsum`, `tensordot` and `inner`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from peakfold.frontends.aten.values import Ref
from peakfold.frontends.pt2.pieces import Pieces, Unknown, product, shape_of

_EQUATION = re.compile(r"[A-Za-z.,]+(->[A-Za-z.]*)?")
_DOTS = "..."


@dataclass
class _Labels:
    """Which axis of the common space each letter is; axes from `out` on are summed."""

    axes: dict[str, int] = field(default_factory=dict)
    dots: int = 0
    first_dot: int = 0
    out: int = 0
    count: int = 0


def einsum(pieces: Pieces, given: dict[str, Any]) -> Ref:
    """The calls of an `einsum` without a path of its own, in PyTorch's order.

    Raises:
        Unknown: it is another one.
    """
    equation, operands = given.get("equation"), given.get("tensors")
    if not isinstance(equation, str) or not isinstance(operands, list) or given.get("path"):
        raise Unknown
    text = equation.replace(" ", "")
    if _EQUATION.fullmatch(text) is None or not operands:
        raise Unknown
    lefts, arrow, right = text.partition("->")
    terms = [_letters(term) for term in lefts.split(",")]
    shapes = [shape_of(ref) for ref in operands]  # before anything is fed
    if len(terms) != len(operands):
        raise Unknown
    labels = _labels(terms, [len(s) for s in shapes], _letters(right) if arrow else None)
    counts = [0] * labels.count
    aligned = [
        _aligned(pieces, ref, term, labels, counts)
        for ref, term in zip(operands, terms, strict=True)
    ]
    whole = aligned[0]
    for other in aligned[1:]:
        whole = _pair(pieces, whole, other, labels, counts)
    if labels.count == labels.out:
        return whole
    if len(aligned) == 1:
        return pieces.sum(whole, range(labels.out, labels.count), keep=False)
    return pieces.view(whole, whole.tensor.shape[: labels.out], shape_of(whole)[: labels.out])


def _letters(term: str) -> list[str]:
    found = re.findall(r"[A-Za-z]|\.\.\.", term)
    if "".join(found) != term or found.count(_DOTS) > 1:
        raise Unknown
    return found


def _labels(terms: list[list[str]], ranks: list[int], right: list[str] | None) -> _Labels:
    labels = _Labels()
    for term, rank in zip(terms, ranks, strict=True):
        covered = rank - len([letter for letter in term if letter != _DOTS])
        if covered < 0 or (covered and _DOTS not in term):
            raise Unknown
        labels.dots = max(labels.dots, covered)
    used = [letter for term in terms for letter in term]
    if right is None:
        right = [_DOTS] if _DOTS in used else []
        right += sorted({letter for letter in used if letter != _DOTS and used.count(letter) == 1})
    if len(set(right)) < len(right) or not set(right) <= set(used):
        raise Unknown
    for letter in right:
        labels.axes[letter] = labels.count
        labels.count += labels.dots if letter == _DOTS else 1
    labels.out = labels.count
    if _DOTS in used and _DOTS not in right:
        labels.axes[_DOTS] = labels.count
        labels.count += labels.dots
    for letter in sorted(set(used) - set(labels.axes)):
        labels.axes[letter] = labels.count
        labels.count += 1
    labels.first_dot = labels.axes.get(_DOTS, 0)
    return labels


def _aligned(pieces: Pieces, ref: Ref, term: list[str], labels: _Labels, counts: list[int]) -> Ref:
    """An operand with all axes of the common space, in their order."""
    order: list[int] = [-1] * labels.count
    rank = len(shape_of(ref))
    at = 0
    for letter in term:
        if letter == _DOTS:
            covered = rank - len(term) + 1
            axes = range(labels.first_dot + labels.dots - covered, labels.first_dot + labels.dots)
        else:
            axes = range(labels.axes[letter], labels.axes[letter] + 1)
        for axis in axes:
            if order[axis] >= 0:
                ref = _diagonal(pieces, ref, order[axis], at)
                continue
            counts[axis] += shape_of(ref)[at] != 1
            order[axis] = at
            at += 1
    for axis, place in enumerate(order):
        if place < 0:
            ref = pieces.unsqueeze(ref, at)
            order[axis] = at
            at += 1
    return pieces.permute(ref, order)


def _diagonal(pieces: Pieces, ref: Ref, one: int, two: int) -> Ref:
    ref = pieces.diagonal(ref, one, two)
    last = len(shape_of(ref)) - 1
    order = list(range(last))
    return pieces.permute(ref, [*order[:one], last, *order[one:]])


def _pair(pieces: Pieces, one: Ref, two: Ref, labels: _Labels, counts: list[int]) -> Ref:
    sums: list[int] = []
    early: tuple[list[int], list[int]] = ([], [])
    for axis in range(labels.out, labels.count):
        wide = shape_of(one)[axis] != 1, shape_of(two)[axis] != 1
        if all(wide):
            counts[axis] -= 1
            if counts[axis] == 1:
                sums.append(axis)
                counts[axis] = 0
        elif counts[axis] == 1 and any(wide):
            early[0 if wide[0] else 1].append(axis)
            counts[axis] = 0
    if early[0]:
        one = pieces.sum(one, early[0], keep=True)
    if early[1]:
        two = pieces.sum(two, early[1], keep=True)
    return _summed_product(pieces, one, two, sums)


def _summed_product(pieces: Pieces, one: Ref, two: Ref, sums: list[int]) -> Ref:
    left, right = shape_of(one), shape_of(two)
    sizes = (one.tensor.shape, two.tensor.shape)
    if not sums:
        wide = [a if b == 1 else b for a, b in zip(left, right, strict=True)]
        shape = [sizes[0][d] if right[d] == 1 else sizes[1][d] for d in range(len(wide))]
        return pieces.new("mul", {"self": one, "other": two}, shape, wide, one, "Tensor")
    both: list[int] = []
    lefts: list[int] = []
    rights: list[int] = []
    for axis in range(len(left)):
        if axis not in sums:
            wide_left, wide_right = left[axis] != 1, right[axis] != 1
            (both if wide_left and wide_right else lefts if wide_left else rights).append(axis)
    order = [*both, *lefts, *sums, *rights]

    def of(side: int, axes: Sequence[int]) -> tuple[Any, int]:
        return product([sizes[side][d] for d in axes]), prod((left, right)[side][d] for d in axes)

    batch, rows, inner, columns = of(0, both), of(0, lefts), of(0, sums), of(1, rights)
    a = pieces.reshape(pieces.permute(one, order), *_apart(batch, rows, inner))
    order_two = [*both, *sums, *rights, *lefts]
    b = pieces.reshape(pieces.permute(two, order_two), *_apart(batch, inner, columns))
    made = pieces.new("bmm", {"self": a, "mat2": b}, *_apart(batch, rows, columns), a)
    axes = [(0, d) for d in (*both, *lefts)], [(1, d) for d in rights]
    ones = [(1, 1)] * len(sums)
    parts = [*(of(s, [d]) for s, d in axes[0]), *ones, *(of(s, [d]) for s, d in axes[1])]
    back = [order.index(d) for d in range(len(order))]
    return pieces.permute(pieces.view(made, *_apart(*parts)), back)


def tensordot(pieces: Pieces, given: dict[str, Any]) -> Ref:
    """The calls of a `tensordot`.

    Raises:
        Unknown: of sizes that are broadcast.
    """
    one, two = given["self"], given["other"]
    return _contracted(pieces, one, two, given["dims_self"], given["dims_other"])


def inner(pieces: Pieces, given: dict[str, Any]) -> Ref:
    """The calls of an `inner` product over last axes.

    Raises:
        Unknown: of a scalar.
    """
    return _contracted(pieces, given["self"], given["other"], [-1], [-1])


def _contracted(
    pieces: Pieces, one: Ref, two: Ref, dims_one: Sequence[int], dims_two: Sequence[int]
) -> Ref:
    shapes = shape_of(one), shape_of(two)
    asked = tuple(dims_one), tuple(dims_two)
    if not all(shapes) or len(asked[0]) != len(asked[1]):
        raise Unknown
    if any(shapes[0][a] != shapes[1][b] for a, b in zip(*asked, strict=True)):
        raise Unknown
    rest: list[list[int]] = []
    for then, dims in zip(shapes, asked, strict=True):
        gone = {d % len(then) for d in dims}
        rest.append([d for d in range(len(then)) if d not in gone])

    def of(side: int, axes: Sequence[int]) -> tuple[Any, int]:
        sizes = (one, two)[side].tensor.shape
        return product([sizes[d] for d in axes]), prod(shapes[side][d] for d in axes)

    rows, inner, columns = of(0, rest[0]), of(0, asked[0]), of(1, rest[1])
    a = pieces.reshape(pieces.permute(one, [*rest[0], *asked[0]]), *_apart(rows, inner))
    b = pieces.reshape(pieces.permute(two, [*asked[1], *rest[1]]), *_apart(inner, columns))
    made = pieces.new("mm", {"self": a, "mat2": b}, *_apart(rows, columns), a)
    return pieces.reshape(made, *_apart(*(of(side, [d]) for side in (0, 1) for d in rest[side])))


def _apart(*parts: tuple[Any, int]) -> tuple[list[Any], list[int]]:
    """Sizes, and their numbers at the capture."""
    return [size for size, _ in parts], [then for _, then in parts]
