from __future__ import annotations

import csv
import io
import json

from hypothesis import given
from hypothesis import strategies as st

from peakfold.printable import LINE, clean, csv_text, csv_value, escape_json, one_line, shorten
from peakfold.reports.records import to_json

NAMES = st.text() | st.sampled_from(
    ["=1+1", "'=1", "''@a", " =x", "-1", "+", "\t=x", "\uff1d1", "\x1b[31m", "\u202e", "a,b", '"']
)


@given(NAMES)
def test_a_cell_is_printable_no_formula_and_reads_back(name: str) -> None:
    text = csv_text([[name, 1]])
    assert text.rstrip("\n").isprintable()
    cell, one = next(csv.reader(io.StringIO(text)))
    assert one == "1"
    assert csv_value(cell) == clean(name)
    bare = cell.strip()
    assert bare[:1] not in set("=@\uff1d\uff20\t")
    if bare and bare[0] in "+-":
        float(bare)
    assert csv_text([[csv_value(cell), 1]]) == text


def test_numbers_are_no_text() -> None:
    assert csv_text([[-1, -0.5, None, ("a", "b"), True]]) == "-1,-0.5,,a b,True\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_of_the_same_value_without_anything_unprintable(name: str) -> None:
    data = json.dumps({name: name}, ensure_ascii=False, indent=2).encode()
    escaped = escape_json(data)
    assert json.loads(escaped) == {name: name}
    assert all(line.isprintable() for line in escaped.decode().split("\n"))


@given(st.text(max_size=50), st.integers(0, 5000))
def test_a_line_is_one_line_of_bearable_length(text: str, times: int) -> None:
    line = one_line(text * times)
    assert line.isprintable()
    assert len(line) <= LINE
    assert len(shorten(text * times)) <= 80


def test_to_json_is_escaped() -> None:
    from peakfold.analysis.graph.workspace_profile import SCHEMA, Profile

    name = "a\u202e\x9b\x7f\U000e0041é"
    text = to_json(Profile(schema=SCHEMA, target="t", runtime="r", model=name, ops=[]))
    assert json.loads(text)["model"] == name
    assert all(line.isprintable() for line in text.split("\n"))
    assert "é" in text
