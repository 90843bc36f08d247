"""The file of tokens: the clients that may call, how they are known, and what each may ask for.

::

    [clients.search-team]
    sha256 = ["5994…"]           # of its tokens: two while one replaces the other
    max_requests = 16            # in flight
    tokens_per_minute = 60_000   # of prompts and generations
    operator = false             # may have graphs made ahead of traffic

The file has digests alone, so that it is no secret and has nothing to leak. They need no salt and
no slow hash: tokens are drawn at random, and long.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaperouter_service.errors import StartupError
from shaperouter_service.system.files import ReloadedFiles, read_regular

# It is a label of metrics, and in each line of the log.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")

_LIMITS = ("max_requests", "tokens_per_minute")

# Far beyond what a router can hold, and well inside of what floats count exactly.
_MOST = 10**9


@dataclass(frozen=True, kw_only=True)
class Client:
    """Someone who may call.

    Attributes:
        name: In logs, in metrics, and to fair queues.
        max_requests: Generations that it may have in flight; None is no limit. It bounds what it
            holds of slots and queues at any moment.
        tokens_per_minute: Tokens of prompts and generations together, on average; None is no limit.
            Tokens are what a generation costs: a limit of requests alone would let the longest
            through. A minute's worth may be used at once.
        operator: It may have graphs made ahead of traffic. They are never freed, and take of the
            budgets that all clients share.
    """

    name: str
    max_requests: int | None
    tokens_per_minute: int | None
    operator: bool


class Clients:
    """The clients of a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises:
            StartupError: It is not as it must be.
        """
        self._reloaded = ReloadedFiles([path], lambda: _read(path))

    def known(self) -> Iterable[Client]:
        """Those there are now."""
        return self._reloaded.get().values()

    def of_token(self, token: str) -> Client | None:
        """The client that a token is of; None if it is nobody's."""
        # By its digest, so that the time this takes says nothing of any token.
        return self._reloaded.get().get(digest(token))


def check_name(name: str) -> None:
    """Checks that a client can have a name.

    Raises:
        ValueError: None can have this one.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a name must begin with a letter or digit and have at most 64 letters, digits, dots, "
            "dashes and underscores"
        )


def digest(token: str) -> str:
    """The SHA-256 digest of a token, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def _read(path: Path) -> Mapping[str, Client]:
    """Reads the clients by the digests of their tokens."""
    try:
        content = tomllib.loads(read_regular(path).decode())
    except OSError as error:
        raise StartupError(f"tokens: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StartupError(f"tokens: {path} is not valid TOML: {error}") from error
    tables = content.pop("clients", None)
    if content or not isinstance(tables, dict):
        raise StartupError(f"tokens: {path} must have only tables [clients.NAME]")
    clients: dict[str, Client] = {}
    for name, table in tables.items():
        try:
            for each, client in _client(name, table):
                if each in clients:
                    raise ValueError(f"sha256 must differ from that of {clients[each].name}")
                clients[each] = client
        except ValueError as error:
            raise StartupError(f"tokens: {path}: clients.{name}: {error}") from error
    return clients


def _client(name: str, table: Any) -> Iterator[tuple[str, Client]]:
    """A client with each digest of its own; what is wrong is told without what stands there."""
    check_name(name)
    if not isinstance(table, dict):
        raise ValueError("must be a table")  # noqa: TRY004 (told with the file)
    if unknown := table.keys() - {"sha256", *_LIMITS, "operator"}:
        known = f"sha256, {', '.join(_LIMITS)} and operator"
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}; known are {known}")
    digests = table.get("sha256")
    if not isinstance(digests, list) or not digests:
        raise ValueError("sha256 must be a list of digests")
    for each in digests:
        # It may be the token itself, by mistake.
        if not isinstance(each, str) or not _DIGEST.fullmatch(each):
            raise ValueError("sha256 must be digests of 64 hexadecimal digits in lower case")
    limits = {limit: table.get(limit) for limit in _LIMITS}
    for limit, value in limits.items():
        if value is not None and (type(value) is not int or not 1 <= value <= _MOST):
            raise ValueError(f"{limit} must be an integer from 1 to {_MOST}, got {value!r}")
    operator = table.get("operator", False)
    if not isinstance(operator, bool):
        raise ValueError(f"operator must be true or false, got {operator!r}")  # noqa: TRY004
    client = Client(name=name, operator=operator, **limits)
    return ((each, client) for each in digests)
