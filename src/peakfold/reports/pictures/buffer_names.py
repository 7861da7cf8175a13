"""What a buffer is called in reports: its first tensor and how many share it."""

from __future__ import annotations

from peakfold.planning import PlanResult
from peakfold.planning.modes import Layout
from peakfold.planning.timeline import Block


def block_name(result: PlanResult, layout: Layout, block: Block) -> str:
    """A name for people; not unique, not escaped."""
    index = result.study.index
    if block.workspace >= 0:
        return f"scratch of {index.graph.ops[block.workspace].name}"
    if block.copy >= 0:
        return f"copy of {index.name(block.copy)}"
    return index.name(layout.timeline.storages.members[block.storage][0])


def others(layout: Layout, block: Block) -> int:
    """How many further tensors live in a block's bytes."""
    return len(layout.timeline.storages.members[block.storage]) - 1 if block.storage >= 0 else 0
