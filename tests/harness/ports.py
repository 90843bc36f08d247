"""Ports that nobody uses."""

import contextlib
import random
import socket


def unused_ports(count: int) -> tuple[int, ...]:
    """Ports of this machine that nobody listens on.

    They are below those that the system gives to others until a test takes them, some seconds
    later.
    """
    free: list[int] = []
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as holder, contextlib.suppress(OSError):
            holder.bind(("127.0.0.1", port))
            free.append(port)
        if len(free) == count:
            break
    return tuple(free)
