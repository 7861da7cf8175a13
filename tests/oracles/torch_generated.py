"""Modules that nobody wrote: random compositions of layers, losses, masks and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.oracles.torch_operators import Step


def steps() -> Iterator[tuple[str, Callable[[], Step]]]:
    """None yet."""
    return iter(())
