"""A plan as a C header: sizes and offsets as constants, with checks the compiler makes."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from peakfold.planning import Plan
from peakfold.printable import csv_text, shorten

_GUARD = "PEAKFOLD_PLAN_H_"


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor, scratch or copy in the arena; steps are half-open, offsets and sizes bytes."""

    name: str
    what: str
    offset: int
    size: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Whole:
    """What a runtime takes beside the planned part of its arena; bytes.

    Attributes:
        total: of the whole arena; `None` = not known.
        least: a lower bound of it; `None` where nothing is known.
        says: what the figure holds for, or why there is none.
    """

    total: int | None
    least: int | None
    says: str


def rows_of(plan: Plan, ops: tuple[str, ...] = ()) -> list[Row]:
    """What lies in the arena, by offset, then by first step.

    Args:
        plan: the plan.
        ops: names of the ops, for scratch; positions stand in for missing ones.
    """
    rows: list[Row] = []
    for buffer in plan.buffers:
        start = min(piece.start for piece in buffer.live)
        stop = max(piece.stop for piece in buffer.live)
        if buffer.what == "workspace":
            at = buffer.op or 0
            name = ops[at] if at < len(ops) else f"op {at}"
            rows.append(Row(name, "workspace", buffer.offset, buffer.size, start, stop))
            continue
        rows += [
            Row(place.tensor, buffer.what, buffer.offset + place.offset, place.nbytes, start, stop)
            for place in buffer.tensors
        ]
    return sorted(rows, key=lambda row: (row.offset, row.start, row.name))


def plan_csv(plan: Plan, ops: tuple[str, ...] = ()) -> str:
    """The same as a table: ``id,what,lower,upper,size,offset``.

    Steps ``[lower, upper)`` are those of the whole buffer that a tensor lies in.
    """
    rows = rows_of(plan, ops)
    return csv_text(
        [
            ("id", "what", "lower", "upper", "size", "offset"),
            *((row.name, row.what, row.start, row.stop, row.size, row.offset) for row in rows),
        ]
    )


def c_header(
    plan: Plan, ops: tuple[str, ...] = (), whole: Whole | None = None, model: str = ""
) -> str:
    """A header for C99, C11 and C++: arena size, alignment, an offset and a size per tensor.

    ``PEAKFOLD_ARENA_BYTES`` is what the runtime must be given, and is left out where that is not
    known; ``PEAKFOLD_ARENA_HEAD_BYTES`` is the planned part of it, which begins at its first byte.
    Names are made legal identifiers, distinct without regard to case; the tensor's own name
    stands in a comment beside it.

    Args:
        plan: the plan.
        ops: names of the ops, for scratch.
        whole: of a runtime with records of its own in the arena; by default there are none.
        model: what it is a plan of; by default the name of its graph.
    """
    rows, align = rows_of(plan, ops), plan.policies.align
    ids = _identifiers(
        [f"{row.what}_{row.name}" if row.what != "tensor" else row.name for row in rows]
    )
    body = [
        f"/* Memory plan of {_comment(model or plan.graph.name)}, made by peakfold {plan.version}.",
        f" * Target {plan.target}; {len(rows)} tensors and scratch buffers in one arena. */",
        f"#ifndef {_GUARD}",
        f"#define {_GUARD}",
        "",
        *_sizes(plan, whole or Whole(plan.arena_bytes, None, "The arena.")),
        f"#define PEAKFOLD_ARENA_ALIGN {align}u",
        f"#define PEAKFOLD_TENSORS {len(rows)}u",
        "",
        "/* Bytes from the arena's first byte, and of the tensor. */",
    ]
    for row, name in zip(rows, ids, strict=True):
        body += [
            f"#define PEAKFOLD_OFFSET_{name} {row.offset}u  /* {_comment(row.name)} */",
            f"#define PEAKFOLD_SIZE_{name} {row.size}u",
        ]
    body += ["", *_asserts(ids), "", f"#endif /* {_GUARD} */", ""]
    return "\n".join(body)


def _sizes(plan: Plan, whole: Whole) -> list[str]:
    says = [f"/* {_harmless(line)} */" for line in textwrap.wrap(whole.says, 94)]
    sizes = []
    if whole.total is not None:
        sizes = [f"#define PEAKFOLD_ARENA_BYTES {whole.total}u"]
    elif whole.least is not None:
        sizes = [f"#define PEAKFOLD_ARENA_AT_LEAST_BYTES {whole.least}u"]
    head = "/* The planned part, at the start of the arena. */"
    return [*says, *sizes, head, f"#define PEAKFOLD_ARENA_HEAD_BYTES {plan.arena_bytes}u"]


def _asserts(ids: list[str]) -> list[str]:
    """Checks at compile time, in C++11, in C11, and in C99 by an array of negative size."""
    checks = [
        f"PEAKFOLD_ASSERT({name}, PEAKFOLD_OFFSET_{name} + PEAKFOLD_SIZE_{name} "
        f"<= PEAKFOLD_ARENA_HEAD_BYTES);"
        for name in ids
    ]
    return [
        "#if defined(__cplusplus) && __cplusplus >= 201103L",
        "#define PEAKFOLD_ASSERT(name, ok) static_assert(ok, #name)",
        "#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L",
        "#define PEAKFOLD_ASSERT(name, ok) _Static_assert(ok, #name)",
        "#else",
        "#define PEAKFOLD_ASSERT(name, ok) typedef char peakfold_assert_##name[(ok) ? 1 : -1]",
        "#endif",
        "",
        "PEAKFOLD_ASSERT(align, (PEAKFOLD_ARENA_ALIGN & (PEAKFOLD_ARENA_ALIGN - 1u)) == 0u);",
        *checks,
    ]


def _identifiers(names: list[str]) -> list[str]:
    """Legal and distinct: anything else becomes an underscore, a repeated name gets a number.

    Example:
        >>> _identifiers(["conv/1", "conv_1", "x"])
        ['CONV_1', 'CONV_1_2', 'X']
    """
    made: list[str] = []
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "TENSOR"
        stem = stem[:120]
        unique, number = stem, 1
        while unique in taken:
            number += 1
            unique = f"{stem}_{number}"
        taken.add(unique)
        made.append(unique)
    return made


def _comment(text: str) -> str:
    """A name as `_harmless` text of bearable length."""
    return _harmless(shorten(text))


def _harmless(text: str) -> str:
    """Text that cannot end its comment, begin a line, or form a trigraph."""
    safe = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return safe.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").rstrip("\\")
