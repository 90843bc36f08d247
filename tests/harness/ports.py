"""Ports that nobody uses."""

import contextlib
import os
import random
import socket

# Each process looks in its own slice, so that two processes do not find the same port.
SLICE = 200
SLICES = range(20_000, 32_000, SLICE)


def unused_ports(count: int) -> tuple[int, ...]:
    """Ports of this machine that nobody listens on.

    They are below those that the system gives to others until a test takes them, some seconds
    later.
    """
    free: list[int] = []
    first = SLICES[os.getpid() % len(SLICES)]
    for port in random.sample(range(first, first + SLICE), SLICE):
        with socket.socket() as holder, contextlib.suppress(OSError):
            holder.bind(("127.0.0.1", port))
            free.append(port)
        if len(free) == count:
            break
    return tuple(free)
