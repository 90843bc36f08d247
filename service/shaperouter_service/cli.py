"""The `shaperouterd` command: what each of its commands does is in `commands`."""

import sys

import click

from shaperouter_service import __version__
from shaperouter_service.commands.cache import cache_command
from shaperouter_service.commands.convert import convert
from shaperouter_service.commands.ladder import ladder
from shaperouter_service.commands.router import router
from shaperouter_service.commands.serve import serve
from shaperouter_service.commands.token import token
from shaperouter_service.commands.worker import worker
from shaperouter_service.errors import EXIT_CONFIG, StartupError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="shaperouterd")
def cli() -> None:
    """Serves Hugging Face generation models with TensorFlow and XLA over gRPC."""


for command in (serve, router, worker, ladder, cache_command, convert, token):
    cli.add_command(command)


def main() -> None:
    """Runs the command; a start-up error is one line and exit code 78."""
    try:
        cli()
    except StartupError as error:
        click.echo(f"shaperouterd: {error}", err=True)
        sys.exit(EXIT_CONFIG)
