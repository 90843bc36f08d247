"""The roles of `shaperouterd`, which do not start: what their commands would start is seen."""

from collections.abc import Callable
from typing import Any

from click.testing import Result

# What the command line of a role must have.
NEEDED = {"serve": [], "router": ["--worker=unix:/w"], "worker": []}

Run = Callable[..., Result]


class Started:
    """The roles, which only note what they were started with."""

    def __init__(self) -> None:
        self.config: Any = None
        self.workers: Any = None
        self.logs: tuple[str, str] | None = None

    async def run(self, config: Any, workers: Any = None) -> None:
        self.config, self.workers = config, workers
