"""`peakfold lanes`: memory against parallelism, a row per number of lanes."""

from __future__ import annotations

import click

from peakfold.cli import options as opt
from peakfold.cli.output import color, emit, width, working


@opt.verb("lanes", example="peakfold lanes model.onnx --most 4 --added-edges 2")
@opt.model_argument
@opt.binding_options
@opt.target_option
@click.option(
    "--most",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="Try 1, 2, ... N lanes, then free.",
)
@click.option(
    "--added-edges",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="K",
    help="Also free with up to K edges that save memory.",
)
@opt.align_option
@opt.time_limit(20.0, "For the searches of all rows together.")
@opt.json_option
@opt.quiet_option
def command(
    model: str,
    dims: tuple[str, ...],
    shapes: tuple[str, ...],
    target: str,
    most: int,
    added_edges: int,
    align: int | None,
    time_limit: float,
    as_json: bool,
    quiet: bool,
) -> int:
    """Show what running branches of MODEL together costs in memory.

    Each row is a plan that is safe when that many ops run at once; free is safe in any run
    that the graph allows. Edges name what a plan makes wait beyond the graph.
    """
    from peakfold.app.inspect import called
    from peakfold.frontends import Bindings, load
    from peakfold.planning import PlanOptions
    from peakfold.planning.lanes.tradeoff import trade_offs
    from peakfold.planning.planner import planning_context
    from peakfold.reports.records import to_json
    from peakfold.reports.records.documents import lanes_document
    from peakfold.reports.text import verbs as terminal

    with working("planning", quiet=quiet):
        loaded = load(model, Bindings.parse(dims, shapes))
        context = planning_context(
            loaded.graph, PlanOptions(target=target, align=align, time_limit=time_limit)
        )
        rows = trade_offs(context, [*range(1, most + 1), 0], added_edges)
    document = lanes_document(called(loaded), rows)
    emit(
        to_json(document)
        if as_json
        else terminal.lanes_text(document, width=width(), color=color())
    )
    return 0
