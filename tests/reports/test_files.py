from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from peakfold.errors import UsageError
from peakfold.reports.files import check_writable, write_files


def test_files_are_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_files({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "b").read_bytes() == b"2"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~mask


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(UsageError, match=r"exists already.*--force"):
        write_files({tmp_path / "a": b"new", tmp_path / "b": b"new"})
    assert (tmp_path / "a").read_text() == "old"
    assert not (tmp_path / "b").exists()
    write_files({tmp_path / "a": b"new"}, force=True)
    assert (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_midway_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    calls = 0
    real = os.replace

    def replace(source: str, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(UsageError, match="No space left"):
        write_files({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_midway_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "a": b"1"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing/a", "no such folder"), (".", "is a folder"), ("file/a", "no such folder|cannot")],
)
def test_places_that_cannot_be_written(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=message):
        check_writable([tmp_path / name])


def test_one_name_for_two_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two outputs"):
        check_writable([tmp_path / "a", tmp_path / "x" / ".." / "a"])


def test_a_device_is_written_through_and_not_replaced(tmp_path: Path) -> None:
    write_files({Path(os.devnull): b"gone"})
    assert not Path(os.devnull).is_file()


def test_a_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_files({tmp_path / "link": b"new"}, force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
