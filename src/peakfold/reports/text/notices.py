"""What a reader must know before trusting the figures; always shown when there is anything.

Kinds without a row in the registry, values whose size no graph states, scratch that only a
kernel knows, copies the runtime must make, and what the front end noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from peakfold.printable import clean
from peakfold.reports.text.tables import counted, heading, listed


def notices(
    *,
    unsupported: Mapping[str, int],
    uncounted: Mapping[str, int] | None = None,
    opaque: Sequence[str] = (),
    copies: Sequence[str] = (),
    workspace_unknown: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> list[str]:
    """One sentence each; empty when there is nothing to tell.

    Example:
        >>> notices(unsupported={"warp": 2})
        ['unsupported: warp (2): no alias, nothing in place and no cost is assumed for them']
    """
    lines: list[str] = []
    if unsupported:
        lines.append(
            f"unsupported: {_kinds(unsupported)}: no alias, nothing in place and no cost is "
            "assumed for them"
        )
    partly = {k: n for k, n in (uncounted or {}).items() if k not in unsupported}
    if partly:
        lines.append(
            f"cost not wholly known: {_kinds(partly)}: totals marked >= leave something out"
        )
    if opaque:
        lines.append(
            f"size unknown, outside every figure: {counted(len(opaque), 'tensor')} "
            f"({listed(opaque)})"
        )
    if copies:
        lines.append(
            f"copies the runtime must make: {listed(copies)} (their bytes belong to an input, "
            "a parameter or another output)"
        )
    if workspace_unknown:
        lines.append(
            f"kernel scratch not counted, only the kernel knows it: {_kinds(workspace_unknown)}"
        )
    lines += [clean(note) for note in notes]
    return lines


def _kinds(counts: Mapping[str, int]) -> str:
    return listed(f"{kind} ({count})" for kind, count in counts.items())


def notice_part(lines: Sequence[str]) -> list[RenderableType]:
    """The lines as a part of a report, wrapped with a hanging bullet."""
    if not lines:
        return []
    return ["", heading("Good to know"), *(Text(f"- {line}") for line in lines)]
