"""All mutations of plans by name: plausible lies, and each field of each record on its own."""

from __future__ import annotations

from . import other_lies  # it registers its lies
from .memory_lies import LIES
from .plan_fields import Mutation, Tree, field_of, records

__all__ = ["MUTATIONS", "Mutation", "Tree", "other_lies"]

MUTATIONS: dict[str, Mutation] = dict(LIES)
MUTATIONS |= {
    f"{kind.__name__}.{name}": field_of(f"{kind.__name__}.{name}") for kind, name in records()
}
