"""The command group of `shaperouterd`."""

import click

from shaperouter_service import __version__
from shaperouter_service.commands.cache import cache_command
from shaperouter_service.commands.certificates import certificates
from shaperouter_service.commands.check import check
from shaperouter_service.commands.convert import convert
from shaperouter_service.commands.ladder import ladder
from shaperouter_service.commands.router import router
from shaperouter_service.commands.serve import serve
from shaperouter_service.commands.token import token
from shaperouter_service.commands.worker import worker


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="shaperouterd")
def cli() -> None:
    """Serve Hugging Face models and SavedModels with TensorFlow and XLA, over gRPC and HTTP."""


for command in (serve, router, worker, check, ladder, cache_command, convert, token, certificates):
    cli.add_command(command)
