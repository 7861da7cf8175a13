"""The order a search works on: one whole order, what each step costs, and changes in place."""

from __future__ import annotations

from collections.abc import Sequence

from peakfold.planning.order.fragment import Fragment, cut_out
from peakfold.planning.order.live_bytes import LiveBytes
from peakfold.planning.order.strip_model import Model


class OrderState:
    """An order of all ops, kept together with its costs while parts of it are rearranged.

    What is alive before and behind a run of ops does not depend on their order, so a change
    within a run changes costs nowhere else.

    Attributes:
        order: op ids.
        where: per op, its position.
        cost: per position, bytes alive in that step.
        live: per position, bytes alive before that step.
    """

    __slots__ = ("cost", "live", "model", "order", "where")

    def __init__(self, model: Model, order: Sequence[int]) -> None:
        self.model = model
        self.order = list(order)
        self.where = [0] * model.ops
        self.cost: list[int] = []
        self.live: list[int] = []
        alive = LiveBytes(model)
        for at, op in enumerate(order):
            self.where[op] = at
            self.cost.append(alive.cost(op))
            self.live.append(alive.live)
            alive.run(op)

    def fragment(self, begin: int, end: int) -> Fragment:
        """The ops at positions ``[begin, end)``, to be rearranged; numbered as they stand."""
        return cut_out(self.model, self.order, self.where, begin, end, self.live[begin])

    def rewrite(self, begin: int, fragment: Fragment, order: Sequence[int]) -> None:
        """Put the ops of a fragment that starts at `begin` into another order."""
        done, live = 0, fragment.start
        for at, local in enumerate(order, begin):
            op = fragment.ops[local]
            self.order[at], self.where[op], self.live[at] = op, at, live
            self.cost[at], live = fragment.step(done, live, local)
            done |= 1 << local

    def peak(self, begin: int, end: int) -> int:
        """The most bytes in any step of positions ``[begin, end)``."""
        return max(self.cost[begin:end])

    def peak_at(self, begin: int, end: int) -> int:
        """The first position in ``[begin, end)`` where that peak is reached."""
        return self.cost.index(self.peak(begin, end), begin, end)
