"""Environment variables that look like options and are none."""

import os
import re
from collections.abc import Iterator, Mapping

import click
import structlog

from shaperouter_service.commands.options.spelling import nearest

PREFIX = "SHAPEROUTER_"

# Of the `shaperouter` command and the client library, which may share an environment with us.
CLIENT_VARIABLES = frozenset(
    PREFIX + name for name in ("ADDRESS", "CA", "CERT", "KEY", "TOKEN", "TOKEN_FILE")
)

# Kubernetes sets variables for each Service of a namespace: for one called `shaperouter`, or
# `shaperouter-` and more, they begin as ours do. Those that end in _PORT may be somebody's
# mistake, unless the value is of Kubernetes' form.
_SERVICE_LINK = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.+")

log = structlog.get_logger(__name__)


def warn_of_unknown_variables() -> None:
    """Warns of each variable that begins as options' do and that no command reads.

    They are no errors: what sets variables for many programs, such as Kubernetes, knows nothing of
    ours.
    """
    known = {*_variables(click.get_current_context().find_root().command), *CLIENT_VARIABLES}
    for name in unknown_variables(os.environ, known):
        # The prefix alone would make them all look alike.
        meant = nearest(name.removeprefix(PREFIX), (each.removeprefix(PREFIX) for each in known))
        log.warning(
            "unknown environment variable ignored",
            variable=name,
            **({"did_you_mean": PREFIX + meant} if meant else {}),
        )


def unknown_variables(environment: Mapping[str, str], known: set[str]) -> list[str]:
    """The names that begin as options' do and are none, without those that Kubernetes sets."""
    return [
        name
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX)
        and name not in known
        and not _SERVICE_LINK.fullmatch(name)
        and not (name.endswith("_PORT") and _SERVICE_URL.fullmatch(value))
    ]


def _variables(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            yield parameter.envvar
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _variables(each)
