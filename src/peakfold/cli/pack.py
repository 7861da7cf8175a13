"""`peakfold pack`: packing alone, from a CSV of buffers."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from peakfold.cli import options as opt
from peakfold.cli.group import print_line
from peakfold.cli.output import STDOUT, Outputs, emit, working
from peakfold.errors import UsageError

_SCHEMA = "peakfold.pack/1"
_EXIT = {"solved": 0, "infeasible": 3, "timeout": 4}


@opt.verb("pack", example="peakfold pack A.1048576.csv --json -o A.packed.csv")
@click.argument("file", metavar="FILE.csv")
@click.option(
    "--capacity",
    type=opt.Size(),
    metavar="SIZE",
    help="Decide whether this many bytes are enough; default: from the name X.<capacity>.csv.",
)
@click.option(
    "--minimize",
    is_flag=True,
    help="Go on below the capacity; without a capacity this is always done.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Of the whole search.",
)
@click.option(
    "--strategy",
    default="best",
    metavar="S",
    show_default=True,
    help=f"One algorithm alone: {', '.join(opt.ARENA_STRATEGIES)}.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the randomised parts."
)
@click.option(
    "--explain",
    is_flag=True,
    help="When the capacity cannot be met: buffers that cannot fit together.",
)
@click.option(
    "--planner",
    metavar="MODULE:FUNCTION",
    help="Judge a planner of your own: it takes a Problem and returns offsets.",
)
@click.option(
    "--anonymise", metavar="OUT.csv", help="Also write the instance without names and real times."
)
@click.option(
    "--reduce",
    "reduce_to",
    metavar="OUT.csv",
    help="Also write a smaller instance with the same verdict on the capacity.",
)
@click.option("-o", "--output", metavar="OUT.csv", help="Write the buffers with their offsets.")
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(
    file: str, capacity: int | None, minimize: bool, time_limit: float, strategy: str, seed: int,
    explain: bool, planner: str | None, anonymise: str | None, reduce_to: str | None,
    output: str | None, as_json: bool, force: bool, quiet: bool,
) -> int:  # fmt: skip
    """Give the buffers of FILE.csv offsets so that those alive together never overlap.

    FILE has MiniMalloc's columns: id, lower, upper, size, and optionally alignment, gaps and
    offset (a pin). Exit code 3: proven that the capacity cannot be met; 4: unknown, the best
    packing found is above it. Ctrl-C shows the best packing so far.
    """
    names = {"packing": output, "anonymised": anonymise, "reduced": reduce_to}
    outputs = Outputs(names, force=force, inputs=(file,), json=as_json)
    from peakfold.packing import reshape, table, verdict

    tried = verdict.load_planner(planner) if planner else None
    read = table.parse_csv(sys.stdin, "stdin") if file == STDOUT else table.read_csv(file)
    if capacity is None:
        capacity = table.capacity_of(file)
    if (explain or reduce_to) and capacity is None:
        raise UsageError("a verdict on a capacity is asked for, but there is none",
                         hint="pass --capacity")  # fmt: skip
    with working("packing", quiet=quiet):
        found = verdict.judge_capacity(
            read.problem, capacity=capacity, minimize=minimize, strategy=strategy,
            time_limit=time_limit, seed=seed, want_culprits=explain, planner=tried,
            progress=_narrate(quiet),
        )  # fmt: skip
    contents: dict[str, bytes] = {}
    if output and found.packing is not None:
        contents["packing"] = table.format_csv(read, found.packing.offsets).encode()
    if anonymise:
        contents["anonymised"] = table.format_csv(reshape.anonymise(read)).encode()
    if reduce_to and capacity is not None:
        smaller = reshape.reduce_verdict(read, capacity, found.status, time_limit)
        contents["reduced"] = table.format_csv(smaller).encode()
    document = _document(read.problem.names, read.problem.buffers, found)
    if as_json:
        emit(json.dumps(document, indent=2) + "\n")
    elif outputs.to_stdout is None:
        emit(_text(document))
    outputs.write(contents, quiet=quiet)
    return _EXIT[found.status]


def _narrate(quiet: bool) -> Any:  # noqa: ANN401
    """Best-so-far lines, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        return None
    return lambda height, bound: print_line(f"{height} bytes, bound {bound}")


def _document(names: tuple[str, ...], buffers: int, found: Any) -> dict[str, Any]:  # noqa: ANN401
    culprits = found.culprits
    explained = None if culprits is None else {
        "buffers": [names[b] for b in culprits.buffers],
        "bound_bytes": culprits.bound,
        "irreducible": culprits.irreducible,
        "reason": culprits.reason,
        "time": culprits.time,
    }  # fmt: skip
    return {"schema": _SCHEMA, **found.summary(), "buffers": buffers, "culprits": explained}


def _text(document: dict[str, Any]) -> str:
    """The same for people."""
    from peakfold.units import format_bytes

    height, bound = document["height_bytes"], document["lower_bound_bytes"]
    capacity, status = document["capacity_bytes"], document["status"]
    lines = [f"{document['buffers']} buffers"]
    if height is not None:
        proof = (
            "proven minimal" if document["optimal"] else f"{document['gap']:.2%} above the bound"
        )
        lines.append(f"height       {format_bytes(height)} ({height} bytes), {proof}")
    lines.append(f"lower bound  {format_bytes(bound)} ({bound} bytes)")
    if capacity is not None:
        answer = {
            "solved": "fits",
            "infeasible": f"cannot fit, {document['missing_bytes']} bytes missing at least",
            "timeout": f"unknown, the best found is {document['missing_bytes']} bytes above",
        }[status]
        lines.append(f"capacity     {format_bytes(capacity)} ({capacity} bytes): {answer}")
    culprits = document["culprits"]
    if culprits is not None:
        kind = "irreducible" if culprits["irreducible"] else "not fully reduced"
        count = len(culprits["buffers"])
        lines.append(f"cannot fit together ({count}, {kind}): {', '.join(culprits['buffers'])}")
    lines.append(f"{document['strategy'] or status}, {document['seconds']:.2f} s")
    return "\n".join(lines) + "\n"
