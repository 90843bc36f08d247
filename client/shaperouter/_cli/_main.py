"""The command's root: what it can do, and its global options."""

import sys

import click

from shaperouter._cli._command import connection_options
from shaperouter._cli._generate import generate
from shaperouter._cli._graphs import graphs
from shaperouter._cli._models import models
from shaperouter._cli._transcribe import transcribe
from shaperouter._cli._warm import warm
from shaperouter._version import __version__

cli = click.Group(
    "shaperouter",
    help="Calls a Shaperouter: generates text, transcribes speech, lists models, watches and warms "
    "compiled graphs.",
    params=connection_options(),
    commands=[generate, transcribe, models, graphs, warm],
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli = click.version_option(__version__, prog_name="shaperouter")(cli)


def main() -> None:
    """Runs the command and exits."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no error
    cli.main(prog_name="shaperouter")
