"""States of the random generator, which a checkpointed region keeps until it is run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch


@contextmanager
def states_seen(see: Callable[[torch.Tensor, str], object]) -> Iterator[None]:
    """Tell of every state of the CPU's generator that is read: a tensor that no operator makes.

    Args:
        see: is given the tensor and what made it.

    Example:
        >>> found = []
        >>> with states_seen(lambda state, name: found.append((state.dtype, name))):
        ...     _ = torch.get_rng_state()
        >>> found
        [(torch.uint8, 'get_rng_state')]
    """
    plain = torch.get_rng_state

    def seen() -> torch.Tensor:
        state = plain()
        see(state, "get_rng_state")
        return state

    with patch.object(torch, "get_rng_state", seen):
        yield
