"""One piece of advice: what every rule of `peakfold.analysis.lint.rules` yields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """One piece of advice.

    Attributes:
        rule: its name, for filters.
        ops: the ops it is about, most important first.
        message: what is, and what would be.
        saves_bytes: bytes the other design saves: memory access of a run, or where the message
            says so bytes kept per token or stored; `None` where it is no such matter.
    """

    rule: str
    ops: tuple[str, ...]
    message: str
    saves_bytes: int | None
