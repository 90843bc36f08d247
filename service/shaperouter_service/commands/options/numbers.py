"""Types of numeric options, whose errors name the rule and the value."""

import math
from typing import Any

import click


class Integer(click.IntRange):
    """An integer in a range."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parses a value; fails with the rule that it violates."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"must be an integer{_limits(self)}, got {value!r}", param, ctx)


class Number(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parses a value; fails with the rule that it violates."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        # NaN passes every comparison with a limit.
        if not math.isfinite(number):
            self.fail(f"must be a number{_limits(self)}, got {value!r}", param, ctx)
        return number


def _limits(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is not None and kind.max is not None:
        return f" from {kind.min} to {kind.max}"
    if kind.min is not None:
        return f" {'above' if kind.min_open else 'of at least'} {kind.min}"
    return ""
