"""The file of tokens (`--tokens`): the clients that may call, and their limits.

::

    [clients.search-team]
    sha256 = ["5994…"]           # of its tokens; two during a rotation
    max_requests = 16            # in flight
    tokens_per_minute = 60_000   # of prompts and generations
    operator = false             # may warm graphs, load models, and see the requests of all clients

The file contains only digests, so it is not secret. They need neither salt nor a slow hash, because
tokens are long and random.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaperouter_service.errors import StartupError
from shaperouter_service.system import toml
from shaperouter_service.system.files import ReloadedFiles, read_regular

# Names are labels of metrics and appear in log lines.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")

_LIMITS = ("max_requests", "tokens_per_minute")

# Far above what a router can handle, and exact as a float.
_MAX_LIMIT = 10**9


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client that may call.

    Attributes:
        name: Name in logs, in metrics and in fair queues.
        max_requests: Maximum requests in flight; None means no limit. Bounds the slots and queue
            places that it holds at any moment.
        tokens_per_minute: Maximum tokens of prompts and generations together, on average; None
            means no limit. Tokens are the cost of a generation, which a limit of requests would not
            bound. A minute's tokens may be used at once.
        operator: Whether it may warm graphs, which are never freed and use a budget that all
            clients share, load and unload models, and see the requests of all clients.
    """

    name: str
    max_requests: int | None
    tokens_per_minute: int | None
    operator: bool


class Clients:
    """The clients of a file, which is reloaded when it changes."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises:
            StartupError: The file is invalid.
        """
        self._reloaded = ReloadedFiles([path], lambda: _read(path))

    def all(self) -> Iterable[Client]:
        """The current clients, once for each of their tokens."""
        return self._reloaded.get().values()

    def by_token(self, token: str) -> Client | None:
        """The client that a token belongs to; None if the token is unknown."""
        # By its digest, so that the time of the look-up reveals nothing about tokens.
        return self._reloaded.get().get(token_digest(token))


def check_client_name(name: str) -> None:
    """Checks the name of a client.

    Raises:
        ValueError: The name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a name must begin with a letter or digit and have at most 64 letters, digits, dots, "
            "dashes and underscores"
        )


def token_digest(token: str) -> str:
    """The SHA-256 digest of a token, in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def _read(path: Path) -> Mapping[str, Client]:
    """Reads a file; returns the clients by the digests of their tokens."""
    try:
        content = toml.parse(read_regular(path).decode())
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
    """Yields a client with each of its digests. Errors do not quote values that may be secret."""
    check_client_name(name)
    if not isinstance(table, dict):
        raise ValueError("must be a table")  # noqa: TRY004 (a fault of the file)
    if unknown := table.keys() - {"sha256", *_LIMITS, "operator"}:
        known = f"sha256, {', '.join(_LIMITS)} and operator"
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}; known are {known}")
    digests = table.get("sha256")
    if not isinstance(digests, list) or not digests:
        raise ValueError("sha256 must be a list of digests")
    for each in digests:
        # The value may be the token itself, by mistake.
        if not isinstance(each, str) or not _DIGEST.fullmatch(each):
            raise ValueError("sha256 must be digests of 64 hexadecimal digits in lower case")
    limits = {limit: table.get(limit) for limit in _LIMITS}
    for limit, value in limits.items():
        if value is not None and (type(value) is not int or not 1 <= value <= _MAX_LIMIT):
            raise ValueError(f"{limit} must be an integer from 1 to {_MAX_LIMIT}, got {value!r}")
    operator = table.get("operator", False)
    if not isinstance(operator, bool):
        fault = f"operator must be true or false, got {operator!r}"
        raise ValueError(fault)  # noqa: TRY004 (a fault of the file)
    client = Client(name=name, operator=operator, **limits)
    return ((each, client) for each in digests)
