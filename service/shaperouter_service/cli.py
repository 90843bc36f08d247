"""The entry point of `shaperouterd`, whose commands are in `commands`."""

import os
import signal
import sys
from typing import Any, NoReturn

from shaperouter_service.system.process import EXIT_CONFIG, EXIT_INTERRUPTED, EXIT_TERMINATED


def main() -> None:
    """Runs the command. A start-up error is one line and exit code 78, Ctrl-C one line and 130."""
    signal.signal(signal.SIGINT, _interrupted)
    # The first process of a container would ignore it.
    signal.signal(signal.SIGTERM, _terminated)
    # Imported here because these imports take most of the start-up time.
    import click

    from shaperouter_service.commands.group import cli
    from shaperouter_service.errors import StartupError
    from shaperouter_service.telemetry.logs import log, logs_json

    try:
        cli()
    except StartupError as error:
        if logs_json():
            # A program that reads the log expects JSON in every line.
            log.critical("not started", error=str(error))
        else:
            click.echo(f"shaperouterd: {error}", err=True)
        sys.exit(EXIT_CONFIG)


def _terminated(*_: Any) -> NoReturn:
    """Ends a command that is not serving (yet); see `_interrupted`."""
    os.write(2, b"shaperouterd: terminated\n")
    raise SystemExit(EXIT_TERMINATED)


def _interrupted(*_: Any) -> NoReturn:
    """Ends a command that is not serving (yet)."""
    # Not with Python's standard error, which the interrupted code may be writing to.
    os.write(2, b"shaperouterd: interrupted\n")
    raise SystemExit(EXIT_INTERRUPTED)
