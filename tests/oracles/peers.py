"""Cases of other planners' own tests: never worse than the peer, and valid by the judges."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from click.testing import CliRunner

from peakfold.cli import main
from peakfold.errors import DoesNotFit, PeakfoldError
from peakfold.packing import Problem, pack
from peakfold.packing.table import parse_csv
from peakfold.packing.verify import violations
from peakfold.runtimes.tflite.arena import predict_arena
from peakfold.runtimes.tflite.schema import parse_model
from peakfold.runtimes.tflite.scratch import known_scratch
from tests.conftest import SHARED

FACTS = Path(__file__).parents[1] / "data" / "peers.json"
Case = dict[str, Any]


def cases() -> list[Case]:
    """All of the file."""
    found: list[Case] = json.loads(FACTS.read_text())["cases"]
    return found


def name(case: Case) -> str:
    """Of the case."""
    return f"{case['suite']}: {case['name']}"


def problem(case: Case) -> Problem:
    """The buffers, read as a stranger's CSV; conflicts, where stated, in place of lifetimes."""
    rows = ["id,lower,upper,size,alignment,offset,gaps"]
    for at, (lower, upper, size, *more) in enumerate(case["buffers"]):
        extra = more[0] if more else {}
        rest = ",".join(str(extra.get(key, "")) for key in ("alignment", "offset", "gaps"))
        rows.append(f"{at},{lower},{upper},{size},{rest}")
    read = parse_csv(StringIO("\n".join(rows) + "\n")).problem
    if "conflicts" not in case:
        return read
    return Problem.of(read.start, read.stop, read.size, conflicts=case["conflicts"])


def skipped(case: Case) -> str:
    """Why a case cannot be run here; empty where it can."""
    if case["kind"] != "tflite" or _file(case) is not None:
        return ""
    return "its file is not among the shared models"


def _file(case: Case) -> Path | None:
    file = SHARED / "models/tflite" / Path(case["name"]).name
    return file if file.is_file() else None


def complaint(case: Case) -> str:
    """What is wrong with our answer; empty where nothing is."""
    if case["kind"] == "tflite":
        return _interpreted(case)
    if case["kind"] == "graph":
        return _planned(case)
    return _judged(case) if "offsets" in case else _packed(case)


def _interpreted(case: Case) -> str:
    file = _file(case)
    if file is None:
        return skipped(case)
    model = parse_model(file.read_bytes())
    found = predict_arena(model, known_scratch(model))
    have = {"head": found.head, "head_and_tail": found.head + found.tail}
    if found.unknown:
        return f"not known: {found.unknown}"
    return "" if have == case["expect"] else f"{have}, the interpreter's {case['expect']}"


def _packed(case: Case) -> str:
    expect, capacity = case["expect"], case.get("capacity")
    given = problem(case)
    try:
        found = pack(given, capacity=capacity, time_limit=10)
    except DoesNotFit:
        return "" if expect.get("fits") is False else "said not to fit"
    except PeakfoldError as error:
        return "" if expect.get("pins_conflict") else error.what
    if expect.get("fits") is False or expect.get("pins_conflict"):
        return f"packed in {found.height}"
    if broken := list(violations(given, found.offsets)):
        return str(broken[0])
    most = min(expect.get("peak", found.height), capacity or found.height)
    if found.height > most:
        return f"height {found.height}, the peer's {most}"
    if "load" in expect and found.lower_bound < expect["load"]:
        return f"bound {found.lower_bound} below the peer's load {expect['load']}"
    return ""


def _judged(case: Case) -> str:
    expect, given = case["expect"], problem(case)
    offsets = np.array(case["offsets"])
    try:
        valid = not list(violations(given, offsets))
        valid = valid and given.height(offsets) == expect["height"] == case["capacity"]
    except (PeakfoldError, ValueError):
        valid = False
    return "" if valid is expect["valid"] else f"valid: {valid}, the peer: {expect['valid']}"


def _planned(case: Case) -> str:
    with TemporaryDirectory() as folder:
        model, plan = Path(folder) / "g.pf", Path(folder) / "plan.json"
        model.write_text(case["pf"])
        command = ["plan", str(model), *case["args"], "--json", "-o", str(plan)]
        done = CliRunner().invoke(main, command)
        if done.exit_code:
            return done.output.strip()
        judged = CliRunner().invoke(main, ["verify", str(model), str(plan)])
    if judged.exit_code:
        return f"rejected: {judged.output.strip()}"
    have = json.loads(done.stdout)["summary"][case["field"]]
    return "" if have <= case["expect"] else f"{have}, the peer's {case['expect']}"
