import os
from io import StringIO

import pytest
from hypothesis import given

from peakfold.errors import ModelError, UsageError
from peakfold.packing import Problem, violations
from peakfold.packing import csv_format as table
from peakfold.packing.csv_format import (
    LINE_LIMIT,
    Table,
    capacity_of,
    format_csv,
    parse_csv,
    read_csv,
)
from peakfold.packing.questions.instances import anonymise, reduce, select

from .strategies import plain_problems

HEAD = "id,lower,upper,size\n"


def parse(text):
    return parse_csv(StringIO(text), "t.csv")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", "", "empty"),
        ("id,lower,size\n", "line 1", "'upper' is missing"),
        ("id,lower,upper,size,size\n", "line 1", "twice"),
        (HEAD + "a,0,1,-4\n", "line 2", "negative"),
        (HEAD + "a,-3,1,4\n", "line 2", "negative"),
        (HEAD + "a,0,1,4\nb,5,4,4\n", "line 3", "before it starts"),
        (HEAD + "a,0,1,4\na,5,6,4\n", "line 3", "first in line 2"),
        (HEAD + "a,0,1,nan\n", "line 2", "not an integer"),
        (HEAD + "a,0,1,1e3\n", "line 2", "not an integer"),
        (HEAD + "a,0,1,99999999999999999999999\n", "line 2", "not an integer"),
        (HEAD + "a,0,1,4611686018427387904\n", "line 2", "2^62"),
        (HEAD + "a,0,1,4000000000000000000\nb,0,1,4000000000000000000\n", "line 3", "add up"),
        (HEAD + "a,0,1\n", "line 2", "3 fields"),
        (HEAD + "a,0,1,4,5\n", "line 2", "5 fields"),
        (HEAD + 'a,0,1,"4\n', "line 2", "unexpected end"),
        (HEAD + "a,0,1," + "4" * LINE_LIMIT, "line 2", "longer than"),
        (HEAD + "a\0,0,1,4\n", "line 2", "NUL"),
        ("id,lower,upper,size,alignment\na,0,1,4,0\n", "line 2", "alignment"),
        ("id,lower,upper,size,alignment,offset\na,0,1,4,8,12\n", "line 2", "breaks alignment"),
        ("id,lower,upper,size,gaps\na,0,9,4,3\n", "line 2", "cannot be read"),
        (
            "id,lower,upper,size,offset,bank\na,0,1,4,0,S\nb,0,1,4,,D\nc,0,1,4,0,D\n",
            "line 4",
            "bank 'D'",
        ),
        ("id,lower,upper,size,gaps\na,0,9,4,3-12\n", "line 2", "out of order"),
        ("id,lower,upper,size,gaps\na,0,9,4,3-5@0:5\n", "line 2", "leaves its buffer"),
    ],
)
def test_bad_files_name_the_line(text, line, what):
    with pytest.raises(ModelError) as error:
        parse(text)
    assert line in str(error.value)
    assert what in str(error.value)


def test_columns_in_any_order_and_by_other_names():
    table = parse("size,end,alignment,buffer_id,begin,hint\n16,2,8,x,0,\n8,5,,y,3,7\n")
    p = table.problem
    assert (p.names, p.size.tolist(), p.align.tolist()) == (("x", "y"), [16, 8], [8, 1])
    assert (p.start.tolist(), p.stop.tolist()) == ([0, 3], [3, 6])


def test_pins_and_gaps_round_trip():
    text = (
        "id,lower,upper,size,alignment,gaps,offset\n"
        "a,0,10,16,4,2-4 6-8@0:4,8\n"
        "b,2,4,16,1,,\n"
        "c,0,3,1,1,0-3,\n"
    )
    table = parse(text)
    assert format_csv(table) == text
    assert table.problem.fixed.tolist() == [8, -1, -1]
    assert violations(table.problem, [8, 8, 8]) == []
    assert violations(parse(text.replace("2-4 ", "")).problem, [8, 8, 8])


def test_written_offsets_are_read_as_pins():
    table = parse(HEAD + "a,0,2,16\nb,1,3,8\n")
    assert parse(format_csv(table, [8, 0])).problem.fixed.tolist() == [8, 0]


@given(plain_problems(aligned=True, pinned=True))
def test_round_trip(problem):
    table = Table(problem, problem.start, problem.stop, ("",) * problem.buffers)
    again = parse(format_csv(table)).problem
    for column in ("size", "align", "fixed", "start", "stop", "lower", "upper"):
        assert getattr(again, column).tolist() == getattr(problem, column).tolist()


@given(plain_problems(aligned=True))
def test_anonymised_instances_have_the_same_conflicts(problem):
    names = tuple(f"secret{b}" for b in range(problem.buffers))
    start, stop = problem.start * 7, problem.stop * 7
    named = Problem.of(start, stop, problem.size, align=problem.align, names=names)
    named = parse(format_csv(Table(named, start, stop, ("",) * len(names))))
    text = format_csv(anonymise(named))
    assert "secret" not in text
    assert sorted(_conflicts(anonymise(named).problem)) == sorted(_conflicts(named.problem))


def _conflicts(p):
    return [
        sorted([(int(p.size[a]), int(p.align[a])), (int(p.size[b]), int(p.align[b]))])
        for a in range(p.buffers)
        for b in range(a)
        if max(p.start[a], p.start[b]) < min(p.stop[a], p.stop[b])
    ]


def test_reduce_leaves_only_what_is_needed():
    rows = "".join(f"b{i},{i},{i + 3},{i + 1}\n" for i in range(40))
    table = parse(HEAD + rows)
    smaller = reduce(table, lambda p: {"b7", "b21"} <= set(p.names))
    assert smaller.problem.names == ("b7", "b21")
    assert select(table, smaller.lower).problem.names == ("b7", "b21")


def test_unreadable_files(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="no such file"):
        read_csv(tmp_path / "none.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv", "."):
        with pytest.raises(UsageError, match="no regular file|is a folder"):
            read_csv(tmp_path / name)
    monkeypatch.setattr(table, "MAX_BYTES", 10)
    (tmp_path / "large.csv").write_bytes(b"id,lower,upper,size\n")
    with pytest.raises(ModelError, match="at most 10"):
        read_csv(tmp_path / "large.csv")
    monkeypatch.undo()
    (tmp_path / "bytes.csv").write_bytes(b"id,lower,upper,size\n\xff,0,1,2\n")
    with pytest.raises(ModelError, match="UTF-8"):
        read_csv(tmp_path / "bytes.csv")


def test_capacity_in_the_name():
    assert capacity_of("/x/A.1048576.csv") == 1048576
    assert capacity_of("input.csv") is None
