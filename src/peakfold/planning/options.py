"""Everything a user may ask of a plan, as one frozen record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peakfold.analysis import Policies
from peakfold.analysis.graph.workspace_profile import Profile
from peakfold.arguments import flag, power_of_two, real, shown, whole, word
from peakfold.errors import UsageError
from peakfold.packing import STRATEGIES
from peakfold.packing.objects.assign import OBJECT_STRATEGIES
from peakfold.planning.aliasing.reference_counting import SHARE_POLICIES, SharePolicy
from peakfold.planning.plan import MODES, Mode
from peakfold.target import (
    INPUT_POLICIES,
    OUTPUT_POLICIES,
    TARGETS,
    InputPolicy,
    OutputPolicy,
    Target,
    load_target,
)
from peakfold.transform import Split, Train

ORDERS = ("file", "best")
_FLAGS = (
    "inplace",
    "views",
    "zero_copy",
    "overlap",
    "fold",
    "fold_weights",
    "trace",
    "quick",
)
COUNTER = "counter"
PATHS = "path-coloring"
ARENA_STRATEGIES: tuple[str, ...] = ("best", *STRATEGIES)
SHARE_STRATEGIES: tuple[str, ...] = (*OBJECT_STRATEGIES, COUNTER, PATHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of `plan`; the command line's flags carry the same names.

    Attributes:
        target: name of the runtime's rules.
        mode: which plan to write; the summary always reports all five.
        strategy: ``best`` or a named algorithm of the mode's family.
        share: who may follow whom in a shared object (modes `share` and `both`).
        inputs, outputs: override the target's policies.
        align: bytes, a power of two, in place of the target's.
        inplace, views, zero_copy, overlap: switch a kind of sharing off everywhere.
        fold: compute before the run what needs no input.
        fold_weights: also fold conversions that make a weight larger.
        order: ``file`` keeps the file's order of ops; ``best`` searches for a lower peak.
        lanes: how many ops may run at once; 0 = free, the plan is safe in any run that the graph
            allows.
        added_edges: how many ordering edges a plan for several lanes may add to save memory.
        budget: bytes that everything in the arena's memory may take; `None` = no budget.
        arena_budget: bytes the arena alone may take; likewise.
        flash: bytes that the model may take of the flash; only where the target has one.
        time_limit: seconds for the search that follows the greedy packers.
        seed: of randomised search.
        profile: measured facts of the model's ops.
        trace: keep the step table of the reference-counting planner.
        split: compute the first part of the network in bands of rows.
        quick: one fast strategy for the shared objects that the plan is compared with.
        train: plan a training step of the model: backward pass and optimizer.
    """

    target: str = "generic"
    mode: Mode = "arena"
    strategy: str = "best"
    share: SharePolicy = "any"
    inputs: InputPolicy | None = None
    outputs: OutputPolicy | None = None
    align: int | None = None
    inplace: bool = True
    views: bool = True
    zero_copy: bool = True
    overlap: bool = True
    fold: bool = True
    fold_weights: bool = False
    order: Literal["file", "best"] = "file"
    lanes: int = 1
    added_edges: int = 0
    budget: int | None = None
    arena_budget: int | None = None
    flash: int | None = None
    time_limit: float = 5.0
    seed: int = 0
    trace: bool = False
    profile: Profile | None = None
    train: Train | None = None
    quick: bool = False
    split: Split | None = None

    def __post_init__(self) -> None:
        self._check_words()
        self._check_numbers()
        for name in _FLAGS:
            flag(getattr(self, name), name)
        for name, kind in (("profile", Profile), ("train", Train), ("split", Split)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise UsageError(f"{name} is no {kind.__name__}: {shown(value)}")
        if self.profile is not None and self.profile.target != self.target:
            raise UsageError(
                f"the profile was measured for target {self.profile.target}",
                hint=f"plan with --target {self.profile.target}",
            )
        if self.flash is not None and not load_target(self.target).flash:
            raise no_flash(self.target)
        if self.order == "best" and self.lanes != 1:
            raise UsageError("lanes have an order of their own", hint="leave --order out")
        if self.added_edges and self.lanes == 1:
            raise UsageError("added edges are for several lanes", hint="give --lanes, too")
        if self.lanes != 1 and (self.strategy not in ("best", PATHS) or self.share != "any"):
            raise UsageError(
                "a plan for several lanes has one strategy of its own",
                hint="leave --strategy and --share out",
            )
        if self.share != "any" and self.strategy not in ("best", COUNTER, PATHS):
            raise UsageError(
                f"strategy {self.strategy!r} knows no share policy {self.share!r}",
                hint="leave --strategy out, or use --strategy counter",
            )

    def _check_words(self) -> None:
        word(self.target, TARGETS, "target")
        word(self.mode, MODES, "mode")
        word(self.share, SHARE_POLICIES, "share policy")
        word(self.order, ORDERS, "order")
        if self.inputs is not None:
            word(self.inputs, INPUT_POLICIES, "input policy")
        if self.outputs is not None:
            word(self.outputs, OUTPUT_POLICIES, "output policy")
        if self.mode == "arena":
            word(self.strategy, ARENA_STRATEGIES, "strategy of mode arena")
        elif self.mode in ("share", "both"):
            word(self.strategy, SHARE_STRATEGIES, f"strategy of mode {self.mode}")
        elif self.strategy != "best":
            raise UsageError(f"mode {self.mode} shares nothing, so it has no strategies")

    def _check_numbers(self) -> None:
        """Numbers of numpy become plain ones: a plan is JSON."""
        found: dict[str, float] = {
            name: whole(getattr(self, name), name) for name in ("lanes", "added_edges", "seed")
        }
        if self.align is not None:
            found["align"] = power_of_two(self.align, "align")
        for name in ("budget", "arena_budget", "flash"):
            if getattr(self, name) is not None:
                found[name] = whole(getattr(self, name), name)
        found["time_limit"] = real(self.time_limit, "time_limit", endless=True)
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def policies(self, target: Target) -> Policies:
        """The policies in force: the options', or else the target's."""
        return Policies(
            inputs=self.inputs or target.inputs,
            outputs=self.outputs or target.outputs,
            align=target.align if self.align is None else self.align,
        )


def no_flash(target: str) -> UsageError:
    """That a budget of flash was given where all lies in one memory."""
    return UsageError(
        f"target {target} keeps nothing in flash",
        where="--flash",
        hint="leave it out, or take a microcontroller: --target tflm",
    )
