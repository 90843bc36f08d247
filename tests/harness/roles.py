"""The roles of `shaperouterd`, recorded instead of started."""

from collections.abc import Callable, Sequence
from typing import Any

import click
from click.testing import Result

from shaperouter_service.commands.group import cli

# Required options of each role.
NEEDED = {"serve": [], "router": ["--worker=unix:/w"], "worker": []}

Run = Callable[..., Result]


def options_of(role: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The values of a role's options as read by `shaperouterd`."""
    # Within a group, like `shaperouterd`, because a command keeps the options of its first context.
    with click.Context(cli, info_name="shaperouterd", **cli.context_settings) as parent:
        context = cli.commands[role].make_context(role, list(arguments), parent=parent)
    return dict(context.params)


class Started:
    """The roles, which only record their options."""

    def __init__(self) -> None:
        self.config: Any = None
        self.workers: Any = None
        self.logs: tuple[str, str] | None = None

    async def run(self, config: Any, workers: Any = None) -> None:
        self.config, self.workers = config, workers
