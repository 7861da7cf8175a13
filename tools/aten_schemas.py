"""Facts of PyTorch's operators, one line each: argument names, defaults, aliases, writes.

    python tools/aten_schemas.py            # writes src/peakfold/frontends/aten/aten.txt

Exported programs name their operators; with this file they are understood without PyTorch. The
line format is described in `peakfold.frontends.aten.schema`, which reads it.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.ao.quantization.fx._decomposed

PATH = Path(__file__).parent.parent / "src" / "peakfold" / "frontends" / "aten" / "aten.txt"
DOMAINS = ("aten", "prims", "quantized_decomposed")


def lines() -> list[str]:
    """One line per overload, sorted."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        domain, _, rest = name.partition("::")
        if domain not in DOMAINS:
            continue
        operator, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, domain), operator, None)
        func = getattr(packet, overload or "default", None)
        if func is not None:
            found.append(line(func))
    return sorted(found)


def line(func: torch._ops.OpOverload) -> str:
    """The facts of one overload."""
    schema = func._schema
    # `transpose_` and its like change what a tensor says of its storage, and no byte of it.
    only_metadata = torch.Tag.inplace_view in func.tags
    words = [f"{schema.name}.{schema.overload_name or 'default'}"]
    keyword = False
    for formal in schema.arguments:
        if formal.kwarg_only and not keyword:
            keyword = True
            words.append("*")
        word = formal.name + _mark(formal.alias_info, only_metadata)
        if formal.has_default_value():
            word += "=" + json.dumps(formal.default_value, separators=(",", ":"))
        words.append(word)
    returns = [_mark(one.alias_info, only_metadata) or "." for one in schema.returns]
    return " ".join([*words, "->", *returns])


def _mark(alias: object, only_metadata: bool) -> str:
    if alias is None:
        return ""
    return "!" if alias.is_write and not only_metadata else "@"


if __name__ == "__main__":
    PATH.write_text("\n".join(lines()) + "\n", "utf-8")
