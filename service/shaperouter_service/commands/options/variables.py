"""Unknown names: environment variables that look like options, and the nearest known names."""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping

import click
import structlog

PREFIX = "SHAPEROUTER_"

# Variables of the `shaperouter` command and the client library, which may be set beside ours.
CLIENT_VARIABLES = frozenset(
    PREFIX + name for name in ("ADDRESS", "CA", "CERT", "KEY", "TOKEN", "TOKEN_FILE")
)

# Kubernetes sets variables for each Service of a namespace. For Services named `shaperouter` or
# `shaperouter-…`, they begin with our prefix. A variable that ends in _PORT may still be a mistake,
# unless its value has Kubernetes' form.
_SERVICE_LINK = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.+")

log = structlog.get_logger(__name__)


def warn_of_unknown_variables() -> None:
    """Warns of each variable with our prefix that no command reads.

    They are not errors, because systems such as Kubernetes set variables for many programs.
    """
    known = {*_variables(click.get_current_context().find_root().command), *CLIENT_VARIABLES}
    for name in unknown_variables(os.environ, known):
        # With the common prefix, all names would look similar.
        meant = nearest(name.removeprefix(PREFIX), (each.removeprefix(PREFIX) for each in known))
        log.warning(
            "unknown environment variable ignored",
            variable=name,
            **({"did_you_mean": PREFIX + meant} if meant else {}),
        )


def unknown_variables(environment: Mapping[str, str], known: set[str]) -> list[str]:
    """Names with our prefix that no command reads, without those that Kubernetes sets."""
    return [
        name
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX)
        and name not in known
        and not _SERVICE_LINK.fullmatch(name)
        and not (name.endswith("_PORT") and _SERVICE_URL.fullmatch(value))
    ]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to `name`; None if none is similar."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None


def _variables(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            yield parameter.envvar
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _variables(each)
