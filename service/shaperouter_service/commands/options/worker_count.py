"""The option `--workers` of roles with local workers."""

import os
from typing import Any

import click

from shaperouter_service.commands.options.declaring import option
from shaperouter_service.commands.options.numbers import Integer
from shaperouter_service.system.devices import visible_gpus


class _WorkerCount(Integer):
    """A number of workers, or auto for one per GPU."""

    name = "integer or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return max(1, len(visible_gpus(os.environ)))
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            rule = f"must be auto or an integer from {self.min} to {self.max}"
            self.fail(f"{rule}, got {value!r}", param, ctx)


workers_option = option(
    "--workers",
    type=_WorkerCount(1, 64),
    default=1,
    metavar="N|auto",
    help="Number of local worker processes. Each has all models, a share of the cores and, if "
    "there are GPUs, one of them. auto starts one worker per GPU, or one if there is "
    "none. Cache entries depend on the number of cores of a worker, so changing this "
    "option compiles again.",
)
