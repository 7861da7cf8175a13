"""Text for a terminal: names made safe, long names shortened in the middle, tables to strings.

Names in a model file may hold anything, escape sequences included. Everything that comes from
a model passes through `clean` before it reaches a terminal.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.table import Column, Table
from rich.text import Text

from peakfold.printable import clean, shorten

DEFAULT_WIDTH = 80
CUT = "~"
"""Behind a figure whose search a limit ended."""
LEAST_WIDTH = 40
"""Characters of a line that every report takes."""
_LISTED = 8
_ITEM = 60
"""Characters of one item of a list."""
_GAP = 2
"""Blanks between columns."""
_WORD = 13
"""Characters that a column of words keeps, if that is enough."""
_SHORT = 4
"""Characters that it keeps at least."""


def cut_note(cut: bool) -> list[Text]:
    """What `CUT` means, where it stands somewhere."""
    if not cut:
        return []
    return [Text(f"{CUT} search ended by the time limit: with more time it may be less.", "yellow")]


def tell_apart(names: Sequence[str], width: int) -> list[str]:
    """Names of at most `width` characters, cut so that as many as possible stay different.

    Each is cut as `shorten` does it; those that it makes equal go without the folders that all of
    them begin and end with, and are cut at their end if that tells them apart better.

    Example:
        >>> tell_apart(["net/conv_10_wide/Relu", "net/conv_11_wide/Relu"], 12)
        ['conv_10_wide', 'conv_11_wide']
        >>> tell_apart(["net/conv_10_wide/Relu", "net/conv_11_wide/Relu"], 8)
        ['conv_10…', 'conv_11…']
    """
    cut = {name: shorten(name, width) for name in names}
    alike: dict[str, list[str]] = {}
    for name, label in cut.items():
        alike.setdefault(label, []).append(name)
    better = dict(cut)
    for group in alike.values():
        if len(group) > 1:
            better |= _within(group, width)
    chosen = max((cut, better), key=lambda labels: len(set(labels.values())))
    return [chosen[name] for name in names]


def _within(names: Sequence[str], width: int) -> dict[str, str]:
    """Labels of names that `shorten` makes equal."""
    inner = _without_common_folders([clean(name) for name in names])
    heads = [name if len(name) <= width else f"{name[: width - 1]}…" for name in inner]
    choices = ([shorten(name, width) for name in inner], heads)
    return dict(zip(names, max(choices, key=lambda labels: len(set(labels))), strict=True))


def _without_common_folders(names: Sequence[str]) -> list[str]:
    parts = [name.split("/") for name in set(names)]
    most = min(len(one) for one in parts) - 1
    head = next((at for at in range(most) if len({one[at] for one in parts}) > 1), most)
    most -= head
    tail = next((at for at in range(most) if len({one[-1 - at] for one in parts}) > 1), most)
    return ["/".join(name.split("/")[head : len(name.split("/")) - tail]) for name in names]


def listed(items: Iterable[str], most: int = _LISTED) -> str:
    """A list in one line; what does not fit is counted, never dropped in silence.

    Example:
        >>> listed(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    every = list(items)
    shown = ", ".join(shorten(item, _ITEM) for item in every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"


def waiting(after: str, before: str) -> str:
    """That one op waits for another, both still named where `listed` has shown it.

    Example:
        >>> waiting("block_1/conv_2/BiasAdd_with_a_tail", "block_1/conv_2/Relu")
        'block_1/…Add_with_a_tail waits for block_1/conv_2/Relu'
    """
    verb = " waits for "
    most = (_ITEM - len(verb)) // 2
    return f"{shorten(after, most)}{verb}{shorten(before, most)}"


def counted(count: int, noun: str) -> str:
    """A number with its noun, plural when it is not one.

    Example:
        >>> counted(1, "op"), counted(1200, "op")
        ('1 op', '1,200 ops')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def plain_table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A borderless table.

    Args:
        columns: heading and ``left`` or ``right``, each.
        rows: cells; strings are shown as they are, without markup.
    """
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for title, side in columns:
        justify: Literal["left", "right"] = "left" if side == "left" else "right"
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def heading(text: str) -> Text:
    """The title of a part of a report."""
    return Text(text, "bold")


def render(parts: Iterable[RenderableType], *, width: int, color: bool) -> str:
    """Renderables as one string that ends in a newline; without colour it is plain text.

    Lines are at most `width` characters, or `LEAST_WIDTH`. Numbers are never cut: where a table
    is too wide, its words give way, and where that is not enough it is told row by row.

    Example:
        >>> table = plain_table([("op", "left"), ("bytes", "right")], [["a" * 50, "1,234,567"]])
        >>> print(render([table], width=40, color=False).splitlines()[1])
        aaaaaaaaaaaaaaaaaaaaaaaaaaaa…  1,234,567
    """
    texts = []
    for part in parts:
        wide = max(width, LEAST_WIDTH)
        if isinstance(part, Table) and not _made_to_fit(part, wide):
            part = _row_by_row(part)
        console = Console(
            file=io.StringIO(),
            width=wide,
            force_terminal=color,
            no_color=not color,
            color_system="standard" if color else None,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
        with console.capture() as capture:
            console.print(Segments(_escaped(console.render(part))))
        texts.append(capture.get())
    return "\n".join(line.rstrip() for line in "".join(texts).splitlines()) + "\n"


def _escaped(segments: Iterable[Segment]) -> Iterator[Segment]:
    """What a part forgot to clean; line ends stay."""
    for text, style, control in segments:
        yield Segment("\n".join(map(clean, text.split("\n"))), style, control)


def _row_by_row(table: Table) -> Text:
    """A table as lines: the first cell, then every other beside its heading.

    A cell without a heading belongs to the one before it, or as the first to the one behind.
    """
    heads = [str(column.header) for column in table.columns]
    room = max(map(len, heads)) + _GAP
    lines = Text()
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        named = [(head, cell) for head, cell in zip(heads, cells, strict=True) if str(cell)]
        for at, (head, cell) in enumerate(named):
            beside = not head or (at == 1 and not named[0][0])
            lines.append("" if at == 0 else " " if beside else f"\n  {head:<{room}}")
            lines.append_text(cell if isinstance(cell, Text) else Text(str(cell)))
        lines.append("\n")
    lines.rstrip()
    return lines


def _made_to_fit(table: Table, width: int) -> bool:
    """Give the columns of words what the numbers leave of a line; whether that is enough."""
    if table.box is not None or any(column.width is not None for column in table.columns):
        return True
    widths = [_widest(column) for column in table.columns]
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    if over <= 0:
        return True
    words = [at for at, column in enumerate(table.columns) if column.justify != "right"]
    folded = [at for at in words if not table.columns[at].no_wrap]
    over = _narrow(widths, words, _narrow(widths, folded, over, _WORD), _WORD)
    if _narrow(widths, words, over, _SHORT) > 0:
        return False
    for column, needed in zip(table.columns, widths, strict=True):
        column.width = needed
    return True


def _narrow(widths: list[int], columns: Sequence[int], over: int, least: int) -> int:
    """Take characters from the widest of some columns; how many are still too many."""
    while over > 0 and columns:
        at = max(columns, key=lambda at: widths[at])
        if widths[at] <= least:
            break
        widths[at] -= 1
        over -= 1
    return over


def _widest(column: Column) -> int:
    lines = (str(text).splitlines() for text in (column.header, *column.cells))
    return max((cell_len(line) for every in lines for line in every), default=0)
