"""Ctrl-C and the like: one line and an exit code, at any moment of a run.

Imported before anything that takes time, so it imports nothing that does.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    # What `signal` wraps: that module loads `enum` first, and a Ctrl-C would hit the import.
    import _signal

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended."""
ENDS = {128 + 15: "terminated", 128 + 1: "hung up"}
"""What is said of a run that another signal ended, by exit code."""
_ASKED = tuple(code - 128 for code in ENDS if sys.platform != "win32")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C.

    Where the plain class passes through an `exec` of text, as in any import that makes
    dataclasses, Python takes it for unhandled for good, and later ends itself by the signal.
    """


def interrupt(*_: object) -> None:
    """A Ctrl-C is one interrupt, however often it arrives.

    `timeout` and some shells signal a process and its group, so a second one comes while the
    first is being told; it would end in a traceback. After the first the process only ends.

    Raises:
        Interrupted: always.
    """
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    raise Interrupted


def _end(number: int, _frame: object) -> None:
    """Unwind, so that temporary folders go and workers are stopped; once, too.

    Raises:
        SystemExit: always, with the code that shells give to such an end.
    """
    for other in (_signal.SIGINT, *_ASKED):
        _signal.signal(other, _signal.SIG_IGN)
    raise SystemExit(128 + number)


def arm() -> None:
    """Take over the signals that end a run, where nobody else has."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, interrupt)
    for number in _ASKED:
        if _signal.getsignal(number) == _signal.SIG_DFL:
            _signal.signal(number, _end)
    sys.unraisablehook = _again


def disarm() -> None:
    """The run is over: until the process is gone no Ctrl-C changes its outcome."""
    if _signal.getsignal(_signal.SIGINT) is interrupt:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    for number in _ASKED:
        if _signal.getsignal(number) is _end:
            _signal.signal(number, _signal.SIG_DFL)


def behind(error: BaseException) -> BaseException | None:
    """The signal that an exception comes from: Python and libraries wrap what falls into them.

    Example:
        >>> behind(ValueError()) is None
        True
    """
    at: BaseException | None = error
    for _ in range(100):  # chains may be closed
        if at is None or isinstance(at, KeyboardInterrupt):
            return at
        if isinstance(at, SystemExit) and at.code in ENDS:
            return at
        at = at.__cause__ or at.__context__
    return None


def _again(lost: sys.UnraisableHookArgs) -> None:
    """What a signal raised in a finaliser, where Python drops it, is sent once more."""
    raised = lost.exc_value
    if isinstance(raised, KeyboardInterrupt):
        number: int = _signal.SIGINT
    elif isinstance(raised, SystemExit) and raised.code in ENDS:
        number = int(raised.code) - 128
    else:
        sys.__unraisablehook__(lost)
        return
    import _thread

    _signal.signal(number, interrupt if number == _signal.SIGINT else _end)
    # What drops it runs in the main thread, the only one that handles signals.
    _thread.start_new_thread(_send, (_thread.get_ident(), number))


def _send(thread: int, number: int) -> None:
    import time

    time.sleep(0.005)  # the finaliser is over by then
    if sys.platform == "win32":
        _signal.raise_signal(number)
    else:
        _signal.pthread_kill(thread, number)
