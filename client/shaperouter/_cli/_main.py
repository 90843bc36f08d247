"""The root command and its global options."""

import contextlib
import os
import sys

import click

from shaperouter._cli._chat import chat
from shaperouter._cli._command import shared_options
from shaperouter._cli._embed import embed
from shaperouter._cli._generate import generate
from shaperouter._cli._graphs import graphs
from shaperouter._cli._infer import infer
from shaperouter._cli._interruption import (
    EXIT_INTERRUPTED,
    exit_with,
    interrupt_once,
    is_interrupted,
)
from shaperouter._cli._models import models
from shaperouter._cli._ready import ready
from shaperouter._cli._repository import load, set_alias, unload
from shaperouter._cli._transcribe import transcribe
from shaperouter._cli._warm import warm
from shaperouter._version import __version__

cli = click.Group(
    "shaperouter",
    help="Call a Shaperouter service: generate text, transcribe speech, call functions and text "
    "encoders, list, load, unload and rename models, and show and warm compiled graphs.",
    params=shared_options(),
    commands=[
        *(generate, chat, transcribe, infer, embed),
        *(models, load, unload, set_alias, graphs, warm, ready),
    ],
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli = click.version_option(__version__, prog_name="shaperouter")(cli)


def main() -> None:
    """Runs the command and exits."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # replace characters that the terminal lacks
    try:
        interrupt_once()
        # In standalone mode, Click prints "Aborted!" after an interruption and exits with 1.
        code = cli.main(prog_name="shaperouter", standalone_mode=False)
    except click.ClickException as error:
        # The interruption itself can appear as a failed call.
        if is_interrupted():
            code = EXIT_INTERRUPTED
        else:
            error.show()
            code = error.exit_code
    # The client reports its own errors, so this is one of a standard stream, such as a full disk.
    except OSError as error:
        _report_stream(error)
        code = 1
    # Click turns KeyboardInterrupt into Abort, but not while it starts or ends.
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    exit_with(code)


def _report_stream(error: OSError) -> None:
    """Reports that a standard stream cannot be read or written, and drops unwritten output."""
    with contextlib.suppress(OSError):
        click.echo(f"Error: cannot read or write a standard stream: {error.strerror}", err=True)
    # Otherwise Python would try to write the rest when it exits, and fail again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
