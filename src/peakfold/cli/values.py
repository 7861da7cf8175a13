"""Types of the values that options take: sizes, lanes, finite numbers."""

from __future__ import annotations

import math
from typing import Any

import click

from peakfold.arguments import digits
from peakfold.errors import UsageError
from peakfold.units import parse_size


class Size(click.ParamType[int]):
    """A number of bytes: ``256KiB``, ``1.5GB``, ``1048576``."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Bytes."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Lanes(click.ParamType[int]):
    """A number of lanes, or ``free`` (0 inside)."""

    name = "lanes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Lanes; 0 for free."""
        if isinstance(value, int):
            return value
        text = str(value)
        if text == "free":
            return 0
        count = digits(text)
        if not count:
            self.fail(f"{value!r} is neither a number from 1 on nor free", param, ctx)
        return count


class Number(click.FloatRange):
    """A number in a range, and a number it must be: click takes ``nan`` for one."""

    def __init__(self, *, endless: bool = False, **limits: Any) -> None:  # noqa: ANN401 - click's
        super().__init__(**limits)
        self.endless = endless

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - click's
        """The number.

        Raises:
            click.BadParameter: it is out of range, ``nan``, or without end where that is no use.
        """
        number = super().convert(value, param, ctx)
        if math.isnan(number) or (math.isinf(number) and not self.endless):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
