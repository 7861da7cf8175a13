"""Layer types side by side, without a model: what else a convolution could have been (R71).

A layer is written as ``conv 3x3 64->128 @56``: kernel, channels, input height and width (``@56``
or ``@56x32``), then optionally ``s2`` (stride), ``g8`` (groups of the grouped form), ``n16``
(batch), ``bias`` and an element type. Padding keeps the size, so the output is the input divided
by the stride, rounded up. A fully connected layer is ``fc 4096->1000``, with ``n``, ``bias`` and a
type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from peakfold.analysis.cost.counting import cost_of
from peakfold.analysis.cost.records import Cost
from peakfold.arguments import digits
from peakfold.errors import UsageError
from peakfold.ir import DTYPES, AttrValue, Graph, Op, Role, Tensor, check_graph

_N = "([0-9]{1,8})"
_CONV = re.compile(rf"conv\s+{_N}(?:x{_N})?\s+{_N}\s*->\s*{_N}\s+@\s*{_N}(?:x{_N})?(.*)")
_FC = re.compile(rf"(?:fc|linear)\s+{_N}\s*->\s*{_N}(.*)")
_HINT = 'write "conv 3x3 64->128 @56", with s2 g4 n8 bias float16 as needed, or "fc 4096->1000"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer as written.

    Attributes:
        kernel, size: height and width of the kernel and of the input; empty for a fully
            connected layer.
        groups: of the grouped form.
        dtype: element type of everything.
    """

    kernel: tuple[int, ...]
    inputs: int
    outputs: int
    size: tuple[int, ...]
    stride: int = 1
    groups: int = 4
    batch: int = 1
    bias: bool = False
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to build a layer.

    Attributes:
        name: standard, grouped, depthwise, pointwise or separable.
        macs_formula: its multiply-accumulates in letters.
        ratio: its MACs over those of the standard form.
    """

    name: str
    macs_formula: str
    graph: Graph
    cost: Cost
    ratio: float


def parse_layer(text: str) -> Layer:
    """Read a layer.

    Raises:
        UsageError: what is not understood.

    Example:
        >>> layer = parse_layer("conv 3x3 64->128 @56 s2 float16")
        >>> layer.kernel, layer.size, layer.stride, layer.dtype
        ((3, 3), (56, 56), 2, 'float16')
    """
    kernel: tuple[int, ...]
    size: tuple[int, ...]
    conv, fc = _CONV.fullmatch(text.strip()), _FC.fullmatch(text.strip())
    if conv is not None:
        high, wide, inputs, outputs, height, width, rest = conv.groups()
        kernel = (int(high), int(wide or high))
        size = (int(height), int(width or height))
    elif fc is not None:
        inputs, outputs, rest = fc.groups()
        kernel, size = (), ()
    else:
        raise UsageError(f"--op {text!r} is no layer", hint=_HINT)
    words = _words(text, rest.split(), conv=conv is not None)
    layer = Layer(kernel=kernel, inputs=int(inputs), outputs=int(outputs), size=size, **words)
    numbers = (*kernel, *size, layer.inputs, layer.outputs, layer.stride, layer.groups, layer.batch)
    if min(numbers) < 1 or max(numbers) >= 1 << 24:
        raise UsageError(f"--op {text!r}: a size is 0 or absurd", hint=_HINT)
    return layer


def _words(text: str, words: list[str], *, conv: bool) -> dict[str, Any]:
    """Fields of `Layer` that the words behind the sizes set."""
    found: dict[str, Any] = {}
    letters = {"s": "stride", "g": "groups", "n": "batch"} if conv else {"n": "batch"}
    for word in words:
        if word == "bias":
            found["bias"] = True
        elif word[0] in letters and digits(word[1:]) is not None:
            found[letters[word[0]]] = int(word[1:])
        elif word in DTYPES and DTYPES[word].bits is not None:
            found["dtype"] = word
        else:
            raise UsageError(f"--op {text!r}: {word!r} is not understood", hint=_HINT)
    return found


def layer_variants(layer: Layer) -> tuple[Variant, ...]:
    """The forms of a layer, the standard one first; those that do not exist are left out.

    Example:
        >>> rows = layer_variants(parse_layer("conv 3x3 64->128 @56"))
        >>> [(row.name, row.cost.total().figures.macs) for row in rows[:2]]
        [('standard', 231211008), ('grouped', 57802752)]
        >>> round(rows[-1].ratio, 6)  # 1/128 + 1/9
        0.118924
    """
    forms = _forms(layer)
    graphs = {name: _graph(layer, convs) for name, (_, convs) in forms.items()}
    costs = {name: cost_of(graph) for name, graph in graphs.items()}
    standard = next(iter(costs.values())).total().figures.macs or 1
    return tuple(
        Variant(
            name=name,
            macs_formula=formula,
            graph=graphs[name],
            cost=costs[name],
            ratio=(costs[name].total().figures.macs or 0) / standard,
        )
        for name, (formula, _) in forms.items()
    )


def missing_forms(layer: Layer) -> dict[str, str]:
    """The forms that a layer does not have, and why.

    Example:
        >>> missing_forms(parse_layer("conv 3x3 6->8 @4 g4"))
        {'grouped': '4 groups do not divide 6 input channels'}
    """
    if not layer.kernel:
        return {}
    found: dict[str, str] = {}
    sides = (("input", layer.inputs), ("output", layer.outputs))
    uneven = [f"{count} {side}" for side, count in sides if count % layer.groups]
    if uneven:
        found["grouped"] = f"{layer.groups} groups do not divide {' and '.join(uneven)} channels"
    elif layer.groups == 1:
        found["grouped"] = "one group is the standard form"
    if layer.inputs == 1:
        found |= dict.fromkeys(("depthwise", "separable"), "there is one input channel")
    return found


_Conv = tuple[tuple[int, ...], int, int, int]  # kernel, output channels, stride, groups


def _forms(layer: Layer) -> dict[str, tuple[str, list[_Conv]]]:
    if not layer.kernel:
        return {"standard": ("N Cin Cout", [])}
    k, cin, cout, s, g = layer.kernel, layer.inputs, layer.outputs, layer.stride, layer.groups
    one = (1,) * len(k)
    forms: dict[str, tuple[str, list[_Conv]]] = {
        "standard": ("N Kh Kw Cin Cout Hout Wout", [(k, cout, s, 1)])
    }
    missing = missing_forms(layer)
    if "grouped" not in missing:
        forms["grouped"] = (f"standard / {g}", [(k, cout, s, g)])
    if "depthwise" not in missing:
        forms["depthwise"] = ("N Kh Kw Cin Hout Wout", [(k, cin, s, cin)])
    forms["pointwise"] = ("N Cin Cout Hout Wout", [(one, cout, s, 1)])
    if "separable" not in missing:
        forms["separable"] = ("depthwise + pointwise", [(k, cin, s, cin), (one, cout, 1, 1)])
    return forms


def _graph(layer: Layer, convs: list[_Conv]) -> Graph:
    element = DTYPES[layer.dtype]
    shape: tuple[int, ...] = (layer.batch, layer.inputs, *layer.size)
    tensors, ops, last = [Tensor("x", element, shape, Role.INPUT)], list[Op](), "x"

    def add(
        kind: str,
        weight: tuple[int, ...],
        channels: int,
        result: tuple[int, ...],
        attrs: dict[str, AttrValue],
    ) -> None:
        nonlocal last
        at = len(ops)
        stored = [Tensor(f"w{at}", element, weight, Role.PARAMETER)]
        if layer.bias:
            stored.append(Tensor(f"b{at}", element, (channels,), Role.PARAMETER))
        name = f"y{at}"
        made = Tensor(name, element, result)
        ops.append(Op(name, kind, (last, *(t.name for t in stored)), (name,), attrs))
        tensors.extend([*stored, made])
        last = name

    if not convs:
        add("gemm", (layer.inputs, layer.outputs), layer.outputs, (layer.batch, layer.outputs), {})
    for kernel, channels, stride, groups in convs:
        n, inner, *size = shape
        shape = (n, channels, *(-(-side // stride) for side in size))
        attrs: dict[str, AttrValue] = {
            "auto_pad": "SAME_UPPER",
            "strides": (stride,) * len(size),
            "group": groups,
        }
        add("conv", (channels, inner // groups, *kernel), channels, shape, attrs)
    # Inputs, then what is stored, then results: the order of the text form.
    tensors.sort(key=lambda t: 0 if t.role is Role.INPUT else 1 if t.role.static else 2)
    graph = Graph("layer", tuple(tensors), tuple(ops), ("x",), (last,), "pf")
    check_graph(graph)
    return graph
