"""Writing files so that no reader ever sees half of one.

Contents go to a temporary name in the same folder and are renamed when all of them are there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from peakfold.errors import UsageError


def check_writable(paths: Sequence[Path], *, force: bool = False) -> None:
    """Refuse early what `write_files` could not or should not do.

    Raises:
        UsageError: a file that exists (without `force`), a folder that is missing or cannot
            be written, one path named twice.
    """
    seen: set[Path] = set()
    for path in paths:
        target = target_of(path)
        if target in seen:
            raise UsageError("two outputs have this one name", where=str(path))
        seen.add(target)
        with _clear(path):
            if target.is_dir():
                raise UsageError("is a folder, not a file", where=str(path))
            if _special(target):
                continue
            if target.exists() and not force:
                raise UsageError("exists already", where=str(path), hint="--force overwrites it")
        _probe(target.parent, path)


def write_files(contents: Mapping[Path, bytes], *, force: bool = False) -> None:
    """Write all files; when one cannot be written, no new file is left behind.

    Args:
        contents: bytes by path.
        force: replace files that exist.

    Raises:
        UsageError: as `check_writable`, or the disk refuses.
    """
    check_writable(list(contents), force=force)
    with contextlib.ExitStack() as stack:
        waiting: list[tuple[str, Path]] = []
        for path, data in contents.items():
            with _clear(path):
                target = target_of(path)
                if _special(target):
                    target.write_bytes(data)
                else:
                    waiting.append((stack.enter_context(_temporary(target, data)), target))
        _rename(waiting)


def _rename(waiting: Sequence[tuple[str, Path]]) -> None:
    """Rename all; when one fails, those that made a new file are taken back."""
    made: list[Path] = []
    try:
        for name, target in waiting:
            fresh = not target.exists()
            with _clear(target):
                os.replace(name, target)  # noqa: PTH105 - a name, not a path
            if fresh:
                made.append(target)
    except BaseException:  # an interrupt, too, leaves nothing half done
        for target in made:
            target.unlink(missing_ok=True)
        raise


def target_of(path: Path) -> Path:
    """The file behind a link: the link itself is kept.

    Raises:
        UsageError: the path is none.
    """
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL character
        raise UsageError(f"cannot be written: {error}", where=str(path)) from None


def _special(target: Path) -> bool:
    """A device or pipe: written through, since renaming onto it would replace it."""
    return target.exists() and not target.is_file() and not target.is_dir()


def _probe(folder: Path, path: Path) -> None:
    if not folder.is_dir():
        raise UsageError("there is no such folder", where=str(path), hint=f"create {folder}")
    with _clear(path), tempfile.NamedTemporaryFile(dir=folder, prefix=".peakfold-"):
        pass


@contextlib.contextmanager
def _temporary(target: Path, data: bytes) -> Iterator[str]:
    """A finished temporary file beside the target; gone afterwards unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".peakfold-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else _default_mode())
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def _default_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextlib.contextmanager
def _clear(path: Path) -> Iterator[None]:
    """Turn what the system says into one sentence with the file's name."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot be written: {reason}", where=str(path)) from None
