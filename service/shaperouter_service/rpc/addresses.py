"""Addresses as users write them."""

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
    """Whether other machines may reach a listening address: HOST:PORT or a Unix socket's."""
    if address.startswith(("unix:", "unix-abstract:")):
        return False
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except OSError:
        return True
    return not all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def worker_name(address: str) -> str:
    """Default name of a worker, unique on this host and in this network.

    Args:
        address: The address that it listens on, which is the same after a restart.
    """
    place = address.removeprefix("unix:") if address.startswith("unix:") else None
    return f"{socket.gethostname()}:{place or address.rpartition(':')[2]}"
