"""The one boundary around readers that others wrote, and around the files they are given.

A parser of a foreign library may raise anything, print anything, and read without end. What is
read goes through `read_file`, which takes regular files up to a size; the parser runs inside
`foreign`, which turns whatever it raises into one error of ours and swallows what it prints.
"""

from __future__ import annotations

import io
import logging
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from pathlib import Path

from peakfold.errors import ModelError, PeakfoldError, UsageError

SHOWN = 300
"""Characters of a foreign message that an error of ours repeats."""

_LFS_POINTER = b"version https://git-lfs"
_LFS_LIMIT = 1024
"""Bytes that a pointer of Git LFS never reaches."""

_ONE_AT_A_TIME = threading.RLock()
_TRUST: ContextVar[bool] = ContextVar("peakfold_trust", default=False)
_STRICT: ContextVar[bool] = ContextVar("peakfold_strict", default=False)
_ROUTE: ContextVar[str] = ContextVar("peakfold_route", default="")


def read_file(path: Path, limit: int, what: str = "a model") -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file; a link is followed.
        limit: bytes; a larger file is refused before it is read.
        what: what it is read as, for the message: ``a plan``.

    Raises:
        UsageError: it is missing, a folder, a device or a pipe, or cannot be read.
        ModelError: it is larger than `limit`.

    Example:
        >>> read_file(Path("/dev/null"), 10)
        Traceback (most recent call last):
        peakfold.errors.UsageError: /dev/null: it is no regular file
    """
    where = str(path)
    size = file_size(path)
    if size > limit:
        raise ModelError(f"it has {size} bytes; {what} has at most {limit}", where=where)
    with readable(path), path.open("rb") as stream:
        data = stream.read(limit + 1)  # it may have grown, or /proc may tell no size
    if len(data) > limit:
        raise ModelError(f"{what} has at most {limit} bytes, and it has more", where=where)
    return data


def is_pointer(path: Path) -> bool:
    """Whether Git LFS holds the contents of a file elsewhere.

    Raises:
        UsageError: as `read_file`.
    """
    if file_size(path) >= _LFS_LIMIT:
        return False
    with readable(path), path.open("rb") as stream:
        return stream.read(len(_LFS_POINTER)) == _LFS_POINTER


def read_text(path: Path, limit: int, what: str) -> str:
    """The text of a regular file in UTF-8, with a byte-order mark or without.

    Raises:
        UsageError, ModelError: as `read_file`.
        ModelError: it is no text.
    """
    try:
        return read_file(path, limit, what).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError("is not UTF-8 text", where=str(path)) from None


def file_size(path: Path) -> int:
    """Bytes of a regular file; a link is followed.

    Raises:
        UsageError: it is missing, a folder, a device or a pipe, or cannot be looked at.
    """
    with readable(path):
        found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise UsageError("is a folder, not a file", where=str(path))
    if not stat.S_ISREG(found.st_mode):
        raise UsageError("it is no regular file", where=str(path))
    return found.st_size


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the system says of a file is an error of ours.

    Raises:
        UsageError: in the system's words.
    """
    where = str(path)
    try:
        yield
    except FileNotFoundError:
        raise UsageError("no such file", where=where) from None
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=where) from None
    except ValueError as error:  # a NUL character in the path
        raise UsageError(f"cannot be read: {error}", where=where) from None


@contextmanager
def foreign(
    what: str, where: str = "", hint: str = "", *, error: type[PeakfoldError] = ModelError
) -> Iterator[None]:
    """Code of others on bytes of others: every exception is one error, every word is swallowed.

    Args:
        what: what is wrong if it fails; the first line of its own message follows.
        where: file, op or tensor that is read.
        hint: what the user can do next.
        error: class of what is raised.

    Raises:
        PeakfoldError: of class `error`; errors of ours pass as they are.

    Example:
        >>> with foreign("no number"):
        ...     int("seven")
        Traceback (most recent call last):
        peakfold.errors.ModelError: no number: invalid literal for int() with base 10: 'seven'
    """
    try:
        with silenced():
            yield
    except PeakfoldError:
        raise
    except Exception as raised:  # whatever a foreign library raises
        raise error(f"{what}: {first_line(raised)}", where=where, hint=hint) from None


@contextmanager
def silenced() -> Iterator[None]:
    """Warnings, log records and what is printed by Python code go nowhere.

    Streams are the process's, so threads enter one at a time.
    """
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        nowhere = io.StringIO()
        try:
            with redirect_stderr(nowhere), redirect_stdout(nowhere):
                yield
        finally:
            logging.disable(before)


def first_line(raised: BaseException) -> str:
    """What an exception says, in one short line; its class where it says nothing.

    Example:
        >>> first_line(ValueError("one\\ntwo")), first_line(KeyError())
        ('one', 'KeyError')
    """
    if isinstance(raised, RecursionError):
        return "it nests too deeply"
    if isinstance(raised, MemoryError):
        return "it asks for more memory than there is"
    said = str(raised).strip()
    line = said.splitlines()[0] if said else type(raised).__name__
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


@contextmanager
def trusting() -> Iterator[None]:
    """Inside, loaders of others may read a model even where they run code of the file.

    This is what ``--trust`` says; it holds for this thread, and for nothing that a plan records.

    Example:
        >>> with trusting():
        ...     trusted()
        True
        >>> trusted()
        False
    """
    before = _TRUST.set(True)
    try:
        yield
    finally:
        _TRUST.reset(before)


@contextmanager
def being_strict() -> Iterator[None]:
    """Inside, a model with anything doubtful is refused when it is read (``--strict``).

    Example:
        >>> with being_strict():
        ...     strict()
        True
    """
    before = _STRICT.set(True)
    try:
        yield
    finally:
        _STRICT.reset(before)


@contextmanager
def routed(route: str) -> Iterator[None]:
    """Inside, torch modules are followed by this route (``--route``), whatever they ask for.

    Example:
        >>> with routed("run"):
        ...     route()
        'run'
    """
    before = _ROUTE.set(route)
    try:
        yield
    finally:
        _ROUTE.reset(before)


def route() -> str:
    """How a torch module is followed; empty = as its example says; see `routed`."""
    return _ROUTE.get()


def strict() -> bool:
    """Whether anything doubtful in a model is an error; see `being_strict`."""
    return _STRICT.get()


def trusted() -> bool:
    """Whether the caller trusts the files it names; see `trusting`."""
    return _TRUST.get()
