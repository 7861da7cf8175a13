"""The command line. Importing this loads nothing; click is loaded when `main` is first used."""

from __future__ import annotations

import sys

from peakfold.cli import signals

TYPE_CHECKING = False  # without `typing`, which takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["main"]


class _Main:
    """The `peakfold` command: the click group `peakfold.cli.group.main`, loaded at first use."""

    def __call__(self) -> NoReturn:
        """Run as a process of its own, which a signal ends in one line at any moment."""
        code: object = 0
        try:
            signals.arm()
            try:
                self.main()  # ends in an exit, always
            except SystemExit as end:
                code = end.code
            signals.disarm()
        except KeyboardInterrupt:  # before click was there, or when the verb was done
            code = signals.INTERRUPTED
            _say("interrupted")
        except SystemExit as end:
            code = end.code
        except Exception as error:
            if signals.behind(error) is None:
                raise
            code = signals.INTERRUPTED
            _say("interrupted")
        if code in signals.ENDS:
            _say(signals.ENDS[code])
        sys.exit(code)  # type: ignore[arg-type]  # an exit's own code

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a click group has
        from peakfold.cli import group

        return getattr(group.main, name)


def _say(what: str) -> None:
    try:
        sys.stderr.write(f"peakfold: error: {what}\n")
    except (AttributeError, OSError):  # it is closed
        return


main = _Main()
