"""What control flow keeps beside its body's own arena: slots of carried values and slices."""

from __future__ import annotations

from peakfold.ir import Graph, Op, Region
from peakfold.target import Target
from peakfold.units import round_up

_WITHOUT_SLOTS = ("if", "case", "call", "call_once")


def slot_bytes(op: Op, region: Region, align: int, target: Target) -> int:
    """Padded bytes an op needs beside the arena of one of its bodies.

    Where a target keeps bodies' own inputs and outputs, they are in that arena, and nothing is
    needed. Elsewhere an `if`, `case` or `call` writes its body's results straight into its own,
    and needs nothing, either. A `loop`, `while` or `scan` keeps two slots per carried value, one
    read and one written (no in-place update is proven here), and a buffer for every slice that is
    not contiguous in its tensor. Results that collect one slice a trip are results of the op, at
    full length.

    Args:
        op: the control-flow op.
        region: one body of it.
        align: padding of every slot.
        target: whose rules hold for bodies.
    """
    if target.bodies == "kept" or op.kind in _WITHOUT_SLOTS:
        return 0
    body = region.graph
    formal = [name for name in body.inputs if name not in region.captures]
    carried, slices = _formal_split(op, body, formal)
    slots = [2 * _padded(body, name, align) for name in carried]
    return sum(slots) + sum(_padded(body, name, align) for name in slices)


def _formal_split(op: Op, body: Graph, formal: list[str]) -> tuple[list[str], list[str]]:
    """Carried values of a body, and the per-trip slices that need a buffer of their own."""
    if op.kind == "loop":
        return formal[2:], []
    if op.kind == "while":
        # What the condition says needs a place, too; the body's results are the other slots.
        return formal, list(body.outputs) if body is op.regions[0].graph else []
    scanned = op.attrs.get("num_scan_inputs")
    count = min(scanned, len(formal)) if isinstance(scanned, int) else 0
    states = len(formal) - count
    axes_in, axes_out = op.attrs.get("scan_input_axes"), op.attrs.get("scan_output_axes")
    strided = [n for n, axis in zip(formal[states:], _axes(axes_in, count), strict=True) if axis]
    results = body.outputs[states:]
    strided += [n for n, axis in zip(results, _axes(axes_out, len(results)), strict=True) if axis]
    return formal[:states], strided


def _axes(value: object, count: int) -> tuple[int, ...]:
    return value if isinstance(value, tuple) and len(value) == count else (0,) * count


def _padded(body: Graph, name: str, align: int) -> int:
    return round_up(body[name].nbytes or 0, align)
