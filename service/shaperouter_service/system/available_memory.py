"""Memory that is available to a worker; routers do not have what this imports."""

import psutil

from shaperouter_service.system.devices import memory_left


def available_memory() -> int:
    """Bytes that new data can take, of this machine and below the container's limit."""
    left = memory_left()
    available = int(psutil.virtual_memory().available)
    return available if left is None else min(available, left)
