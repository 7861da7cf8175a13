"""What a buffer is called in reports: its first tensor and how many share it."""

from __future__ import annotations

from peakfold.planning import PlanResult
from peakfold.planning.modes import Layout
from peakfold.planning.timeline import Buffer


def buffer_name(result: PlanResult, layout: Layout, buffer: Buffer) -> str:
    """A name for people; not unique, not escaped."""
    index = result.context.index
    if buffer.workspace >= 0:
        return f"scratch of {index.graph.ops[buffer.workspace].name}"
    if buffer.copy >= 0:
        return f"copy of {index.name(buffer.copy)}"
    return index.name(layout.timeline.storages.members[buffer.storage][0])


def others(layout: Layout, buffer: Buffer) -> int:
    """How many further tensors live in a buffer's bytes."""
    return len(layout.timeline.storages.members[buffer.storage]) - 1 if buffer.storage >= 0 else 0
