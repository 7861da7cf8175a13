"""Files that a front end is given: kinds, sizes, encodings, and what no reader foresees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peakfold import frontends
from peakfold.errors import ModelError, UsageError
from peakfold.frontends import load
from peakfold.frontends import pf as text
from peakfold.ir import line

RELU = "peakfold-graph 1\ninput x: int8[4]\ny: int8[4] = relu(x)\noutput y\n"


def written(folder: Path, data: str | bytes, name: str = "m.pf") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize("suffix", frontends.FORMATS)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "missing", "loop"])
def test_only_regular_files_are_opened(suffix: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"m{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_name_with_a_nul_character_is_no_file() -> None:
    with pytest.raises(UsageError):
        load("a\0b.pf")


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + RELU.encode(),
        RELU.replace("\n", "\r\n").encode(),
    ],
)
def test_a_byte_order_mark_and_other_line_ends_are_text(data: bytes, tmp_path: Path) -> None:
    assert load(written(tmp_path, data)).graph == load(written(tmp_path, RELU, "n.pf")).graph


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not UTF-8"):
        load(written(tmp_path, b"peakfold-graph 1\n\xff"))


def test_a_file_or_line_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "LONGEST", 100)
    with pytest.raises(ModelError, match=r"line 2: it is longer than 100"):
        load(written(tmp_path, "peakfold-graph 1\ninput " + '"' + "x" * 200 + '": int8[4]\n'))
    monkeypatch.setattr(text, "MAX_BYTES", 50)
    with pytest.raises(ModelError, match="at most 50"):
        load(written(tmp_path, RELU))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("y: int8[4] = relu(x, k=99999999999999999999999)", "more than 64 bits"),
        ("y: int8[99999999999999999999999] = relu(x)", "more than 64 bits|absurd"),
        ("y: int8[4] = relu(x, k=[[1]])", "list in a list"),
        ("y: int8[4] = relu(x, k=" + "[" * 5000 + "]" * 5000 + ")", "list in a list"),
        ('y: int8? = foo(x) views=["0<0+461168601842738790"]', "leaves its base"),
        ('y: int8[4] = foo(x) overlap=["0-9223372036854775808"]', "overlap"),
        ("y: int8[4] = foo(x) workspace=9223372036854775808", "workspace"),
    ],
)
def test_numbers_and_lists_of_the_text_form_are_bounded(
    statement: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=words):
        load(written(tmp_path, f"peakfold-graph 1\ninput x: int8[4]\n{statement}\noutput y\n"))


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (KeyError("what"), "cannot be read: KeyError: 'what'.*please report"),
        (RecursionError("deep"), "nests too deeply"),
        (MemoryError(), "more memory than there is"),
        (ValueError("x" * 10**6), "cannot be read: ValueError"),
    ],
)
def test_what_no_reader_foresees_is_one_short_line(
    raised: Exception, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise raised

    monkeypatch.setitem(frontends._READERS, ".pf", broken)
    with pytest.raises(ModelError, match=words) as caught:
        load(written(tmp_path, RELU))
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is raised


def test_an_endless_name_is_shortened_in_errors(tmp_path: Path) -> None:
    name = "n" * 10**6
    with pytest.raises(ModelError) as caught:
        load(written(tmp_path, f"peakfold-graph 1\ninput x: int8[4]\ny: int8[4] = relu({name})\n"))
    assert "…" in str(caught.value)
    assert len(str(caught.value)) < 3200
