"""`peakfold demo`: the main job on a bundled model, start to end."""

from __future__ import annotations

import importlib.util
from importlib import resources
from pathlib import Path

import click

from peakfold.cli import options as opt
from peakfold.cli.output import Outputs, color, emit, width, working
from peakfold.errors import InvalidPlan, UsageError

_MODEL = "blazeface.onnx"
_FILES = (_MODEL, "keywords.tflite", "two_branches.pf", "buffers.csv")


@opt.verb("demo", example="peakfold demo /tmp/peakfold-demo")
@click.argument("folder", metavar="[FOLDER]", default="peakfold-demo")
@opt.json_option
@opt.force_option
@opt.quiet_option
def command(folder: str, as_json: bool, force: bool, quiet: bool) -> int:
    """Plan a bundled model (BlazeFace, a face detector), draw its map, check the plan.

    The plan and the pictures go to FOLDER (default: peakfold-demo), and beside them the model and
    other small ones to try peakfold on.
    """
    home = Path(folder)
    _make(home)
    names = {"plan": home / "blazeface.plan.json", "svg": home / "blazeface.svg"}
    if importlib.util.find_spec("matplotlib") is not None:
        names["png"] = home / "blazeface.png"
    names |= {name: home / name for name in _FILES}
    outputs = Outputs({what: str(path) for what, path in names.items()}, force=force)
    from peakfold.app import demo
    from peakfold.app import plan as face

    models = resources.files("peakfold").joinpath("data", "models")
    with (
        working("planning the bundled model", quiet=quiet),
        resources.as_file(models.joinpath(_MODEL)) as path,
    ):
        report = face.plan(path)
        verdict = face.verify(path, report)
        contents = demo.contents(report, png=outputs.wants("png"))
        contents |= {name: models.joinpath(name).read_bytes() for name in _FILES}
    if as_json:
        emit(demo.demo_json(_MODEL, report, verdict, [str(path) for path in names.values()]))
    else:
        emit(report.to_text(width=width(), color=color()))
        emit(demo.proven(report, verdict, width=width(), color=color()))
    outputs.write(contents, quiet=quiet)
    if not verdict.ok:
        raise InvalidPlan("the plan of the bundled model failed a check; please report this")
    return 0


def _make(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot create the folder: {reason}", where=str(home)) from None
