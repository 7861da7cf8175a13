"""Tensors in anything: lists and dicts, caches, data classes, whatever keeps them in attributes.

One walk finds them, one copy changes them. A copy is made of every object that has a state, so
whatever a forward pass does to its arguments happens to the copy.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path, tree_map_with_path

from peakfold.errors import ModelError

Change = Callable[[torch.Tensor], Any]

_TREES = (list, tuple, dict, OrderedDict, defaultdict, deque)
_BARE = (
    str, bytes, bytearray, bool, int, float, complex, type, FunctionType, ModuleType,
    torch.dtype, torch.device, torch.Size, torch.SymInt, torch.SymFloat, torch.SymBool,
)  # fmt: skip


def named_tensors(tree: Any, *, modules: bool = True) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The tensors of a tree of arguments, those in objects included, in a fixed order.

    Args:
        tree: lists, tuples and dicts of tensors and objects; an object is opened once each time
            that the tree holds it, and a tensor in it comes once.
        modules: open modules, too.

    Yields:
        The path to it (positions, keys, names of attributes) and the tensor.

    Example:
        >>> from types import SimpleNamespace
        >>> box = SimpleNamespace(keys=[torch.zeros(2), torch.ones(3)], length=4)
        >>> [(path, tuple(t.shape)) for path, t in named_tensors((box,))]
        [((0, 'keys', 0), (2,)), ((0, 'keys', 1), (3,))]
    """
    for path, leaf in tree_flatten_with_path(tree, is_leaf=is_leaf)[0]:
        at = tuple(_key(key) for key in path)
        if isinstance(leaf, torch.Tensor):
            yield at, leaf
        else:
            yield from _inside(leaf, at, {}, modules)


def tensors_of(tree: Any, *, modules: bool = True) -> list[torch.Tensor]:
    """The tensors of a tree, as `named_tensors` finds them."""
    if _bare(tree):
        return []
    if type(tree) in _TREES:
        parts = tree.values() if isinstance(tree, dict) else tree
        if all(map(_bare, parts)):
            return []
    return [tensor for _, tensor in named_tensors(tree, modules=modules)]


def changed(tree: Any, change: Change) -> Any:
    """A copy of a tree with another tensor in place of each; one held twice stays one.

    Args:
        tree: of arguments; objects are copied, and keep their types.
        change: from a tensor to what takes its place.

    Raises:
        ModelError: an object that holds tensors cannot be copied; names the argument.

    Example:
        >>> from types import SimpleNamespace
        >>> box = SimpleNamespace(keys=torch.zeros(2), length=4)
        >>> changed([box], lambda t: t + 1), box.keys
        ([namespace(keys=tensor([1., 1.]), length=4)], tensor([0., 0.]))
    """
    memo: dict[int, Any] = {}
    held: list[torch.Tensor] = []  # as long as the memo knows them by address

    def once(tensor: torch.Tensor) -> Any:
        if id(tensor) not in memo:
            memo[id(tensor)] = change(tensor)
            held.append(tensor)
        return memo[id(tensor)]

    def convert(path: Any, leaf: Any) -> Any:
        return once(leaf) if isinstance(leaf, torch.Tensor) else _copied(leaf, path, once, memo)

    return tree_map_with_path(convert, tree, is_leaf=is_leaf)


def opened(leaf: Any) -> dict[str, torch.Tensor]:
    """The tensors of one object by path, to give it to those who know only trees."""
    return {".".join(map(str, path)): tensor for path, tensor in named_tensors(leaf)}


def closed(leaf: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """A copy of an object with these tensors in place of its own, by the paths of `opened`."""
    of = {id(tensor): tensors[path] for path, tensor in opened(leaf).items()}
    return changed(leaf, lambda tensor: of[id(tensor)])


def is_object(leaf: Any) -> bool:
    """Whether something is neither a tensor nor a number, nor a tree of such: it has a state."""
    return not isinstance(leaf, torch.Tensor) and not _bare(leaf) and is_leaf(leaf)


def is_leaf(value: Any) -> bool:
    """Whether a tree ends here: only Python's own containers are taken apart."""
    kind = type(value)
    return kind not in _TREES and not (isinstance(value, tuple) and hasattr(kind, "_fields"))


def _key(key: Any) -> Any:
    return getattr(key, "idx", getattr(key, "key", getattr(key, "name", "")))


def _bare(value: Any) -> bool:
    return value is None or isinstance(value, _BARE)


def _inside(
    value: Any, path: tuple[Any, ...], seen: dict[int, Any], modules: bool
) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    if _bare(value) or id(value) in seen or (not modules and isinstance(value, torch.nn.Module)):
        return
    seen[id(value)] = value  # kept: a part made for the walk must not lend its address
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    for key, part in _state(value):
        yield from _inside(part, (*path, key) if key != "" else path, seen, modules)


def _state(value: Any) -> Iterator[tuple[Any, Any]]:
    """What an object holds: items, attributes, slots, what a function is bound to."""
    if isinstance(value, MethodType):
        yield "", value.__self__
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple | deque | set | frozenset):
        yield from enumerate(value)
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        for name in _slots(kind):
            if hasattr(value, name):
                yield name, getattr(value, name)


def _slots(kind: type) -> Sequence[str]:
    found = vars(kind).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    hidden = f"_{kind.__name__.lstrip('_')}"
    private = [n.startswith("__") and not n.endswith("__") for n in names]
    given = [hidden + n if own else n for n, own in zip(names, private, strict=True)]
    return [name for name in given if name not in ("__dict__", "__weakref__")]


def _copied(leaf: Any, path: Any, once: Change, memo: dict[int, Any]) -> Any:
    """A copy of an object; one that has no state, or refuses and holds no tensor, is itself."""
    if _bare(leaf) or next(_state(leaf), None) is None:
        return leaf
    inside = [tensor for _, tensor in _inside(leaf, (), {}, True)]
    for tensor in inside:
        once(tensor)
    try:
        return copy.deepcopy(leaf, memo)
    except Exception as error:  # copying runs the user's own code
        if not inside:
            return leaf
        raise ModelError(
            f"a {type(leaf).__name__} that holds tensors cannot be copied: "
            f"{type(error).__name__}: {error}",
            where=f"argument {_told(path)}",
            hint="a copy of it is captured, so that the object itself is left as it is: "
            "give the class a __deepcopy__, or pass its tensors",
        ) from None


def _told(path: Any) -> str:
    """A path in ``(args, kwargs)``: the position or the keyword, and what follows."""
    keys = [_key(key) for key in path]
    keys = keys[1:] if len(keys) > 1 and keys[0] in (0, 1) else keys
    return repr(".".join(map(str, keys)))


__all__ = ["changed", "closed", "is_leaf", "is_object", "named_tensors", "opened", "tensors_of"]
