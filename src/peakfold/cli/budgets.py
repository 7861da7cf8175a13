"""The budgets of `plan` and `fit`: what there is of each memory."""

from __future__ import annotations

from typing import Any, cast

import click

from peakfold.cli.options import Size, stack
from peakfold.errors import UsageError

budget_options = stack(
    click.option(
        "--budget",
        type=Size(),
        help="Bytes there are for everything: weights, inputs, "
        "scratch and runtime included. Exit with 3 when more is needed.",
    ),
    click.option("--arena-budget", type=Size(), help="Bytes there are for the arena alone."),
    click.option(
        "--flash",
        type=Size(),
        help="Bytes of flash there are for the model, where the target has flash.",
    ),
)


def only_budget(flags: dict[str, Any]) -> int | None:
    """The budget of a torch step, whose figures have no arena apart; takes it out of `flags`.

    Raises:
        UsageError: another budget is given.
    """
    budget, arena, flash = (flags.pop(name) for name in ("budget", "arena_budget", "flash"))
    if arena is not None or flash is not None:
        raise UsageError("a torch step has one budget for all it takes", hint="give --budget alone")
    return cast("int | None", budget)
