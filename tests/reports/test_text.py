from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from peakfold.printable import clean, shorten
from peakfold.reports.text.tables import listed, plain_table, render, tell_apart, waiting


@given(st.text())
def test_clean_leaves_nothing_that_moves_a_cursor(text: str) -> None:
    assert clean(text).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"])))
def test_clean_keeps_printable_text(text: str) -> None:
    if text.isprintable():
        assert clean(text) == text


@given(st.text(), st.integers(3, 60))
def test_shorten_keeps_to_the_width_and_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) <= width
    head, cut, tail = short.partition("…")
    if len(clean(text)) > width:
        assert cut
        assert clean(text).startswith(head)
        assert clean(text).endswith(tail)
        assert len(tail) >= len(head)


@given(st.lists(st.text("ab", min_size=1), max_size=20), st.integers(1, 8))
def test_listed_counts_what_it_leaves_out(items: list[str], most: int) -> None:
    text = listed(items, most)
    left = len(items) - most
    assert (f"and {left} more" in text) == (left > 0)


def test_render_shows_markup_as_it_is() -> None:
    table = plain_table([("[red]head", "left")], [["[bold]cell[/]"], [Text("[x]")]])
    text = render([table, "[blue]plain"], width=60, color=False)
    assert "[red]head" in text
    assert "[bold]cell[/]" in text
    assert "[blue]plain" in text


def test_render_without_colour_is_plain_and_with_it_is_not() -> None:
    part = Text("word", "bold red")
    assert "\x1b" not in render([part], width=60, color=False)
    assert "\x1b[" in render([part], width=60, color=True)


@given(st.lists(st.text(alphabet="ab/1", max_size=24), max_size=8), st.integers(8, 30))
def test_names_told_apart_keep_to_the_width_and_differ_no_less_than_cut_ones(
    names: list[str], width: int
) -> None:
    found = tell_apart(names, width)
    assert len(found) == len(names)
    assert all(len(name) <= width for name in found)
    assert len(set(found)) >= len({shorten(name, width) for name in names})
    if all(len(name) <= width for name in names):
        assert found == names


def test_layers_of_one_folder_are_told_apart() -> None:
    names = [f"Net/Net/Conv2d_{at}_pointwise/Relu6" for at in range(14)]
    assert len({shorten(name, 14) for name in names}) == 1
    assert len(set(tell_apart(names, 14))) == 14


@given(st.text("ab/_", min_size=1), st.text("cd/_", min_size=1))
def test_a_list_of_waits_cuts_names_and_never_the_verb(after: str, before: str) -> None:
    text = listed([waiting(after, before)])
    one, verb, two = text.partition(" waits for ")
    assert verb
    assert one == shorten(after, len(one))
    assert two == shorten(before, len(two))


@given(
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=60), st.integers(0, 10**9)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 6),
    st.integers(40, 120),
)
def test_a_table_cuts_words_and_never_a_number(
    rows: list[tuple[str, int]], numbers: int, width: int
) -> None:
    cells = [[name, *[f"{number:,}"] * numbers] for name, number in rows]
    columns = [("op", "left"), *[("bytes moved", "right")] * numbers]
    lines = render([plain_table(columns, cells)], width=width, color=False).splitlines()
    assert max(map(len, lines)) <= max(width, max(len(name) for name, _ in rows))
    if len(lines) == len(rows) + 1:
        for line, (name, *figures) in zip(lines[1:], cells, strict=True):
            assert line.split()[-numbers:] == figures
            assert line.startswith(name[:3])
        assert max(map(len, lines)) <= width
        return
    assert width < numbers * (max(11, len(cells[0][1])) + 2) + 13
    told = " ".join(lines).split()
    for _, *figures in cells:  # row by row: every number still stands, whole
        assert told.count(figures[0]) >= numbers
