"""Many mutants in a row, counted: what the tools, the slice in CI and the whole have in common."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from peakfold.ir import print_graph

from .attack import PER_BASE, Base, Outcome, bases, judged, known_wrong, outcome, smallest
from .readers import Mutant, Reader, finding, mutant, run, signature
from .readers import smallest as smallest_file
from .server import Server

ROOT = Path(__file__).parents[2]
SLICES = 10
DIFFERS = "COMMAND DIFFERS"
BAD = ("ACCEPTED, WRONG", "RAISED", DIFFERS)
COMMAND_EVERY = 50
"""Of so many mutants of plans, one is also given to ``peakfold verify``."""


def slice_number(slices: int = SLICES) -> int:
    """Which part of the whole is today's: commits so far, modulo the parts; 0 without git."""
    try:
        ran = subprocess.run(
            ["git", "rev-list", "--count", "HEAD"],
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(ran.stdout) % slices


@dataclass(slots=True)
class PlanTally:
    """What became of mutated plans.

    Attributes:
        total: mutants by class.
        by_mutation: by mutation and class.
        spoiled: sound plans that were rejected, or that the oracle faults.
        refused: graphs that could not be planned, by message.
        findings: kinds of finding.
    """

    total: Counter[str] = field(default_factory=Counter)
    by_mutation: Counter[tuple[str, str]] = field(default_factory=Counter)
    spoiled: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    findings: set[tuple[str, ...]] = field(default_factory=set)
    sound: int = 0


def plans(
    seed: int,
    numbers: Iterable[int],
    root: Path | None,
    tell: Callable[[Base, Outcome], None],
    server: Server | None = None,
) -> PlanTally:
    """Judge base plans by number, and the mutants of each.

    Args:
        seed: of the run.
        numbers: of base plans; base n has the mutants from ``n * PER_BASE`` on.
        root: of the checkout, for real models; `None` = random graphs only.
        tell: is given each new kind of finding.
        server: runs the command line on some of them; by default it is not run.
    """
    tally = PlanTally()
    for _, base in bases(seed, numbers, root, lambda _, e: tally.refused.update([str(e)])):
        verdict, said, _ = judged(base, base.plan)
        wrong = known_wrong(base, base.plan)
        if verdict != "accepted" or wrong:
            tally.spoiled += 1
            tell(base, Outcome(-1, base.label, (), f"unmutated, {verdict}", tuple(wrong), said))
            continue
        tally.sound += 1
        for number in range(base.number * PER_BASE, (base.number + 1) * PER_BASE):
            found = outcome(base, seed, number)
            if server is not None and number % COMMAND_EVERY == 0 and not base.profile:
                found = _by_command(server, base, found)
            tally.total[found.verdict] += 1
            tally.by_mutation.update((name, found.verdict) for name in set(found.mutations))
            if found.verdict in BAD:
                least = found if found.verdict == DIFFERS else smallest(base, seed, found)
                if least.signature not in tally.findings:
                    tally.findings.add(least.signature)
                    tell(base, least)
    return tally


def _by_command(server: Server, base: Base, found: Outcome) -> Outcome:
    """The command line must agree with the judge: 0 for what it accepts, 5 for the rest.

    It loads the model with the plan's own bindings, and so may reject what the judge cannot see.
    """
    files = {"m.pf": print_graph(base.graph).encode(), "p.json": json.dumps(found.tree).encode()}
    ran = server.run([("verify", "m.pf", "p.json", "-q")], files)
    code = ran.codes[-1] if ran.codes else -1
    accepted = found.verdict.lower().startswith("accepted")
    rebound = (found.tree or {}).get("bindings") != {"dims": {}, "shapes": {}}
    if found.verdict == "RAISED" or code == (0 if accepted else 5) or (code == 5 and rebound):
        return found
    return replace(found, verdict=DIFFERS, said=f"exit code {code}: {ran.err.strip()[-300:]}")


@dataclass(slots=True)
class FileTally:
    """What became of broken files: ends by exit code, or ``finding``; the slowest in CPU s."""

    ends: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    findings: set[str] = field(default_factory=set)


def files(
    server: Server,
    reader: Reader,
    seed: int,
    numbers: Iterable[int],
    tell: Callable[[Mutant, str], None],
) -> FileTally:
    """Give mutants to the command line; each new kind of finding is told with its smallest."""
    tally = FileTally()
    for number in numbers:
        one = mutant(reader, seed, number)
        ran = run(server, one)
        found = finding(one, ran)
        tally.ends["finding" if found else f"code {ran.codes[-1]}"] += 1
        tally.slowest = max(tally.slowest, ran.cpu_s)
        if found is not None and signature(found) not in tally.findings:
            tally.findings.add(signature(found))
            tell(*smallest_file(server, one, seed, found))
    return tally
