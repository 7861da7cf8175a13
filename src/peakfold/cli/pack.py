"""`peakfold pack`: packing alone, from a CSV of buffers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peakfold.cli import options as opt
from peakfold.cli.group import print_line, say_error
from peakfold.cli.output import STDOUT, Outputs, color, emit, width, working
from peakfold.errors import UsageError

if TYPE_CHECKING:
    from peakfold.app.pack import PackAnswer
    from peakfold.packing import Problem

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
@opt.time_limit(5.0, "Of the whole search.")
@click.option(
    "--node-limit",
    type=click.IntRange(0),
    metavar="N",
    help="Of the exact search: with --time-limit inf, one result anywhere.",
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
    "--banks",
    metavar="NAME=SIZE@COST,...",
    help="Several memories, cheapest cost first; the last one may have no size.",
)
@click.option(
    "--replan",
    "old",
    metavar="OLD.csv",
    help="Keep buffers where this packing has them, as far as that is legal and low enough.",
)
@click.option(
    "--max-moves",
    type=click.IntRange(0),
    metavar="N",
    help="With --replan: exit with 4 when more buffers must move.",
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
    file: str,
    anonymise: str | None,
    reduce_to: str | None,
    output: str | None,
    as_json: bool,
    force: bool,
    quiet: bool,
    **search: Any,  # noqa: ANN401 - what is asked, see `_answer`
) -> int:
    """Give the buffers of FILE.csv offsets so that those alive together never overlap.

    FILE has MiniMalloc's columns: id, lower, upper, size, and optionally alignment, gaps and
    offset (a pin). Exit code 3: proven that the capacity cannot be met; 4: unknown, the best
    packing found is above it. Ctrl-C shows the best packing so far.
    """
    names = {"packing": output, "anonymised": anonymise, "reduced": reduce_to}
    read_too = () if search["old"] is None else (search["old"],)
    outputs = Outputs(names, force=force, inputs=(file, *read_too), json=as_json)
    _refuse_contradictions(search, reduce_to)
    from peakfold.app.pack import pack_miss, pack_text
    from peakfold.packing import csv_format as table
    from peakfold.packing.questions import instances as reshape
    from peakfold.reports.records import to_json

    read = table.parse_csv(sys.stdin, "stdin") if file == STDOUT else table.read_csv(file)
    if search["capacity"] is None and search["banks"] is None:
        search["capacity"] = table.capacity_of(file)
    if (search["explain"] or reduce_to) and search["capacity"] is None:
        raise UsageError(
            "a verdict on a capacity is asked for, but there is none", hint="pass --capacity"
        )
    with working("packing", quiet=quiet):
        found = _answer(read.problem, search, quiet)
    contents: dict[str, bytes] = {}
    if output and found.offsets is not None:
        contents["packing"] = table.format_csv(read, found.offsets, found.banks).encode()
    if anonymise:
        contents["anonymised"] = table.format_csv(reshape.anonymise(read)).encode()
    if reduce_to:
        smaller = reshape.reduce_verdict(
            read, search["capacity"], found.document.status, search["time_limit"]
        )
        contents["reduced"] = table.format_csv(smaller).encode()
    if as_json:
        emit(to_json(found.document))
    elif outputs.to_stdout is None:
        emit(pack_text(found.document, width=width(), color=color()))
    outputs.write(contents, quiet=quiet)
    if (miss := pack_miss(found.document)) is not None:
        say_error(miss)
    return _EXIT[found.document.status]


def _refuse_contradictions(search: dict[str, Any], reduce_to: str | None) -> None:
    """Banks and replanning answer a question of their own."""
    given = {
        "--capacity": search["capacity"] is not None,
        "--minimize": search["minimize"],
        "--explain": search["explain"],
        "--planner": search["planner"] is not None,
        "--strategy": search["strategy"] != "best",
        "--reduce": reduce_to is not None,
        "--replan": search["old"] is not None,
        "--node-limit": search["node_limit"] is not None,
    }
    for option, key in (("--banks", "banks"), ("--replan", "old")):
        if search[key] is None:
            continue
        fine = {"--capacity", "--replan"} if key == "old" else set()
        for other, is_given in given.items():
            if is_given and other not in fine:
                raise UsageError(f"{option} and {other} do not go together")
    if search["max_moves"] is not None and search["old"] is None:
        raise UsageError("--max-moves needs an old packing", hint="pass --replan OLD.csv")


def _answer(problem: Problem, search: dict[str, Any], quiet: bool) -> PackAnswer:
    """Run what is asked for."""
    from peakfold.app.pack import decide, spread, stay
    from peakfold.packing import csv_format as table
    from peakfold.packing.questions import capacity as verdict

    effort = {
        "time_limit": search["time_limit"],
        "seed": search["seed"],
        "on_compile": None if quiet else _say_compiling,
    }
    if search["banks"] is not None:
        return spread(problem, search["banks"], **effort)
    if search["old"] is not None:
        old = table.read_csv(Path(search["old"]))
        return stay(
            problem, old, capacity=search["capacity"], max_moves=search["max_moves"], **effort
        )
    planner = verdict.load_planner(search["planner"]) if search["planner"] else None
    return decide(
        problem,
        capacity=search["capacity"],
        minimize=search["minimize"],
        strategy=search["strategy"],
        node_limit=search["node_limit"],
        want_culprits=search["explain"],
        planner=planner,
        progress=_narrate(quiet),
        **effort,
    )


def _say_compiling() -> None:
    from peakfold.packing.exact.kernels import CACHE

    often = (
        "once after an installation"
        if CACHE is not None
        else ("about 12 s in each run, as no folder can keep them (see NUMBA_CACHE_DIR)")
    )
    print_line(f"Compiling kernels, {often}; the time limit waits for it")


def _narrate(quiet: bool) -> Callable[[int, int], None] | None:
    """Best-so-far lines, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        return None
    return lambda height, bound: print_line(f"{height} bytes, bound {bound}")
