"""Time on a device as text, for `inspect --device`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from peakfold.analysis.time.roofline import BOUNDS
from peakfold.analysis.time.timing import Timing
from peakfold.printable import clean, shorten
from peakfold.reports.records.timing import ErrorRecord, TimingRecord, timing_record
from peakfold.reports.text.tables import counted, heading, listed, plain_table, tell_apart

_SLOWEST = 10


def timing_part(
    found: Timing,
    *,
    width: int,
    top: int | None = _SLOWEST,
    measured_s: float | None = None,
    batches: Sequence[int] = (),
    one_trip: Sequence[str] = (),
) -> list[RenderableType]:
    """Time of the whole and of the slowest ops, with what the figures rest on.

    Args:
        found: the times.
        width: characters of a line.
        top: how many of the slowest ops.
        measured_s: seconds of a run, measured.
        batches: batch sizes to tell the bound at.
        one_trip: loops whose trip count nobody knows.
    """
    record = timing_record(found, measured_s, batches)
    title = f"Time on {clean(found.device.title)}"
    if found.precision:
        title += f", floating point as {found.precision}"
    rows = []
    if record.error is not None:
        rows.append(["estimate", seconds(record.time_s), _error_words(record.error)])
    rows.append(["roofline", seconds(record.roofline_s), _bound_words(record)])
    if record.basis == "roofline":
        rows.append(["", "", record.why_not])
    for name, value in record.ridge.items():
        rows.append(["ridge", f"{value:.1f}", f"FLOPs/byte above which {name} is the limit"])
    rows.append(["turning batch", *_batch_words(found)])
    if record.transfer_s is not None:
        rows.append(["host link", seconds(record.transfer_s), "for inputs and outputs, beside"])
    if record.utilisation is not None:
        rows.append(["utilisation", f"{record.utilisation:.1%}", _measured_words(record)])
    table = plain_table(
        [("time", "left"), ("of a run", "right"), ("", "left")],
        [[Text(a), Text(b, "bold"), Text(c)] for a, b, c in rows],
    )
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    body: list[RenderableType] = [heading(title), table]
    if one_trip:
        body.append(Text(f"for one trip only: {listed(one_trip)} (--trips NAME=N)"))
    if record.unknown_ops:
        body.append(Text(f"left out: {counted(record.unknown_ops, 'op')} without a known time"))
    if record.partial_ops and record.basis == "roofline":
        body.append(Text(f"{counted(record.partial_ops, 'op')}: arithmetic or traffic not known."))
    return [*body, *_sweep_part(record), "", *_slowest(found, width, top)]


def _sweep_part(record: TimingRecord) -> list[RenderableType]:
    if not record.sweep:
        return []
    cells = [
        [
            f"{row.batch:,}",
            seconds(row.roofline_s),
            seconds(row.per_sample_s),
            f"{row.compute_share:.0%}",
            "?" if row.intensity is None else f"{row.intensity:.1f}",
        ]
        for row in record.sweep
    ]
    columns = [
        ("batch", "right"),
        ("roofline", "right"),
        ("a sample", "right"),
        ("compute", "right"),
        ("FLOPs/B", "right"),
    ]
    return ["", heading("Batch sizes"), plain_table(columns, cells)]


def basis_words(found: Timing) -> str:
    """What a time rests on, in a sentence."""
    record = timing_record(found)
    if record.error is None:
        return f"{record.why_not}; every op from memory and back at peak"
    return f"estimated {_error_words(record.error)}"


def _error_words(error: ErrorRecord) -> str:
    text = (
        f"as {clean(error.conditions)}: median error {error.held_out_median:.0%}, nine in ten "
        f"below {error.held_out_p90:.0%}, on architectures not seen ({error.models:,} models)"
    )
    if error.extrapolated:
        text += f"; measured at batch {error.measured_batch}, so here the error is not known"
    return text


def _bound_words(record: TimingRecord) -> str:
    total = record.roofline_s or 0.0
    if not total:
        return "nothing is known" if record.roofline_s is None else "nothing runs"
    shares = [
        f"{record.seconds_by_bound[name] / total:.0%} {name}"
        for name in BOUNDS
        if record.seconds_by_bound[name]
    ]
    return f"every op from memory and back at peak; bound by {', '.join(shares)}"


def _batch_words(found: Timing) -> tuple[str, str]:
    if found.turning_unknown:
        return "?", f"not known: {_missing(found)}"
    if found.turning_batch is None:
        return "never", "half of the bound's time is compute at no batch size"
    words = "from here on half of the bound's time is compute"
    if found.roofline.partial:
        words += ", of what is known"
    return f"{found.turning_batch:,}", words


def _missing(found: Timing) -> str:
    if not found.batch:
        return "how many samples a run has is not stated, pass --batch N"
    if found.device.bandwidth is None:
        return "the device's memory bandwidth is not stated"
    many = counted(found.roofline.unknown + found.roofline.partial, "op")
    return f"arithmetic, traffic or peak of {many}"


def _measured_words(record: TimingRecord) -> str:
    words = f"of {record.utilisation_of}, in {seconds(record.measured_s)} measured"
    if record.measured_possible is False:
        return (
            f"{words}: IMPOSSIBLE, its arithmetic alone takes {seconds(record.least_s)} at peak; "
            "check the time, the batch, --device and --precision"
        )
    if (record.utilisation or 0.0) > 1:
        words += "; above 100% since other engines work beside it"
    return words


def _slowest(found: Timing, width: int, top: int | None) -> list[RenderableType]:
    rows = list(
        zip(found.tasks, found.task_seconds, found.task_bounds, found.roofline.ops, strict=True)
    )
    known = [row for row in rows if row[1]]
    known.sort(key=lambda row: -(row[1] or 0.0))
    shown = known if top is None else known[:top]
    total = found.time_s or 1.0
    labels = tell_apart([task.work.name for task, *_ in shown], max(width - 58, 16))
    cells = [
        [
            label,
            shorten(task.work.kind, 16),
            seconds(time),
            f"{(time or 0.0) / total:.0%}",
            bound or "-",
            op.rated or "-",
        ]
        for label, (task, time, bound, op) in zip(labels, shown, strict=True)
    ]
    many = f": {len(shown)} of {len(known):,}" if len(shown) < len(known) else ""
    columns = [
        ("op", "left"),
        ("kind", "left"),
        ("time", "right"),
        ("", "right"),
        ("bound", "left"),
        ("rated as", "left"),
    ]
    split = "" if found.estimate is None else " (the total was checked, its split among ops not)"
    return [heading(f"Slowest ops{many}{split}"), plain_table(columns, cells)]


def seconds(value: float | None) -> str:
    """A time with a unit that suits it.

    Example:
        >>> seconds(57.1e-6), seconds(0.0123), seconds(2.5), seconds(0.0), seconds(None)
        ('57.1 us', '12.3 ms', '2.5 s', '0 s', '?')
    """
    if value is None:
        return "?"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return "0 s" if value == 0 else f"{value:.3g} s"
