"""What judges say of a plan, and what they are given to look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from peakfold.analysis.graph.alias_facts import Facts
from peakfold.analysis.graph.workspace_profile import Profile
from peakfold.ir import Graph
from peakfold.ir.bindings import Bindings
from peakfold.judges.interpreter import Trace
from peakfold.judges.placement import Places
from peakfold.planning.plan import Plan
from peakfold.target import Target

LABELS = ("version", "strategy", "seed", "search")
"""Fields that say where a plan comes from; nothing rests on them, and nothing can check them."""


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict on one rule: `detail` says what was checked, or what is wrong and where."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a plan says and no judge could derive: the field, and why it was not checked."""

    field: str
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judges say of a plan.

    Attributes:
        checks: one a rule, in the order they were made; a broken one ends the list, since
            later rules would judge nonsense.
        claims: what the plan says beyond that; empty where a check failed.
    """

    checks: tuple[Check, ...]
    claims: tuple[Claim, ...]

    @property
    def ok(self) -> bool:
        """Whether every rule holds; claims do not count."""
        return bool(self.checks) and all(check.ok for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a plan is judged with, beside its graph.

    Attributes:
        profile: the measured scratch that the plan was made with; `None` = not at hand.
        bindings: the numbers the graph was loaded with; `None` = not known.
    """

    profile: Profile | None = None
    bindings: Bindings | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A plan and the graph it is judged against, with what several rules look up.

    Attributes:
        facts: per op, with the scratch that is accepted, from a profile too.
        least: the same with what bodies need at the least, for bounds.
        claims: what could not be derived, by field; grows while rules are checked.
        derived: what a rule derived, by its name, where that is not always the same.
    """

    graph: Graph
    plan: Plan
    target: Target
    facts: tuple[Facts, ...]
    places: Places
    given: Given
    trace: Trace = field(default_factory=Trace)
    claims: dict[str, str] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)
