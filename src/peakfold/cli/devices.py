"""`peakfold devices`: the hardware that time estimates can be made for."""

from __future__ import annotations

import click

from peakfold.cli import options as opt
from peakfold.cli.output import color, emit, width


@opt.verb("devices", example="peakfold devices t4")
@click.argument("names", metavar="[DEVICE]...", nargs=-1)
@opt.json_option
def command(names: tuple[str, ...], as_json: bool) -> int:
    """List the devices peakfold knows; with names, every figure and its source.

    DEVICE is a preset such as t4 or "RTX 4090", or a .toml file of your own.
    """
    from peakfold.reports.records import schema_name, to_json
    from peakfold.reports.records.device import devices_document
    from peakfold.reports.text.device import devices_text

    document = devices_document(schema_name("devices"), names)
    emit(to_json(document) if as_json else devices_text(document, width=width(), color=color()))
    return 0
