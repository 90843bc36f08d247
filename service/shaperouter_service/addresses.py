"""Addresses as users write them."""

import socket

from shaperouter_service.errors import StartupError


def split_address(address: str, *, option: str) -> tuple[str, int]:
    """Splits `HOST:PORT`; an IPv6 host stands in brackets.

    Raises:
        StartupError: It is not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise StartupError(f"{option}: must be HOST:PORT with a port up to 65535, got {address!r}")
    return host.strip("[]"), int(port)


def worker_name(address: str) -> str:
    """The name of a worker that was given none: other than any of this host, and of this network.

    Args:
        address: That it listens on, which stays the same when it is started again.
    """
    place = address.removeprefix("unix:") if address.startswith("unix:") else None
    return f"{socket.gethostname()}:{place or address.rpartition(':')[2]}"
