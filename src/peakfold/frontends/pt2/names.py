"""Names in exported programs: operators, calls, results, modules. All are text, and stay text."""

from __future__ import annotations

import re
from typing import Final

from peakfold.frontends.aten.schema import Formal, Signature
from peakfold.frontends.pt2.schema import Node

_NAME = r"([A-Za-z_]\w*)"
OPERATOR: Final = re.compile(rf"torch\.ops\.{_NAME}\.{_NAME}(?:\.{_NAME})?", re.ASCII)
EXTENSION: Final = re.compile(rf"#{_NAME}:([\w.:]+)", re.ASCII)
# Arithmetic on sizes, and what vmap wraps: they make no tensor of their own.
PYTHON: Final = re.compile(
    r"_operator\.\w+|math\.\w+|torch\.sym_\w+|torch\._functorch\.predispatch\.\w+", re.ASCII
)


def guessed(domain: str, operator: str, node: Node) -> Signature:
    """The schema of an operator that nobody wrote down: its arguments as the file names them."""
    names = dict.fromkeys(argument.name for argument in node.inputs)
    formals = tuple(Formal(name, True, False, None, False) for name in names)
    return Signature(domain, operator, formals, (), guessed=True)


def called(node: Node) -> str:
    """The name of a call; older files name its results only."""
    if node.name:
        return node.name
    names = results_of(node)
    if len(names) == 1 and names[0] is not None:
        return names[0]
    match = OPERATOR.fullmatch(node.target)
    return match[2] if match is not None else "call"


def results_of(node: Node) -> list[str | None]:
    """Names of a call's results; `None` for what is no tensor of its own."""
    outs = node.outputs
    if len(outs) == 1 and outs[0].as_tensors is not None:
        return [named.name for named in outs[0].as_tensors]
    return [out.as_tensor.name if out.as_tensor is not None else None for out in outs]


def module_path(stack: str) -> str:
    """The path of the innermost module, of ``key,path,class;key,path,class``."""
    paths: dict[str, str] = {}
    for item in filter(None, stack.split(";")):
        key, path = [*_split(item), "", ""][:2]
        paths[key] = path
    last = next(reversed(paths.values()), "")
    return last.removeprefix("L['self'].").removeprefix("L['self']")


def _split(text: str) -> list[str]:
    """Parts between commas that lie in no brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[(") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
