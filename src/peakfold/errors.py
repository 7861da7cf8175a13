"""The one error tree: every error says what is wrong, where, and what to do next.

Exit codes are part of the command-line contract: 1 bad model or failed run, 2 usage,
3 does not fit the budget, 4 time limit without a plan, 5 verification failed.
"""

from __future__ import annotations

LONGEST = 1000
"""Characters that each part of an error line may have."""


class PeakfoldError(Exception):
    """Base of everything peakfold raises on purpose.

    Args:
        what: the problem in one sentence.
        where: file, op or tensor at fault; empty when nothing narrower is known.
        hint: what the user can do next; empty when there is nothing to add.

    Example:
        >>> str(PeakfoldError("no shape", where="tensor 'x'", hint="pass --shape x=1x3"))
        "tensor 'x': no shape (pass --shape x=1x3)"
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        what, where, hint = (shortened(part) for part in (self.what, self.where, self.hint))
        text = f"{where}: {what}" if where else what
        text = f"{text} ({hint})" if hint else text
        return " ".join(text.split())


def shortened(text: str, most: int = LONGEST) -> str:
    """A text that may repeat something endless of a file, with its middle left out.

    Example:
        >>> shortened("a" * 50 + "z" * 50, 11)
        'aaaaa…zzzzz'
    """
    if len(text) <= most:
        return text
    kept = (most - 1) // 2
    return f"{text[:kept]}…{text[-kept:]}"


class ModelError(PeakfoldError):
    """The model file or graph is broken or cannot be understood."""


class UsageError(PeakfoldError):
    """The call is wrong: an unknown option value, an unwritable output, a bad name."""

    exit_code = 2


class DoesNotFit(PeakfoldError):
    """A budget or a capacity is not met; the message says what of that is proven."""

    exit_code = 3


class TimeLimit(PeakfoldError):
    """The time limit passed before any plan was found."""

    exit_code = 4


class InvalidPlan(PeakfoldError):
    """A judge rejected a plan, or the plan belongs to another model."""

    exit_code = 5


class BackendMissing(PeakfoldError):
    """An optional dependency is not installed."""


class RunFailed(PeakfoldError):
    """A runtime refused a model, died or did not finish."""
