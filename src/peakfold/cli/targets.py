"""`peakfold targets`: the runtimes whose rules a plan can follow."""

from __future__ import annotations

from peakfold.cli import options as opt
from peakfold.cli.output import color, emit, width


@opt.verb("targets", example="peakfold targets --json")
@opt.json_option
def command(as_json: bool) -> int:
    """List the runtimes whose rules a plan can follow."""
    from peakfold.reports.records import documents, to_json
    from peakfold.reports.text import verbs as terminal

    document = documents.targets_document()
    emit(
        to_json(document)
        if as_json
        else terminal.targets_text(document, width=width(), color=color())
    )
    return 0
