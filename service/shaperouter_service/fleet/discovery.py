"""Where workers are: addresses as they stand, and names that stand for changing addresses."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeAlias

import structlog

from shaperouter_service.addresses import split_address
from shaperouter_service.fleet.rounds import one_round

log = structlog.get_logger(__name__)

# Seconds between questions for the addresses of a name: what Kubernetes lets its answers live.
RESOLVE_INTERVAL = 5.0

# Finds the IP addresses of a host, of either version.
#
# Raises:
#     OSError: It has none, or nobody who knows can be asked.
Resolve: TypeAlias = Callable[[str], Awaitable[Collection[str]]]


class Following(Protocol):
    """What is told where the workers are."""

    def set_addresses(self, addresses: Collection[str]) -> None:
        """Takes all addresses there are now."""


async def resolve(host: str) -> Collection[str]:
    """Asks the system, in a thread; see `Resolve`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {str(address[0]) for *_, address in found}


@contextlib.asynccontextmanager
async def discovered(
    fleet: Following, workers: Sequence[str], resolve: Resolve = resolve
) -> AsyncIterator[None]:
    """Keeps a fleet told of its workers' addresses inside of the context.

    Args:
        fleet: What is told.
        workers: HOST:PORT or unix:PATH. A host that is a name stands for all addresses it has, from
            time to time; while it cannot be resolved, for those it had.
        resolve: Finds the addresses of a name.

    Raises:
        StartupError: An address has neither form.
    """
    names = {worker: split_address(worker, option="worker") for worker in workers if _named(worker)}
    found: dict[str, Sequence[str]] = {
        worker: () if worker in names else (worker,) for worker in workers
    }

    async def follow() -> None:
        unresolved: set[str] = set()
        while True:
            with one_round("discovery"):
                for worker, (host, port) in names.items():
                    try:
                        found[worker] = sorted(_joined(ip, port) for ip in await resolve(host))
                        unresolved.discard(worker)
                    # The second is what Python says of a host that cannot be a name.
                    except (OSError, UnicodeError) as error:
                        if worker not in unresolved:
                            log.warning("worker not resolved", worker=worker, reason=str(error))
                        unresolved.add(worker)
                tell()
            await asyncio.sleep(RESOLVE_INTERVAL)

    def tell() -> None:
        fleet.set_addresses(dict.fromkeys(one for all_of in found.values() for one in all_of))

    tell()
    task = asyncio.create_task(follow()) if names else None
    try:
        yield
    finally:
        if task:
            task.cancel()


def _named(worker: str) -> bool:
    """Whether a worker's host is a name, rather than an address or something of gRPC's own."""
    if worker.startswith(("unix:", "unix-abstract:")):
        return False
    host, _ = split_address(worker, option="worker")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _joined(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
