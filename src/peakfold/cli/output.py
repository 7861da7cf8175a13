"""Where a verb's results go: data to stdout, narration to stderr, files by renaming."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from peakfold.cli.group import print_line
from peakfold.errors import UsageError

STDOUT = "-"
_LEAST = 40
_PLAIN = str.maketrans("█▇▆▅▄▃▂▁░╌─│┤└▲…", "######__.--|++^~")


def emit(data: str | bytes) -> None:
    """Write data to stdout. A reader that went away (``| head``) is no error.

    Raises:
        UsageError: stdout is closed, or cannot be written.
    """
    if sys.stdout is None:
        raise UsageError("cannot write to stdout: it is closed")
    try:
        if isinstance(data, bytes):
            sys.stdout.buffer.write(data)
        else:
            sys.stdout.write(_encodable(data, getattr(sys.stdout, "encoding", None) or "utf-8"))
        sys.stdout.flush()
    except BrokenPipeError:
        _stop_writing()
    except OSError as error:
        raise UsageError(f"cannot write to stdout: {error.strerror or error}") from None


def _encodable(text: str, encoding: str) -> str:
    """The text in what a terminal can show; pictures keep their shape in plain ASCII."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        drawn = text.translate(_PLAIN)
        return drawn.encode(encoding, "backslashreplace").decode(encoding)
    return text


def _stop_writing() -> None:
    """Point stdout at nothing, so that the interpreter's last flush stays silent, too."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def color() -> bool:
    """Whether stdout is a terminal that wants colour (https://no-color.org)."""
    if sys.stdout is None or os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Characters of a line: the terminal's, or COLUMNS, or 80; 40 at least and 140 at most."""
    return max(_LEAST, min(shutil.get_terminal_size((80, 24)).columns, 140))


@contextlib.contextmanager
def working(what: str, *, quiet: bool) -> Iterator[None]:
    """A spinner on stderr while something takes time; only on a terminal."""
    if quiet or sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


def _is_path(name: str) -> bool:
    """Whether a name can be looked up: none that is stdin, too long or holds a NUL character."""
    try:
        return name != STDOUT and Path(name).exists()
    except (OSError, ValueError):
        return False


class Outputs:
    """The files a verb was asked to write; refused at once when they could not be written.

    Args:
        names: file names by what they hold; `None` = not asked for; ``-`` = stdout.
        force: overwrite files that exist.
        inputs: files that are read, which no output may replace.
        json: whether stdout already carries the JSON document.

    Raises:
        UsageError: a file that exists, a folder that cannot be written, two things on stdout.
    """

    def __init__(
        self,
        names: Mapping[str, str | None],
        *,
        force: bool,
        inputs: tuple[str, ...] = (),
        json: bool = False,
    ) -> None:
        from peakfold.reports.files import check_writable, target_of

        self.names = {what: name for what, name in names.items() if name is not None}
        self.force = force
        piped = [what for what, name in self.names.items() if name == STDOUT]
        if len(piped) + json > 1:
            raise UsageError("only one result can go to stdout", hint="name a file instead of -")
        self.to_stdout = piped[0] if piped else None
        paths = [Path(name) for name in self.names.values() if name != STDOUT]
        read = {Path(name).resolve() for name in inputs if _is_path(name)}
        for path in paths:
            if target_of(path) in read:
                raise UsageError("would replace the file that is read", where=str(path))
        check_writable(paths, force=force)

    def wants(self, what: str) -> bool:
        """Whether this was asked for."""
        return what in self.names

    def write(self, contents: Mapping[str, bytes], *, quiet: bool) -> None:
        """Write everything, all files or none, and say so."""
        from peakfold.reports.files import write_files

        files = {Path(self.names[w]): data for w, data in contents.items() if w != self.to_stdout}
        write_files(files, force=self.force)
        if self.to_stdout is not None and self.to_stdout in contents:
            emit(contents[self.to_stdout])
        if not quiet:
            for path in files:
                print_line(f"Wrote {path}")
