"""Playing a model: bytes in every step of an order, by counting readers."""

from __future__ import annotations

from collections.abc import Sequence

from peakfold.planning.order.strip_model import Model


class LiveBytes:
    """The state of a run: which readers are still to come, and how many bytes are alive.

    Attributes:
        left: per strip, readers that have not run.
        live: bytes alive between steps.
        done: number of ops that have run.
    """

    __slots__ = ("done", "left", "live", "model")

    def __init__(self, model: Model) -> None:
        self.model = model
        self.left = [len(readers) for readers in model.readers]
        self.live = model.start
        self.done = 0

    def cost(self, op: int) -> int:
        """Bytes alive in the step of `op` if it ran now."""
        model = self.model
        total = self.live + model.fresh[op] + model.scratch[op]
        if self.done == 0:
            total += model.first
        if model.saving[op] and any(
            all(self.left[s] == 1 for s in host) for host in model.hosts[op]
        ):
            total -= model.saving[op]
        return total

    def growth(self, op: int) -> int:
        """Bytes by which running `op` now would change what is alive between steps."""
        model = self.model
        total = sum(model.weight[s] for s in model.makes[op] if model.outlives(s))
        for s in model.reads[op]:
            if self.left[s] == 1 and not model.kept[s]:
                total -= model.weight[s]
        return total

    def run(self, op: int) -> None:
        """Run `op`."""
        self.live += self.growth(op)
        for s in self.model.reads[op]:
            self.left[s] -= 1
        self.done += 1


def step_costs(model: Model, order: Sequence[int]) -> list[int]:
    """Bytes alive in each step, the copying of outputs behind the last op not included.

    Args:
        model: the strips.
        order: a topological order of all ops.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning import PlanOptions
        >>> from peakfold.planning.order.strip_model import build_model
        >>> from peakfold.planning.planner import planning_context
        >>> from peakfold.planning.aliasing.records import Aliasing
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[4]\\ny: int8[8] = tile(x)\\n"
        ...                 "z: int8[8] = relu(y)\\nw: int8[2] = opaque(z)\\noutput w")
        >>> model = build_model(planning_context(g, PlanOptions(align=1)), Aliasing())
        >>> step_costs(model, (0, 1, 2))
        [8, 8, 10]
    """
    alive = LiveBytes(model)
    costs: list[int] = []
    for op in order:
        costs.append(alive.cost(op))
        alive.run(op)
    return costs


def peak_of(model: Model, order: Sequence[int]) -> int:
    """The most bytes alive in any step of an order, copies of outputs included.

    Args:
        model: the strips.
        order: a topological order of all ops.
    """
    return max(max(step_costs(model, order), default=0), model.final)
