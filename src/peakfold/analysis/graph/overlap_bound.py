"""A lower bound for chains of overlaps: each lies below the one before, and distances add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peakfold.analysis.graph.alias_facts import Facts
from peakfold.analysis.graph.index import Index
from peakfold.units import round_up


@dataclass(frozen=True, slots=True)
class Link:
    """An op whose result either lies apart from an operand or below it.

    Attributes:
        host: the operand (tensor id).
        result: result 0.
        apart: bytes of any arena in which the two share no byte.
        distance: bytes by which the result begins below the operand otherwise, at least.
    """

    host: int
    result: int
    apart: int
    distance: int


def links(
    index: Index, facts: Sequence[Facts], apart: Sequence[int], inside: Sequence[bool], align: int
) -> list[Link]:
    """The ops of a graph that have just one operand that their result may lie over.

    Args:
        index: the graph.
        facts: per op.
        apart: per op, bytes of any arena in which its results share nothing with its operands.
        inside: per tensor, whether it lies in the arena whatever a plan decides.
        align: of buffers.
    """
    found: list[Link] = []
    for op, fact in enumerate(facts):
        record = index.graph.ops[op]
        positions = {o.input for o in fact.overlap} | set(fact.inplace)
        names = {record.inputs[at] for at in positions if at < len(record.inputs)} - {""}
        if not fact.overlap or len(names) != 1 or not record.outputs[0]:
            continue
        host, result = index.id_of[names.pop()], index.id_of[record.outputs[0]]
        if not inside[host] or not inside[result]:
            continue
        same = bool(fact.inplace) and index.nbytes[host] == index.nbytes[result]
        distance = 0 if same else round_up(min(o.distance for o in fact.overlap), align)
        found.append(Link(host, result, apart[op], distance))
    return found


def drift_bound(links: Sequence[Link], sizes: Sequence[int], floor: int) -> int:
    """Bytes that no arena goes below, since some chain of results must lie over each other.

    In an arena of T bytes, an op that needs more than T apart must put its result over its
    operand, so the operand begins at least a distance above the result. Along a chain of such
    ops the distances add up, and the first operand still has to end below T. The larger T, the
    fewer ops are bound like this; the bound is the smallest T for which all of them fit.

    Args:
        links: ops that may overlap, in an order in which operands come before results.
        sizes: per tensor, padded bytes.
        floor: a bound that holds already.

    Example:
        Two ops of 100 bytes in and out that may overlap at a distance of 16 each.

        >>> drift_bound([Link(0, 1, 200, 16), Link(1, 2, 200, 16)], [100, 100, 100], 116)
        132
    """
    thresholds = sorted({link.apart for link in links if link.apart > floor})
    total = floor
    for threshold in [*thresholds, None]:
        low: dict[int, int] = {}
        for link in reversed(links):
            if link.apart > total:
                below = low.get(link.result, 0) + link.distance
                low[link.host] = max(low.get(link.host, 0), below)
        need = max((at + sizes[tensor] for tensor, at in low.items()), default=0)
        if need <= total:
            return total
        if threshold is None or need < threshold:
            return need
        total = threshold
    return total
