"""Numbers as values of options: a refusal names the rule and the value."""

import math
from typing import Any

import click


class Integer(click.IntRange):
    """An integer within limits."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Reads it, or says what it must be."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"must be an integer{_limits(self)}, got {value!r}", param, ctx)


class Number(click.FloatRange):
    """A finite number within limits."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Reads it, or says what it must be."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        # No limit keeps out what is no number.
        if not math.isfinite(number):
            self.fail(f"must be a number{_limits(self)}, got {value!r}", param, ctx)
        return number


def _limits(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is not None and kind.max is not None:
        return f" from {kind.min} to {kind.max}"
    if kind.min is not None:
        return f" {'above' if kind.min_open else 'of at least'} {kind.min}"
    return ""
