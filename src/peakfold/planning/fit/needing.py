"""Where what a plan needs comes from: the prepared graph, the target, and the runtime's model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from peakfold.analysis import static_bytes
from peakfold.device import Device
from peakfold.ir import Role
from peakfold.planning.context import PlanningContext
from peakfold.planning.fit.total import Need, Total
from peakfold.planning.options import PlanOptions
from peakfold.target import Target

_IN_FLASH: Final = (Role.PARAMETER.value, Role.CONSTANT.value)
_KEPT: Final = "what the runtime keeps"


def _nothing(_options: PlanOptions) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a runtime does with a model by itself, and keeps beside the arena.

    Attributes:
        own: bytes of the arena it makes of the model as it is; `None` = not known.
        own_whole: bytes to set aside for that; `None` = not known.
        file: bytes of the model's file as it is; `None` = not known.
        unknown: for what it may take more than `whole` counts, in words.
        whole: bytes to set aside for an arena of some size under some options; `None` where the
            runtime cannot be told such a plan. Without it, what it keeps is not known.
        flash: bytes of the model's file with a plan made under some options; `None` = not known.
        notes: what else to know of it.
    """

    own: int | None = None
    own_whole: int | None = None
    file: int | None = None
    unknown: tuple[str, ...] = ()
    whole: Callable[[int, PlanOptions], int | None] | None = None
    flash: Callable[[PlanOptions], int | None] = field(default=_nothing)
    notes: tuple[str, ...] = ()

    def obeys(self, options: PlanOptions) -> bool:
        """Whether it can be told a plan with these options."""
        return self.whole is None or self.whole(0, options) is not None

    def untouched(self) -> Runtime:
        """The runtime given the model's file as it is, which needs no plan at all."""

        def whole(_arena: int, _options: PlanOptions) -> int | None:
            return self.own_whole

        return replace(self, whole=whole, flash=lambda _options: self.file)


def flash_roles(target: Target, device: Device | None = None) -> tuple[str, ...]:
    """Static roles that lie in flash: the target's, or those that any microcontroller reads there.

    Example:
        >>> from peakfold.target import load_target
        >>> flash_roles(load_target("tflm")), flash_roles(load_target("generic"))
        (('parameter', 'constant'), ())
    """
    on_chip = device is not None and device.kind == "mcu" and not target.real
    return _IN_FLASH if on_chip else target.flash


def need_of(
    context: PlanningContext,
    arena: int,
    runtime: Runtime | None = None,
    device: Device | None = None,
) -> Need:
    """What a plan needs with an arena of some size.

    Args:
        context: the prepared graph.
        arena: bytes.
        runtime: what executes the plan, where that is modelled.
        device: where it runs.

    Example:
        >>> from peakfold.ir import parse_graph
        >>> from peakfold.planning.planner import planning_context
        >>> g = parse_graph("peakfold-graph 1\\ninput x: int8[64]\\nparameter w: int8[64]\\n"
        ...                 "y: int8[64] = add(x, w)\\noutput y")
        >>> need_of(planning_context(g, PlanOptions()), 64).nbytes
        192
        >>> unsure = need_of(planning_context(g, PlanOptions(target="tflm")), 128)
        >>> unsure.nbytes, unsure.at_least, unsure.flash, unsure.unknown
        (None, 128, 64, ('what the runtime keeps',))
    """
    runtime = runtime or Runtime()
    target, index = context.target, context.index
    apart = flash_roles(target, device)
    static = {role.value: nbytes for role, nbytes in static_bytes(context.graph).items()}
    in_ram = sum(nbytes for role, nbytes in static.items() if role not in apart)
    inputs = {t for t in index.inputs if not index.static[t]}
    outputs = {t for t in index.outputs if not index.static[t]} - inputs
    outside = {
        "input": sum(index.nbytes[t] for t in inputs) * (context.policies.inputs == "external"),
        "output": sum(index.nbytes[t] for t in outputs) * (context.policies.outputs == "external"),
        "context": 0 if target.eager is None else target.eager.context_bytes,
    }
    scratch = _scratch_of(context) if target.real else ()
    kept, doubts = _kept(context, arena, runtime, in_ram)
    values = [f"the size of {index.name(t)!r}" for t in sorted(index.opaque)]
    wrong = context.source.contradictions
    doubts += tuple(values)
    total = Total(
        arena=None if wrong else arena,
        static=in_ram,
        scratch=None if scratch else 0,
        runtime=None if doubts else kept,
        **outside,
    )
    return Need(
        total=total,
        arena=arena,
        at_least=arena + in_ram + kept + sum(outside.values()),
        flash=_flash(context, runtime, sum(static[role] for role in apart)) if apart else None,
        unknown=scratch + doubts + wrong,
        sizes=wrong,
    )


def _kept(
    context: PlanningContext, arena: int, runtime: Runtime, state: int
) -> tuple[int, tuple[str, ...]]:
    """What is known of what the runtime keeps, state apart, and what is not."""
    if not context.target.real:
        return 0, ()
    whole = None if runtime.whole is None else runtime.whole(arena, context.options)
    if whole is None:
        return 0, (_KEPT,)
    return max(whole - arena - state, 0), runtime.unknown


def _scratch_of(context: PlanningContext) -> tuple[str, ...]:
    """Kinds of ops whose scratch no table tells, in words; ops within bodies by their op."""
    if context.workspace_known:
        return ()
    within = {body.op for body in context.bodies if not body.plan.workspace_known}
    kinds = {
        op.kind
        for at, op in enumerate(context.graph.ops)
        if context.facts[at].workspace is None or at in within
    }
    return tuple(f"scratch of {kind}" for kind in sorted(kinds))


def _flash(context: PlanningContext, runtime: Runtime, weights: int) -> int:
    """The model's file, with a plan in it; of a model that is none, its weights."""
    found = runtime.flash(context.options)
    return weights if found is None else found
