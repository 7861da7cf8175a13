"""`peakfold ops`: the registry."""

from __future__ import annotations

from peakfold.cli import options as opt
from peakfold.cli.output import color, emit, width


@opt.verb("ops", example="peakfold ops --json | python -m json.tool")
@opt.json_option
def command(as_json: bool) -> int:
    """List the op kinds peakfold knows, and what it knows of each."""
    from peakfold.reports.records import documents, to_json
    from peakfold.reports.text import verbs as terminal

    document = documents.ops_document()
    emit(
        to_json(document) if as_json else terminal.ops_text(document, width=width(), color=color())
    )
    return 0
