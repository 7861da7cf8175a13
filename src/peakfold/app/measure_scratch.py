"""`peakfold measure --scratch`: the scratch of every op, measured, and the file of it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.text import Text

from peakfold.analysis.graph.workspace_profile import SCHEMA, Profile, ProfiledOp
from peakfold.app.inspect import load
from peakfold.errors import UsageError
from peakfold.reports.records import to_json
from peakfold.reports.text.tables import plain_table, render


@dataclass(frozen=True, slots=True, eq=False)
class ProfileReport:
    """Scratch that was measured.

    Attributes:
        profile: per op.
    """

    profile: Profile

    def encode(self) -> bytes:
        """The profile as the file that ``plan --profile`` reads."""
        return to_json(self.profile).encode()

    def to_json(self) -> str:
        """The same as text."""
        return self.encode().decode()

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """Ops with scratch, and how many have none or could not run alone."""
        ops = self.profile.ops
        rows = [
            [Text(op.op), Text(op.operator), Text(f"{op.scratch_bytes:,}")]
            for op in ops
            if op.scratch_bytes
        ]
        unknown = sum(op.scratch_bytes is None for op in ops)
        none = len(ops) - len(rows) - unknown
        table = plain_table([("op", "left"), ("operator", "left"), ("bytes", "right")], rows)
        says = Text(f"{none} ops need none; {unknown} cannot run alone.")
        return render([table, "", says], width=width, color=color)


def measure_scratch(model: str | Path, *, runtime: str = "tflm") -> ProfileReport:
    """The scratch of every op of a model, each run alone on the interpreter.

    Raises:
        UsageError: a model or runtime this is not made for.
        BackendMissing: the interpreter is not installed.
    """
    path = Path(model)
    if path.suffix != ".tflite" or runtime != "tflm":
        raise UsageError("scratch is measured of .tflite models in tflm", where=str(path))
    from peakfold.frontends.tflite.file import read_tflite
    from peakfold.frontends.tflite.names import names_of_model
    from peakfold.runtimes.tflite.schema import operator_name, parse_model, read_model
    from peakfold.runtimes.tflite.scratch import measured_scratch

    load(path)
    names = names_of_model(read_tflite(path))
    parsed = parse_model(read_model(path), str(path))
    found = measured_scratch(parsed)
    ops = [
        ProfiledOp(
            op=names.op[where],
            operator=operator_name(parsed, parsed.subgraphs[where[0]].operators[where[1]]),
            scratch_bytes=size,
        )
        for where, size in found.items()
    ]
    version = metadata.version("tflite-micro")
    return ProfileReport(
        Profile(
            schema=SCHEMA,
            target="tflm",
            runtime=f"tflite-micro {version}",
            model=path.name,
            ops=ops,
        )
    )
