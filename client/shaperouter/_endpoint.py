"""Address, deadline and channel options.

If the service is absent, a refused connection attempt fails at once, and an unanswered one after 5
s. `_retries.py` says which calls are then sent again.
"""

import math
import os
import re
from dataclasses import dataclass, field
from typing import Any

import grpc

from shaperouter._errors import InvalidArgumentError
from shaperouter._security import Security, is_loopback
from shaperouter._version import __version__

DEFAULT_ADDRESS = "127.0.0.1:50051"
ADDRESS_VARIABLE = "SHAPEROUTER_ADDRESS"

# Maximum bytes of a response: 40,000 embeddings. gRPC's default is 4 MB.
MAX_RESPONSE_BYTES = 64 * 2**20

# Seconds. A starting service first compiles its first graphs, which can take minutes.
DEFAULT_TIMEOUT = 300.0

# Seconds of silence after which a connection is pinged, and within which the answer must come. The
# service disconnects callers that ping it more often than every 5 s.
PING_INTERVAL, PING_TIMEOUT = 30.0, 20.0

# Seconds. gRPC's clock overflows far above this and takes such a deadline for one in the past.
_LONGEST_DEADLINE = 1e8

_SCHEME = re.compile(r"(unix|unix-abstract|dns|ipv4|ipv6):.+")
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")
_LAST_PORT = 65_535


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The service's address and how long its answers may take.

    Attributes:
        address: ``host:port``, ``unix:path`` or another gRPC target.
        timeout: Default deadline of a call in seconds; infinity means none.
        credentials: Credentials of the channel; None for plain text.
    """

    address: str
    timeout: float
    credentials: grpc.ChannelCredentials | None = field(repr=False)

    @classmethod
    def resolve(cls, address: str | None, timeout: float, security: Security) -> "Endpoint":
        """Fills in the default address and checks all values.

        Raises:
            InvalidArgumentError: The address or the timeout is invalid, or a token would be sent in
                plain text.
        """
        if address is None:
            address = os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        return cls(
            address=_checked(address),
            timeout=_seconds(timeout),
            credentials=security.credentials(address),
        )

    def deadline(self, timeout: float | None) -> float | None:
        """The deadline for gRPC, in seconds from now: `timeout` or the default; None means none.

        Raises:
            InvalidArgumentError: The timeout is not a number above 0.
        """
        seconds = self.timeout if timeout is None else _seconds(timeout)
        return None if seconds > _LONGEST_DEADLINE else seconds


def channel_options(address: str) -> list[tuple[str, Any]]:
    """The options of a channel to `address`."""
    options: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"shaperouter/{__version__}"),
        # Reconnect soon, so that a returning service is found within seconds, not minutes.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        # Despite its name, this is also the maximum time of a connection attempt.
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
        # Without pings, a call without a deadline waits forever for a host that has vanished. Only
        # connections with calls are pinged.
        ("grpc.keepalive_time_ms", int(PING_INTERVAL * 1000)),
        # The option that gRPC uses; grpc.keepalive_timeout_ms leaves it at a minute.
        ("grpc.http2.ping_timeout_ms", int(PING_TIMEOUT * 1000)),
        # A call may wait long for its first answer. By default, gRPC stops after two pings then.
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if is_loopback(address):
        # An http_proxy variable is meant for outside hosts and must not affect calls to this
        # machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _checked(address: object) -> str:
    if isinstance(address, str):
        if _SCHEME.match(address):
            return address
        match = _HOST_AND_PORT.fullmatch(address)
        if match and int(match["port"]) <= _LAST_PORT:
            return address
        if match:
            raise InvalidArgumentError.of(
                "address", f"the port must be at most {_LAST_PORT}, got {address!r}"
            )
    raise InvalidArgumentError.of("address", f"must be host:port or unix:path, got {address!r}")


def _seconds(timeout: object) -> float:
    """A timeout as a float; infinity means none."""
    if (
        isinstance(timeout, bool)
        or not isinstance(timeout, int | float)
        or not timeout > 0  # also refuses NaN
    ):
        raise InvalidArgumentError.of(
            "timeout",
            f"must be a number of seconds above 0, or infinity for no limit, got {timeout!r}",
        )
    try:
        return float(timeout)
    except OverflowError:  # an integer too large for a float
        return math.inf
