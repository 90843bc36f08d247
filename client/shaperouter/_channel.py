"""The connection: address, channel options and the retry policy, the same for both clients.

How a call meets an absent service: an attempt to connect that is refused fails at once, one that is
not answered after 5 s. For calls that answer once, gRPC makes 4 attempts with growing pauses (0.2,
0.6 and 1.8 s, each up to a fifth shorter or longer), so a service that restarts within two seconds
or so is not noticed, and with nothing there a call fails after about 2.5 s, whatever its deadline.

Only UNAVAILABLE is retried, and only while the service has sent nothing back: a call that has
received its header or a message is never repeated. Streams are not retried: with a retry policy,
a stream that a stopping server cancels may never end in gRPC 1.85, not even at its deadline (4 of
12 streams hung in a trial; none without the policy).
"""

import json
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

# Seconds. A cold service compiles at the first request of a shape, which can take minutes.
DEFAULT_TIMEOUT = 300.0

# Seconds. gRPC's clock overflows far beyond, and takes that for a deadline that has passed.
_LONGEST_DEADLINE = 1e8

_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": "shaperouter.v1.GenerationService", "method": "Generate"},
                {"service": "shaperouter.v1.TranscriptionService", "method": "Transcribe"},
                {"service": "shaperouter.v1.ModelService"},
                {"service": "shaperouter.v1.GraphService", "method": "ListGraphs"},
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.2s",
                "backoffMultiplier": 3,
                "maxBackoff": "5s",
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

_SCHEME = re.compile(r"(unix|unix-abstract|dns|ipv4|ipv6):")
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):\d{1,5}")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the service is and how long its answers may take.

    Attributes:
        address: ``host:port``, ``unix:path`` or another gRPC target.
        timeout: Default deadline of a call in seconds; infinity for none.
        credentials: What a channel is made with; None for a plain one.
    """

    address: str
    timeout: float
    credentials: grpc.ChannelCredentials | None = field(repr=False)

    @classmethod
    def resolve(cls, address: str | None, timeout: float, security: Security) -> "Endpoint":
        """Fills in the default address and checks all values.

        Raises:
            InvalidArgumentError: The address or the timeout cannot be right, or a token would
                travel in plain text.
        """
        if address is None:
            address = os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
        if not isinstance(address, str) or not (
            _SCHEME.match(address) or _HOST_AND_PORT.fullmatch(address)
        ):
            raise InvalidArgumentError.of(
                "address", f"must be host:port or unix:path, got {address!r}"
            )
        return cls(
            address=address, timeout=_seconds(timeout), credentials=security.credentials(address)
        )

    def deadline(self, timeout: float | None) -> float | None:
        """The deadline for gRPC, in seconds from now: `timeout`, or the default; None for none.

        Raises:
            InvalidArgumentError: The timeout is not a number.
        """
        seconds = self.timeout if timeout is None else _seconds(timeout)
        return None if seconds > _LONGEST_DEADLINE else seconds


def channel_options(address: str) -> list[tuple[str, Any]]:
    """The options of a channel to `address`."""
    options: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"shaperouter/{__version__}"),
        ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
        # Reconnect soon, so that a service that comes back is found within seconds, not minutes.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        # Despite its name, also the time an attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", 5_000),
    ]
    if is_loopback(address):
        # An http_proxy variable, meant for the outside, must not catch calls to this machine.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def _seconds(timeout: float) -> float:
    """A timeout as a float; below zero is a deadline that has passed."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout):
        raise InvalidArgumentError.of("timeout", f"must be a number of seconds, got {timeout!r}")
    return float(timeout)
