"""Operators that PyTorch defines through others, taken apart as it does.

A capture has no such operator in its graph: PyTorch runs what it is made of. A file names it
whole, so the common ones are taken apart here; one that is not listed stays an unknown op, which
is counted and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from peakfold.frontends.aten.schema import Signature
from peakfold.frontends.aten.values import Ref
from peakfold.frontends.pt2.einsum import einsum, inner, tensordot
from peakfold.frontends.pt2.pieces import Pieces, Unknown, shape_of
from peakfold.frontends.pt2.values import Value

Apart = Callable[[Pieces, dict[str, Any], list[Value]], list[Ref]]

# The same operator under another name, with the same arguments.
_RENAMED: Final[Mapping[str, str]] = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh", "cdist": "_cdist_forward",
    "cross": "linalg_cross", "special_digamma": "digamma", "special_erf": "erf",
    "special_erfc": "erfc", "special_erfinv": "erfinv", "special_exp2": "exp2",
    "special_expm1": "expm1", "special_gammaln": "lgamma", "special_log1p": "log1p",
    "special_logit": "logit", "special_logsumexp": "logsumexp", "special_polygamma": "polygamma",
    "special_psi": "digamma", "special_sinc": "sinc",
}  # fmt: skip


def taken_apart(signature: Signature) -> Apart | None:
    """What makes the calls of a composite operator; `None` for another one."""
    if signature.domain != "aten":
        return None
    name = signature.operator
    bare, tail = (name[:-1], "_") if name.endswith("_") else (name, "")
    into = any(formal.written for formal in signature.formals) and not tail
    if bare in _RENAMED:
        other = _RENAMED[bare] + tail
        overload = "out" if into else "default"
        return lambda pieces, given, made: [_renamed(pieces, other, given, made, overload)]
    return None if into else _APART.get(name)


def _renamed(
    pieces: Pieces, other: str, given: dict[str, Any], made: list[Value], overload: str
) -> Ref:
    if other == "linalg_cross" and given.get("dim") is None:
        raise Unknown  # the first axis of three elements
    return pieces.call(other, given, made[0], overload)


def _softmax(pieces: Pieces, given: dict[str, Any], made: list[Value]) -> list[Ref]:
    if given.get("dtype") is not None:
        raise Unknown
    whole = {"self": given["self"], "dim": given["dim"], "half_to_float": False}
    return [pieces.call("_softmax", whole, made[0])]


def _meshgrid(pieces: Pieces, given: dict[str, Any], made: list[Value]) -> list[Ref]:
    sources = given["tensors"]
    if given.get("indexing", "ij") != "ij" or len(sources) != len(made):
        raise Unknown
    known = [(value.shape, value.traced) for value in made]
    if any(len(shape_of(ref)) != 1 for ref in sources) or any(t is None for _, t in known):
        raise Unknown
    found = []
    for at, (ref, (shape, then)) in enumerate(zip(sources, known, strict=True)):
        column = [1] * len(made)
        sizes = [*column[:at], ref.tensor.shape[0], *column[at + 1 :]]
        traced = [*column[:at], *shape_of(ref), *column[at + 1 :]]
        stated = [*column[:at], -1, *column[at + 1 :]]
        viewed = pieces.view(ref, sizes, traced, stated)
        found.append(pieces.expand(viewed, shape, then[0] if then else ()))
    return found


def _broadcast(pieces: Pieces, given: dict[str, Any], made: list[Value]) -> list[Ref]:
    sources = given["tensors"]
    if len(sources) != len(made) or any(value.traced is None for value in made):
        raise Unknown
    shapes = [shape_of(ref) for ref in sources]
    return [
        ref
        if value.traced is None or shape == value.traced[0]
        else pieces.expand(ref, value.shape, value.traced[0])
        for ref, shape, value in zip(sources, shapes, made, strict=True)
    ]


def _at_least(rank: int) -> Apart:
    # Where new axes go, by the rank of what is given.
    places: dict[int, dict[int, tuple[int, ...]]] = {2: {1: (0,)}, 3: {1: (0, -1), 2: (-1,)}}
    new = places.get(rank, {})

    def apart(pieces: Pieces, given: dict[str, Any], made: list[Value]) -> list[Ref]:
        source = given["self"]
        if not shape_of(source) or len(made) != 1:
            raise Unknown
        for dim in new.get(len(shape_of(source)), ()):
            source = pieces.unsqueeze(source, dim)
        return [source]

    return apart


def _cosine(pieces: Pieces, given: dict[str, Any]) -> Ref:
    one, two, dim = given["x1"], given["x2"], given["dim"]
    if one.tensor.dims != two.tensor.dims or one.tensor.dtype != two.tensor.dtype:
        raise Unknown
    then, shape = shape_of(one), list(one.tensor.shape)
    shape_of(two)
    at = dim % len(then)
    kept = [*shape[:at], 1, *shape[at + 1 :]], [*then[:at], 1, *then[at + 1 :]]
    lengths = []
    for ref in (one, two):
        asked = {"self": ref, "ord": 2, "dim": [dim], "keepdim": True}
        length = pieces.new("linalg_vector_norm", asked, *kept, ref)
        lengths.append(pieces.new("clone", {"self": length}, *kept, length))
    least = {"s": given["eps"], "dtype": one.tensor.dtype}
    bound = pieces.new("scalar_tensor", least, (), (), one)
    lengths = [
        pieces.call("clamp_min_", {"self": ref, "min": bound}, ref.tensor, "Tensor")
        for ref in lengths
    ]
    parts = [
        pieces.new("div", {"self": ref, "other": length}, shape, then, ref, "Tensor")
        for ref, length in ((two, lengths[1]), (one, lengths[0]))
    ]
    product = {"self": parts[1], "other": parts[0]}
    whole = pieces.new("mul", product, shape, then, one, "Tensor")
    return pieces.sum(whole, [dim], keep=False)


def _one(apart: Callable[[Pieces, dict[str, Any]], Ref]) -> Apart:
    return lambda pieces, given, _: [apart(pieces, given)]


_APART: Final[Mapping[str, Apart]] = {
    "atleast_1d": _at_least(1),
    "atleast_2d": _at_least(2),
    "atleast_3d": _at_least(3),
    "broadcast_tensors": _broadcast,
    "cosine_similarity": _one(_cosine),
    "einsum": _one(einsum),
    "inner": _one(inner),
    "meshgrid": _meshgrid,
    "special_softmax": _softmax,
    "tensordot": _one(tensordot),
}
