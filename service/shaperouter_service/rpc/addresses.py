"""Addresses of servers, as users write them."""

import ipaddress
import socket

from shaperouter_service.errors import StartupError


def split_address(address: str, *, option: str) -> tuple[str, int]:
    """Splits `HOST:PORT`; an IPv6 host is in brackets.

    Raises:
        StartupError: The address does not have that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise StartupError(f"{option}: must be HOST:PORT with a port up to 65535, got {address!r}")
    return host.strip("[]"), int(port)


def is_public(address: str) -> bool:
    """Whether other machines can reach a server that listens on `address`."""
    if address.startswith(("unix:", "unix-abstract:")):
        return False
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except OSError:
        return True
    return not all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def worker_name(address: str) -> str:
    """Default name of a worker, which is unique in its network.

    Args:
        address: Address that the worker listens on, which stays the same after a restart.
    """
    path = address.removeprefix("unix:") if address.startswith("unix:") else None
    return f"{socket.gethostname()}:{path or address.rpartition(':')[2]}"
