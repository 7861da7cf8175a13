"""Cases of other planners' own tests: never worse than the peer, and valid by the judges."""

from __future__ import annotations

import json
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from click.testing import CliRunner

from peakfold.cli import main
from peakfold.errors import DoesNotFit, PeakfoldError
from peakfold.packing import Problem, pack
from peakfold.packing.csv_format import parse_csv
from peakfold.packing.verify import violations

from . import peers_tflite

FACTS = Path(__file__).parents[1] / "data" / "peers.json"
GENERATED = FACTS.with_name("peers_generated.json")
NOT_COPIED = tuple(
    f"malloc-bench-traces: {name}"
    for name in (
        "simple",
        "simple_realloc",
        "syn-mix-short",
        "syn-struct-short",
        "bdd-aa4",
        "server",
        "haskell-web-server",
        "ssh",
        "cbit-abs",
        "bdd-ma4",
        "ngram-gulliver1",
    )
)
"""Traces of allocations whose repository states no licence."""
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


@cache
def generated() -> dict[str, Any]:
    """Instances of a peer's generators by name: first and last step, or clock, and size."""
    found: dict[str, Any] = json.loads(GENERATED.read_text())
    return found


def instance(name: str) -> Problem:
    """Of a generator; where lifetimes are clocks, one ends before another in every lane."""
    start, stop, size = (list(column) for column in zip(*generated()[name], strict=True))
    if isinstance(start[0], int):
        return Problem.of(start, stop, size)
    before = (np.array(stop)[:, None] <= np.array(start)[None]).all(-1)
    pairs = np.argwhere(np.triu(~(before | before.T), 1))
    return Problem.of([0] * len(size), [1] * len(size), size, conflicts=pairs)


def complaint(case: Case) -> str:
    """What is wrong with our answer; empty where nothing is."""
    if case["kind"] == "tflite":
        return peers_tflite.complaint(case["name"], case["expect"])
    if case["kind"] == "count":
        from . import peers_counts

        return peers_counts.complaint(case)
    if case["kind"] == "generated":
        return _generated(case)
    if case["kind"] == "graph":
        return _planned(case)
    return _judged(case) if "offsets" in case else _packed(case)


def _generated(case: Case) -> str:
    given, expect = instance(case["name"]), case["expect"]
    found = pack(given, time_limit=20)
    if broken := list(violations(given, found.offsets)):
        return str(broken[0])
    most = min(expect.values())
    return "" if found.height <= most else f"height {found.height}, the peer's {most}"


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
