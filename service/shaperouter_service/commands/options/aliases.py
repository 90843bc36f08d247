"""Aliases: further names for models, which may share the requests."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from shaperouter_service.checkpoints.model_locations import check_name
from shaperouter_service.errors import StartupError
from shaperouter_service.routing.aliases import check_targets
from shaperouter_service.routing.deployments import Target

_TARGET = re.compile(r"(?P<model>[^:,]+)(:(?P<percent>\d+(\.\d+)?))?")


class AliasType(click.ParamType[tuple[str, Sequence[Target]]]):
    """An alias and its models with their percentages, `NAME=MODEL[:PERCENT],...`."""

    name = "alias"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Sequence[Target]]:
        """Parses a value; fails with the rule that it violates."""
        if not isinstance(value, str):
            parsed: tuple[str, Sequence[Target]] = value
            return parsed
        name, _, rest = value.partition("=")
        found = [_TARGET.fullmatch(part) for part in rest.split(",")]
        if not all(found):
            self.fail(f"must be NAME=MODEL or NAME=MODEL:90,MODEL:10, got {value!r}", param, ctx)
        targets = [
            Target(
                model=each["model"],
                share=1.0 if each["percent"] is None else float(each["percent"]) / 100,
            )
            for each in found
            if each
        ]
        try:
            check_name(name)
            check_targets(targets)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        return name, targets


def aliases_of(
    given: Iterable[tuple[str, Sequence[Target]]], models: Sequence[str]
) -> Mapping[str, Sequence[Target]]:
    """The aliases by name.

    Args:
        given: Values of the option.
        models: Names of the models of the start.

    Raises:
        StartupError: An alias is given twice, is the name of a model, or names an unknown model.
    """
    aliases: dict[str, Sequence[Target]] = {}
    for name, targets in given:
        if name in aliases:
            raise StartupError(f"alias: {name} is given twice")
        if name in models:
            raise StartupError(f"alias: {name} is the name of a model")
        for target in targets:
            if target.model not in models:
                raise StartupError(
                    f"alias: {name} needs --model {target.model}; there is {', '.join(models)}"
                )
        aliases[name] = targets
    return aliases
